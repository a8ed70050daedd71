package podsource

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const benchManifest = `apiVersion: v1
kind: Pod
metadata: {name: web-%d, labels: {app: web}}
spec:
  containers:
  - name: app
    image: example.com/web:1
    env: [{name: A, value: b}]
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`

func benchFiles(b *testing.B) *Files {
	dir := b.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range 100 {
		path := filepath.Join(dir, fmt.Sprintf("web-%d.yaml", i))
		if err := os.WriteFile(path, fmt.Appendf(nil, benchManifest, i), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.Chtimes(path, old, old); err != nil {
			b.Fatal(err)
		}
	}
	f, err := NewFiles(FilesConfig{Path: dir, NodeName: "n1"})
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// What an idle node does every 20 seconds, with 100 manifests.
func BenchmarkRescanUnchanged(b *testing.B) {
	f := benchFiles(b)
	later := time.Now().Add(time.Minute) // the files' times can be trusted by then
	f.scan(later)
	b.ReportAllocs()
	for b.Loop() {
		if changed, _ := f.scan(later); changed {
			b.Fatal("changed")
		}
	}
}

func BenchmarkFirstScan(b *testing.B) {
	f := benchFiles(b)
	b.ReportAllocs()
	for b.Loop() {
		clear(f.known)
		f.scan(time.Now())
	}
	if pods, _ := f.content(); len(pods) != 100 {
		b.Fatal("pods are missing: ", f.Errors())
	}
}

func BenchmarkMergeUnchanged(b *testing.B) {
	var set []*corev1.Pod
	for i := range 1000 {
		pods, err := Decode(fmt.Appendf(nil, benchManifest, i), Origin{SourceFile, "/m/web.yaml", "n1"})
		if err != nil {
			b.Fatal(err)
		}
		set = append(set, pods...)
	}
	old := Merge(SourceFile, nil, set, time.Now()).Pods
	b.ReportAllocs()
	for b.Loop() {
		if m := Merge(SourceFile, old, set, time.Now()); len(m.Updates) > 0 {
			b.Fatal("changed")
		}
	}
}

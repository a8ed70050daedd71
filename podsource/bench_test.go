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

// large is a decoded pod with n of everything that there can be many of.
func large(tb testing.TB, n int) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "large", "default", "1"
	var c corev1.Container
	c.Name, c.Image = "app", "x"
	for i := range n {
		name := fmt.Sprint("v", i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		c.Env = append(c.Env,
			corev1.EnvVar{Name: fmt.Sprint("A", i), Value: "x"},
			corev1.EnvVar{Name: fmt.Sprint("B", i), ValueFrom: &corev1.EnvVarSource{
				ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "app"}}},
			corev1.EnvVar{Name: fmt.Sprint("C", i), ValueFrom: &corev1.EnvVarSource{
				FileKeyRef: &corev1.FileKeySelector{VolumeName: name, Path: "a", Key: "K"}}})
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: fmt.Sprint("p", i), ContainerPort: int32(i%60000 + 1), HostPort: int32(i%60000 + 1)})
	}
	pod.Spec.Containers = []corev1.Container{c}
	setDefaults(pod)
	if errs := validate(pod); len(errs) > 0 {
		tb.Fatal(errs.ToAggregate())
	}
	return pod
}

// Validation costs the same for each further variable, mount, volume and port.
func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pod := large(b, n)
			b.ReportAllocs()
			for b.Loop() {
				validate(pod)
			}
		})
	}
}

func TestValidationDoesNotGrowQuadratically(t *testing.T) {
	cost := func(n int) time.Duration {
		pod := large(t, n)
		best := time.Hour
		for range 5 {
			start := time.Now()
			validate(pod)
			best = min(best, time.Since(start))
		}
		return best
	}
	// Ten times as much is ten times the work; a hundred times would be the fault.
	if few, many := cost(500), cost(5000); many > 40*few {
		t.Errorf("validation of 500 takes %v, of 5000 %v", few, many)
	}
}

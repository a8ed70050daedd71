package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/volume"
)

func TestAFailedRefreshKeepsTheFiles(t *testing.T) {
	o := &objects{}
	o.config("c", "a", "old")
	v := onDisk(t, volume.Config{Objects: o})
	pod := podWith("u1", configMap("v", "c"), configMap("w", "c"))
	pod.Spec.Volumes[1].ConfigMap.Optional = ptr(true)
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]func(){
		"the object is deleted":    func() { delete(o.configs, "c") },
		"nobody answers":           func() { o.down = errors.New("connection refused") },
		"the new contents are bad": func() { o.down = nil; o.config("c", "../x", "y") },
	} {
		fault()
		ready, err := v.SetUp(t.Context(), pod)
		var ve *volume.Error
		if !errors.As(err, &ve) || !ve.Refresh || !strings.Contains(err.Error(), "volume v: refresh: ") {
			t.Errorf("%s: SetUp = %v, want a refresh error", name, err)
		}
		if !volume.RefreshOnly(err) || !volume.RefreshOnly(fmt.Errorf("set up volumes: %w", err)) {
			t.Errorf("%s: %v is not only about refreshes", name, err)
		}
		if got := files(t, ready["v"].HostPath)["a"]; got != "0644 old" {
			t.Errorf("%s: the file is %q", name, got)
		}
		// One volume that never was there makes the difference.
		_, err = v.SetUp(t.Context(), podWith("u1", append(pod.Spec.Volumes, configMap("new", "no"))...))
		if err == nil || volume.RefreshOnly(err) || volume.RefreshOnly(fmt.Errorf("set up volumes: %w", err)) {
			t.Errorf("%s: %v counts as a refresh", name, err)
		}
		o.down = nil
		o.config("c", "a", "old")
		if _, err := v.SetUp(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if volume.RefreshOnly(nil) || volume.RefreshOnly(errors.New("x")) {
		t.Error("no error, or another one, is about refreshes")
	}
	// A deleted object that may be missing is no failure: its files go.
	delete(o.configs, "c")
	ready, _ := v.SetUp(t.Context(), pod)
	if got := files(t, ready["w"].HostPath); len(got) != 0 {
		t.Errorf("files of a deleted optional config map: %v", got)
	}
}

// TestRefreshWritesNothing looks at what a write can't hide: the versions' names and
// the times of directories.
func TestRefreshWritesNothing(t *testing.T) {
	o := &objects{}
	var vols []corev1.Volume
	for i := range 50 {
		name := "c" + strconv.Itoa(i)
		o.config(name, "a", "1", "b", "2")
		vols = append(vols, configMap(name, name))
	}
	written := 0
	v := onDisk(t, volume.Config{Objects: o, Hooks: volume.Hooks{Written: func(plugin string) {
		if written++; plugin != "kubernetes.io/configmap" {
			t.Errorf("plugin %q", plugin)
		}
	}}})
	pod := podWith("u1", vols...)
	ready, err := v.SetUp(t.Context(), pod)
	if err != nil || written != len(vols) {
		t.Fatalf("SetUp = %v, %d written", err, written)
	}
	state := func() map[string]string {
		all := map[string]string{}
		for name, m := range ready {
			err := filepath.WalkDir(m.HostPath, func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				fi, err := d.Info()
				if err != nil {
					return err
				}
				link, _ := os.Readlink(path)
				all[strings.TrimPrefix(path, filepath.Dir(m.HostPath))] = fmt.Sprint(fi.ModTime().UnixNano(), fi.Mode(), link)
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return all
	}
	before := state()
	for range 3 {
		if _, err := v.SetUp(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, state()); diff != "" || written != len(vols) {
		t.Errorf("%d written; a refresh changed (-before +after):\n%s", written-len(vols), diff)
	}
	o.config("c7", "a", "other")
	if _, err := v.SetUp(t.Context(), pod); err != nil || written != len(vols)+1 {
		t.Errorf("after one change %d volumes were written, %v", written-len(vols), err)
	}
}

// BenchmarkRefresh1000 brings 1,000 volumes up to date that are up to date: one
// SetUp each of 100 pods with 10 config maps of 3 keys.
func BenchmarkRefresh1000(b *testing.B) {
	o := &objects{}
	var pods []*corev1.Pod
	for i := range 100 {
		var vols []corev1.Volume
		for j := range 10 {
			name := fmt.Sprintf("c%d-%d", i, j)
			o.config(name, "a", strings.Repeat("x", 1000), "b", "2", "c", "3")
			vols = append(vols, configMap(name, name))
		}
		pods = append(pods, podWith("u"+strconv.Itoa(i), vols...))
	}
	written := 0
	v := onDisk(b, volume.Config{Objects: o, Hooks: volume.Hooks{Written: func(string) { written++ }}})
	all := func() {
		for _, pod := range pods {
			if _, err := v.SetUp(b.Context(), pod); err != nil {
				b.Fatal(err)
			}
		}
	}
	all()
	if written != 1000 {
		b.Fatalf("%d volumes were written, want 1000", written)
	}
	written = 0
	for b.Loop() {
		all()
	}
	b.ReportMetric(float64(written)/float64(b.N), "writes/op")
}

func ExampleConfig_objects() {
	root, err := os.MkdirTemp("", "volume")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)

	o := &objects{}
	o.config("app", "colour", "blue")
	v, err := volume.New(volume.Config{RootDir: root, Objects: o})
	if err != nil {
		panic(err)
	}
	pod := podWith("0a1b", configMap("conf", "app"))
	show := func() {
		ready, err := v.SetUp(context.Background(), pod)
		data, _ := os.ReadFile(filepath.Join(ready["conf"].HostPath, "colour"))
		fmt.Println(string(data), err)
	}
	show()
	o.config("app", "colour", "green")
	show()
	delete(o.configs, "app")
	show()
	// Output:
	// blue <nil>
	// green <nil>
	// green pod default/web volume conf: refresh: get config map default/app: configmaps "app" not found
}

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/volume"
)

func podWith(uid string, vols ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}}
	c := corev1.Container{Name: "app"}
	for _, v := range vols {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	pod.Spec.Volumes = vols
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

func emptyDir(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

func newVolumes(t *testing.T) (*volume.Volumes, string) {
	t.Helper()
	root := t.TempDir()
	v, err := volume.New(volume.Config{RootDir: root})
	if err != nil {
		t.Fatal(err)
	}
	return v, root
}

func TestNewRefusesRelativeRoot(t *testing.T) {
	for _, root := range []string{"", "kubelet"} {
		if _, err := volume.New(volume.Config{RootDir: root}); err == nil {
			t.Errorf("New with root %q: no error", root)
		}
	}
}

func TestEmptyDirIsMadeOnceAndForEveryUser(t *testing.T) {
	v, root := newVolumes(t)
	pod := podWith("u1", emptyDir("cache"))
	pod.Spec.Volumes = append(pod.Spec.Volumes, emptyDir("unused"))
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "pods/u1/volumes/kubernetes.io~empty-dir/cache")
	if len(paths) != 1 || paths["cache"].HostPath != dir {
		t.Fatalf("paths = %v, want only cache at %s: a volume nobody mounts is not set up", paths, dir)
	}
	assertMode(t, dir, 0o777)
	assertMode(t, filepath.Join(root, "pods/u1"), 0o750)
	if _, err := os.Stat(filepath.Join(root, "pods/u1/plugins/kubernetes.io~empty-dir/cache/ready")); err != nil {
		t.Errorf("marker: %v", err)
	}
	// What the pod did to it stays.
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	assertMode(t, dir, 0o700)
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Errorf("second SetUp lost data: %v", err)
	}
	// A marker without its directory is a leftover, not a volume.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	assertMode(t, dir, 0o777)
}

func assertMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Error(err)
		return
	}
	if got := fi.Mode().Perm(); got != want {
		t.Errorf("mode of %s = %o, want %o", path, got, want)
	}
}

func TestVolumeWithoutSourceIsAnEmptyDir(t *testing.T) {
	v, _ := newVolumes(t)
	paths, err := v.SetUp(t.Context(), podWith("u1", corev1.Volume{Name: "v"}))
	if err != nil || paths["v"].HostPath == "" {
		t.Errorf("SetUp = %v, %v", paths, err)
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	// A unix socket's path is limited to about 100 bytes, so it gets a short one.
	short, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	sock := filepath.Join(short, "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	cases := []struct {
		name string
		path string
		kind corev1.HostPathType
		want string // part of the error, "" for success
	}{
		{"no type checks nothing", filepath.Join(dir, "none"), corev1.HostPathUnset, ""},
		{"a directory is a directory", dir, corev1.HostPathDirectory, ""},
		{"a link to a directory is a directory", link, corev1.HostPathDirectory, ""},
		{"a file is not a directory", file, corev1.HostPathDirectory, "hostPath type check failed: " + file + " is not a directory, it's a file"},
		{"a missing directory is an error", filepath.Join(dir, "none"), corev1.HostPathDirectory, "is not a directory: create it on the node"},
		{"a directory is made with its parents", filepath.Join(dir, "a/b"), corev1.HostPathDirectoryOrCreate, ""},
		{"a file in place of the directory to make", file, corev1.HostPathDirectoryOrCreate, "it's a file"},
		{"a file is a file", file, corev1.HostPathFile, ""},
		{"a directory is not a file", dir, corev1.HostPathFile, "is not a file, it's a directory"},
		{"a file is made", filepath.Join(dir, "made"), corev1.HostPathFileOrCreate, ""},
		{"a file's parents are not made", filepath.Join(dir, "no/made"), corev1.HostPathFileOrCreate, "its directory must exist"},
		{"a socket is a socket", sock, corev1.HostPathSocket, ""},
		{"a file is not a socket", file, corev1.HostPathSocket, "is not a socket, it's a file"},
		{"null is a character device", "/dev/null", corev1.HostPathCharDev, ""},
		{"null is not a block device", "/dev/null", corev1.HostPathBlockDev, "is not a block device, it's a character device"},
		{"a relative path", "etc", corev1.HostPathUnset, "want an absolute path"},
		{"dots that climb", "/var/../etc", corev1.HostPathUnset, "must not contain '..'"},
		{"dots in a name are fine", filepath.Join(dir, "a..b"), corev1.HostPathUnset, ""},
		{"an unknown type", dir, corev1.HostPathType("Pipe"), `"Pipe" is unknown`},
		{"below a file", filepath.Join(file, "x"), corev1.HostPathDirectory, "hostPath type check failed"},
	}
	v, _ := newVolumes(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			paths, err := v.SetUp(t.Context(), podWith("u1", hostPath("h", c.path, c.kind)))
			if c.want == "" {
				if err != nil || paths["h"].HostPath != c.path {
					t.Errorf("SetUp = %v, %v; want %s", paths, err, c.path)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want it to say %q", err, c.want)
			}
			var ve *volume.Error
			if !errors.As(err, &ve) || ve.Pod != "default/web" || ve.Volume != "h" {
				t.Errorf("error %v does not name pod and volume", err)
			}
		})
	}
	assertMode(t, filepath.Join(dir, "a/b"), 0o755)
	assertMode(t, filepath.Join(dir, "made"), 0o644)
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	v, root := newVolumes(t)
	secret := corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "x"}}}
	odd := emptyDir("m")
	odd.EmptyDir.Medium = "Tape"
	ready, err := v.SetUp(t.Context(), podWith("u1", secret, odd, emptyDir("ok")))
	if !errors.Is(err, volume.ErrUnsupported) {
		t.Fatalf("error = %v, want ErrUnsupported", err)
	}
	for _, part := range []string{"pod default/web volume s: get secret default/x: this node has no source of secrets", `pod default/web volume m: emptyDir medium "Tape"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if volume.RefreshOnly(err) {
		t.Error("a volume that never was there counts as a refresh")
	}
	if len(ready) != 1 || ready["ok"].HostPath != filepath.Join(root, "pods/u1/volumes/kubernetes.io~empty-dir/ok") {
		t.Errorf("ready = %v, want the volume that is in order", ready)
	}
}

func TestHostileNamesStayInside(t *testing.T) {
	v, root := newVolumes(t)
	for _, uid := range []string{"", ".", "..", "../x", "a/b"} {
		if _, err := v.SetUp(t.Context(), podWith(uid, emptyDir("v"))); err == nil {
			t.Errorf("SetUp accepted the UID %q", uid)
		}
		if err := v.TearDown(t.Context(), observed.UID(uid)); err == nil {
			t.Errorf("TearDown accepted the UID %q", uid)
		}
	}
	if _, err := v.SetUp(t.Context(), podWith("u1", emptyDir("../../v"))); err == nil {
		t.Error("SetUp accepted a volume name with a path in it")
	}
	// A link planted where the pod's directory would be leads nowhere.
	outside := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "pods"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "pods/u2")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), podWith("u2", emptyDir("v"))); err == nil {
		t.Error("SetUp followed a symlink out of the root")
	}
	if err := v.TearDown(t.Context(), "u2"); err == nil {
		t.Error("TearDown took a symlink for a pod directory")
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("outside has %v", left)
	}
}

func TestTearDownRemovesOnlyWhatIsOurs(t *testing.T) {
	v, root := newVolumes(t)
	outside := t.TempDir()
	keep := filepath.Join(outside, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := podWith("u1", emptyDir("cache"), hostPath("h", outside, corev1.HostPathDirectory))
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(paths["cache"].HostPath, "link")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(root, "pods/u1/etc-hosts")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := v.TearDown(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "pods/u1/volumes")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("volumes directory: %v, want it gone", err)
	}
	for _, path := range []string{keep, other} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("TearDown took more than its own: %v", err)
		}
	}
}

func TestNothingThereIsNoError(t *testing.T) {
	v, _ := newVolumes(t)
	if err := v.TearDown(t.Context(), "unknown"); err != nil {
		t.Errorf("TearDown = %v", err)
	}
}

func TestOneCallPerPodAtATime(t *testing.T) {
	v, _ := newVolumes(t)
	pod := podWith("u1", emptyDir("a"), emptyDir("b"), emptyDir("c"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if _, err := v.SetUp(t.Context(), pod); err != nil {
					t.Error(err)
				}
				if err := v.TearDown(t.Context(), "u1"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.SetUp(ctx, pod); !errors.Is(err, context.Canceled) {
		t.Errorf("SetUp with an ended context = %v", err)
	}
}

func ExampleVolumes() {
	root, err := os.MkdirTemp("", "volume")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "0a1b"},
		Spec: corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}}},
		},
	}
	v, err := volume.New(volume.Config{RootDir: root})
	if err != nil {
		panic(err)
	}
	paths, err := v.SetUp(context.Background(), pod)
	fmt.Println(strings.TrimPrefix(paths["cache"].HostPath, root), err)
	err = v.TearDown(context.Background(), "0a1b")
	_, gone := os.Stat(paths["cache"].HostPath)
	fmt.Println(err, errors.Is(gone, os.ErrNotExist))
	// Output:
	// /pods/0a1b/volumes/kubernetes.io~empty-dir/cache <nil>
	// <nil> true
}

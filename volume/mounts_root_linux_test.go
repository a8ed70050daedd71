package volume_test

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/volume"
)

// onMounts is a room that really mounts. What a test leaves is unmounted at its end.
// Without root it says so and returns false: CI runs these tests as root.
func onMounts(t *testing.T, cfg volume.Config) (v *volume.Volumes, root string, ok bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Logf("not root: mounts are not tested here")
		return nil, "", false
	}
	root = t.TempDir()
	t.Cleanup(func() { detachAll(t, root) })
	cfg.RootDir = root
	v, err := volume.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v, root, true
}

// detachAll unmounts all below dir without touching what shares these mounts.
func detachAll(t *testing.T, dir string) {
	for _, at := range mountsIn(t, dir) {
		_ = unix.Mount("", at, "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	for range 10 {
		for _, at := range mountsIn(t, dir) {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
	if left := mountsIn(t, dir); len(left) > 0 {
		t.Errorf("the test leaves mounts: %v", left)
	}
}

func mountsIn(t *testing.T, dir string) []string {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var found []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

func optionsOf(t *testing.T, at string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+at+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func mountMust(t *testing.T, source, at, fstype string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, at, fstype, flags, data); err != nil {
		t.Fatalf("mount %s: %v", at, err)
	}
}

func memoryDir(name, size string) corev1.Volume {
	v := emptyDir(name)
	v.EmptyDir.Medium = corev1.StorageMediumMemory
	v.EmptyDir.SizeLimit = ptr(resource.MustParse(size))
	return v
}

func TestMemoryIsReallyMemory(t *testing.T) {
	o := &objects{secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v")}}}}
	v, root, ok := onMounts(t, volume.Config{Objects: o})
	if !ok {
		return
	}
	pod := podWith("u1", memoryDir("m", "64Ki"), secretVolume("s", "s"))
	ready, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	line := optionsOf(t, ready["m"].HostPath)
	if !strings.Contains(line, "size=64k") || !strings.Contains(line, "tmpfs") {
		t.Errorf("the mount is %q, want a tmpfs of 64k", line)
	}
	assertMode(t, ready["m"].HostPath, 0o777)
	if err := os.WriteFile(filepath.Join(ready["m"].HostPath, "big"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a file larger than the volume: %v", err)
	}
	if got := files(t, ready["s"].HostPath)["k"]; got != "0644 v" || !strings.Contains(optionsOf(t, ready["s"].HostPath), "tmpfs") {
		t.Errorf("the secret is %q on %q", got, optionsOf(t, ready["s"].HostPath))
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil || len(mountsIn(t, root)) != 2 {
		t.Errorf("the second SetUp: %v, mounts %v", err, mountsIn(t, root))
	}
	// Another process, after a crash, with somebody in the way.
	again, err := volume.New(volume.Config{RootDir: root})
	if err != nil {
		t.Fatal(err)
	}
	busy, err := os.Open(ready["m"].HostPath)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for range 2 {
		if err := again.TearDown(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if left := mountsIn(t, root); len(left) != 0 {
		t.Errorf("mounts left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(root, "pods/u1/volumes")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after TearDown: %v", err)
	}
}

// A kernel need not have free pages for a volume of them to be mounted.
func TestHugePagesAreReallyHuge(t *testing.T) {
	v, root, ok := onMounts(t, volume.Config{})
	if !ok {
		return
	}
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil || runtime.GOARCH != "amd64" {
		t.Logf("no huge pages of 2Mi: not tested here")
		return
	}
	vol := emptyDir("h")
	vol.EmptyDir.Medium = corev1.StorageMediumHugePages
	pod := podWith("u1", vol)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}
	ready, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if line := optionsOf(t, ready["h"].HostPath); !strings.Contains(line, "hugetlbfs") || !strings.Contains(line, "pagesize=2M") {
		t.Errorf("the mount is %q", line)
	}
	assertMode(t, ready["h"].HostPath, 0o777)
	if err := v.TearDown(t.Context(), "u1"); err != nil || len(mountsIn(t, root)) != 0 {
		t.Errorf("TearDown = %v, mounts %v", err, mountsIn(t, root))
	}
}

func TestAForeignMountStopsEverything(t *testing.T) {
	v, root, ok := onMounts(t, volume.Config{})
	if !ok {
		return
	}
	ready, err := v.SetUp(t.Context(), podWith("u1", memoryDir("m", "1Mi"), emptyDir("d")))
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(ready["m"].HostPath, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.MkdirAll(filepath.Join(precious, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	mountMust(t, precious, inside, "", unix.MS_BIND, "")
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, volume.ErrMounted) || !strings.Contains(err.Error(), inside) {
		t.Errorf("TearDown = %v, want ErrMounted at %s", err, inside)
	}
	if got := len(mountsIn(t, root)); got != 2 {
		t.Errorf("%d mounts, want both still there", got)
	}
	if err := unix.Unmount(inside, 0); err != nil {
		t.Fatal(err)
	}
	if err := v.TearDown(t.Context(), "u1"); err != nil || len(mountsIn(t, root)) != 0 {
		t.Errorf("TearDown = %v, mounts %v", err, mountsIn(t, root))
	}
	if _, err := os.Stat(filepath.Join(precious, "data")); err != nil {
		t.Errorf("the data of the foreign mount: %v", err)
	}
}

// The owner of files is root, their group the pod's.
func TestOwnersOfFiles(t *testing.T) {
	o := &objects{secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v")}}}}
	v, _, ok := onMounts(t, volume.Config{Objects: o})
	if !ok {
		return
	}
	written := 0
	pod := podWith("u1", secretVolume("s", "s"), memoryDir("m", "1Mi"))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(4711))}
	for range 2 {
		ready, err := v.SetUp(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{ready["s"].HostPath + "/k", ready["s"].HostPath + "/..data/", ready["s"].HostPath, ready["m"].HostPath} {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Uid != 0 || st.Gid != 4711 {
				t.Errorf("%s belongs to %d:%d, %v", path, st.Uid, st.Gid, err)
			}
		}
		version, _ := os.Readlink(ready["s"].HostPath + "/..data")
		if written++; written == 2 && version != pod.Annotations["seen"] {
			t.Errorf("version %s was written over %s though nothing changed", version, pod.Annotations["seen"])
		}
		pod.Annotations = map[string]string{"seen": version}
	}
}

package volume_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/volume"
)

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestSubPathsAreBound(t *testing.T) {
	o := &objects{}
	o.config("c", "key", "one")
	v, root, ok := onMounts(t, volume.Config{Objects: o})
	if !ok {
		return
	}
	host := t.TempDir()
	pod := podWith("u1", emptyDir("e"), configMap("c", "c"), hostPath("h", host, corev1.HostPathDirectory), memoryDir("m", "1Mi"))
	ready, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	sub := func(index int, vol, path string, readOnly bool) string {
		t.Helper()
		at, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: "app", Index: index, Volume: vol, Path: path, ReadOnly: readOnly})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("%s/pods/u1/volume-subpaths/%s/app/%d", root, vol, index); at != want {
			t.Errorf("%s %s is at %s, want %s", vol, path, at, want)
		}
		return at
	}
	data := sub(0, "e", "data/db", false)
	if inode(t, data) != inode(t, filepath.Join(ready["e"].HostPath, "data/db")) {
		t.Error("what is bound is not the directory in the volume")
	}
	key := sub(1, "c", "key", true)
	if got, err := os.ReadFile(key); string(got) != "one" {
		t.Errorf("the key is %q, %v", got, err)
	}
	if err := os.WriteFile(key, nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only subPath is written to: %v", err)
	}
	sub(2, "h", "made/here", false)
	if fi, err := os.Stat(filepath.Join(host, "made/here")); err != nil || fi.Mode() != inodeMode(t, host) {
		t.Errorf("on the host: %v, %v; want the mode of the volume", fi, err)
	}
	sub(3, "m", "tmp", false)

	// A second start: the same file is the same mount, a replaced one is not.
	before := optionsOf(t, data)
	sub(0, "e", "data/db", false)
	if got := optionsOf(t, data); got != before {
		t.Errorf("bound anew without need: %q, was %q", got, before)
	}
	o.config("c", "key", "two")
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(key); string(got) != "one" {
		t.Errorf("a running container's file has changed to %q", got)
	}
	sub(1, "c", "key", true)
	if got, _ := os.ReadFile(key); string(got) != "two" {
		t.Errorf("after the next start the key is %q", got)
	}
	// Directory and file trade places.
	if err := os.Remove(filepath.Join(ready["e"].HostPath, "data/db")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ready["e"].HostPath, "data/db"), []byte("file"), 0o600); err != nil {
		t.Fatal(err)
	}
	sub(0, "e", "data/db", false)
	if got, _ := os.ReadFile(data); string(got) != "file" {
		t.Errorf("a file in a directory's place is %q", got)
	}
	if got := mountsIn(t, filepath.Join(root, "pods/u1/volume-subpaths")); len(got) != 4 {
		t.Errorf("%d binds, want 4: %v", len(got), got)
	}
	for range 2 {
		if err := v.TearDown(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
	if left := mountsIn(t, root); len(left) != 0 {
		t.Errorf("mounts left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(host, "made/here")); err != nil {
		t.Errorf("the host's data: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(root, "pods/u1")); len(left) != 0 {
		t.Errorf("left in the pod's directory: %v", left)
	}
}

func inodeMode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode()
}

// An error goes to the pod's owner, who does not learn the node's paths from it.
func TestSubPathErrorsHideTheNode(t *testing.T) {
	v, root, ok := onMounts(t, volume.Config{})
	if !ok {
		return
	}
	host := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sealed := filepath.Join(host, "sealed")
	if err := os.Mkdir(sealed, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { detachAll(t, host) })
	mountMust(t, "x", sealed, "tmpfs", unix.MS_RDONLY, "")
	pod := podWith("u1", hostPath("h", host, ""), hostPath("f", filepath.Join(host, "file"), ""), hostPath("ro", sealed, ""), hostPath("none", filepath.Join(host, "none"), ""))
	cases := []struct {
		vol, path, text string
		is              error
	}{
		{"h", "link/passwd", `prepare subPath "link/passwd" for container app: volume: the path leads out of the volume`, volume.ErrOutside},
		{"h", "file/x", "not a directory", unix.ENOTDIR},
		{"f", "x", "not a directory", unix.ENOTDIR},
		{"ro", "x", "create the directory, which is missing: read-only file system", unix.EROFS},
		{"none", "x", "directory is not there", nil},
	}
	for _, c := range cases {
		_, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: "app", Volume: c.vol, Path: c.path})
		if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %q", c.vol, err, c.text)
		}
		if err != nil && (strings.Contains(err.Error(), host) || strings.Contains(err.Error(), root)) {
			t.Errorf("%v names a path of the node", err)
		}
	}
	if at, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: "app", Volume: "ro", Path: "."}); err != nil || inode(t, at) != inode(t, sealed) {
		t.Errorf("all of a read-only volume: %v", err)
	}
}

// A bind of a shared mount shares what is mounted in it later. Taking the bind away
// must leave the original: detaching both is the trap of shared mounts.
func TestTheHostsMountsSurvive(t *testing.T) {
	v, root, ok := onMounts(t, volume.Config{})
	if !ok {
		return
	}
	host := t.TempDir()
	t.Cleanup(func() { detachAll(t, filepath.Dir(host)) })
	mountMust(t, "x", host, "tmpfs", 0, "")
	mountMust(t, "", host, "", unix.MS_SHARED, "")
	later := filepath.Join(host, "dir/later")
	if err := os.MkdirAll(later, 0o755); err != nil {
		t.Fatal(err)
	}
	pod := podWith("u1", hostPath("h", host, ""))
	at, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: "app", Volume: "h", Path: "dir"})
	if err != nil {
		t.Fatal(err)
	}
	mountMust(t, "y", later, "tmpfs", 0, "")
	if err := os.WriteFile(filepath.Join(later, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(at, "later/data")); err != nil {
		t.Errorf("mounts do not reach the subPath, so mountPropagation would not work: %v", err)
	}
	if err := v.TearDown(t.Context(), "u1"); err != nil || len(mountsIn(t, root)) != 0 {
		t.Errorf("TearDown = %v, mounts %v", err, mountsIn(t, root))
	}
	if _, err := os.Stat(filepath.Join(later, "data")); err != nil {
		t.Errorf("the host's own mount is gone: %v", err)
	}
}

// As TestNoSwapLeadsOut, all the way to the mount.
func TestNoSwapIsBound(t *testing.T) {
	v, _, ok := onMounts(t, volume.Config{})
	if !ok {
		return
	}
	host, outside := t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(host, "swap/secret"), 0o755),
		os.MkdirAll(filepath.Join(outside, "secret"), 0o755),
		os.Symlink(outside, filepath.Join(host, "evil")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	forbidden := inode(t, filepath.Join(outside, "secret"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, host+"/swap", unix.AT_FDCWD, host+"/evil", unix.RENAME_EXCHANGE)
			}
		}
	}()
	pod := podWith("u1", hostPath("h", host, ""))
	bound := 0
	for i := 0; i < 20000 && (i < 300 || bound == 0); i++ {
		at, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: "app", Index: i % 2, Volume: "h", Path: "swap/secret"})
		if errors.Is(err, volume.ErrOutside) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if bound++; inode(t, at) == forbidden {
			t.Fatal("a directory outside of the volume was bound")
		}
	}
	close(stop)
	<-done
	if bound == 0 {
		t.Error("nothing was bound")
	}
}

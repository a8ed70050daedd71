package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// aVolume makes a volume with things in it, and a neighbour that is out of bounds.
func aVolume(t *testing.T) (top, outside string) {
	t.Helper()
	parent := t.TempDir()
	top, outside = filepath.Join(parent, "volume"), filepath.Join(parent, "outside")
	link := func(target, name string) error { return os.Symlink(target, filepath.Join(top, name)) }
	for _, err := range []error{
		os.MkdirAll(filepath.Join(top, "a/b"), 0o755),
		os.MkdirAll(filepath.Join(outside, "secret"), 0o755),
		os.Chmod(top, 0o775|fs.ModeSetgid),
		os.WriteFile(filepath.Join(top, "file"), nil, 0o600),
		link("a/b", "in"),
		link("../file", "a/up"),
		link("../../outside", "out"),
		link("a/b/../../../outside", "roundabout"),
		link(outside, "absolute"),
		link("loop", "loop"),
		link("nowhere", "dangling"),
		link(".", "self"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return top, outside
}

func TestOpenInside(t *testing.T) {
	top, outside := aVolume(t)
	if err := unix.Mkfifo(filepath.Join(top, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		path, same string // same: which file it is, below top
		err        error
		text       string
	}{
		{path: "file", same: "file"},
		{path: "./a//b/", same: "a/b"},
		{path: ".", same: "."},
		{path: "in", same: "a/b"},
		{path: "self/self/in", same: "a/b"},
		{path: "a/up", same: "file"},
		{path: "pipe", same: "pipe"},
		{path: "new/x/y", same: "new/x/y"},
		{path: "in/new", same: "a/b/new"},
		{path: "out", err: ErrOutside},
		{path: "out/secret", err: ErrOutside},
		{path: "out/made", err: ErrOutside},
		{path: "roundabout", err: ErrOutside},
		{path: "absolute/secret", err: ErrOutside},
		{path: "loop", err: syscall.ELOOP},
		{path: "dangling", text: "leads to nothing"},
		{path: "dangling/x", text: "leads to nothing"},
		{path: "file/x", err: syscall.ENOTDIR},
		{path: strings.Repeat("d/", maxDepth), same: strings.Repeat("d/", maxDepth)},
		{path: strings.Repeat("d/", maxDepth+1), err: syscall.ENAMETOOLONG},
	}
	for _, c := range cases {
		f, err := openInside(t.Context(), top, c.path)
		if c.same == "" {
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v, want %v %s", c.path, err, c.err, c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		got, err := f.Stat()
		want, err2 := os.Stat(filepath.Join(top, c.same))
		f.Close()
		if err != nil || err2 != nil || !os.SameFile(got, want) {
			t.Errorf("%s is not %s: %v, %v", c.path, c.same, err, err2)
		}
	}
	for _, made := range []string{"new", "new/x", "new/x/y", "a/b/new"} {
		if fi, err := os.Stat(filepath.Join(top, made)); err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o775 {
			t.Errorf("%s: %v, %v; want the mode of the volume", made, fi.Mode(), err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("outside has %v", left)
	}
	if _, err := openInside(t.Context(), filepath.Join(top, "none"), "x"); err == nil || !strings.Contains(err.Error(), "directory is not there") {
		t.Errorf("without a volume: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openInside(ctx, top, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// TestNoSwapLeadsOut has a container that swaps a directory for a symlink to the
// outside as fast as it can (CVE-2017-1002101, CVE-2021-25741).
func TestNoSwapLeadsOut(t *testing.T) {
	top, outside := aVolume(t)
	forbidden := map[uint64]bool{}
	for _, dir := range []string{outside, filepath.Join(outside, "secret"), filepath.Dir(outside)} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		forbidden[st.Ino] = true
	}
	dir, link := filepath.Join(top, "swap"), filepath.Join(top, "evil")
	for _, err := range []error{os.MkdirAll(filepath.Join(dir, "secret"), 0o755), os.Symlink("../outside", link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	inside, refused := 0, 0
	for i := 0; i < 200000 && (i < 5000 || inside == 0 || refused == 0); i++ {
		path := "swap/secret"
		if i%2 == 1 {
			path = "swap/made"
		}
		f, err := openInside(t.Context(), top, path)
		if err != nil {
			refused++
			continue
		}
		inside++
		st, err := stat(int(f.Fd()))
		f.Close()
		if err != nil || forbidden[st.Ino] {
			t.Fatalf("%s led to inode %d, which is outside (%v)", path, st.Ino, err)
		}
	}
	close(stop)
	<-done
	if inside == 0 || refused == 0 {
		t.Errorf("%d were inside, %d refused: there was no race", inside, refused)
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("something was made outside: %v", left)
	}
	open, _ := os.ReadDir("/proc/self/fd")
	if len(open) > 100 {
		t.Errorf("%d files are open", len(open))
	}
}

func TestSubPathIsBoundOnce(t *testing.T) {
	v, k := newFake(t, Config{})
	pod := mounting(emptyDirOf("v", ""))
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	req := SubPath{Pod: pod, Container: "app", Index: 2, Volume: "v", Path: "data", ReadOnly: true}
	got, err := v.SubPath(t.Context(), req)
	if want := filepath.Join(v.pods, "u1/volume-subpaths/v/app/2"); err != nil || got != want {
		t.Fatalf("SubPath = %q, %v; want %q", got, err, want)
	}
	// On paper the bind shows nothing, so the next call finds another file there.
	if _, err := v.SubPath(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	k.bindError = syscall.EPERM
	if _, err := v.SubPath(t.Context(), req); !errors.Is(err, syscall.EPERM) {
		t.Errorf("SubPath = %v", err)
	}
	if _, err := os.Lstat(got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a failed bind left %s: %v", got, err)
	}
	want := "bind 2 true,unmount 2,bind 2 true,unmount 2,bind 2 true,unmount 2"
	if calls := strings.Join(k.calls, ","); calls != want {
		t.Errorf("calls = %s, want %s", calls, want)
	}
	if err := v.TearDown(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
}

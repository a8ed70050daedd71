package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

func newWriter(t testing.TB) (*writer, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &writer{
		dir: root, dirMode: 0o755, gid: -1, owns: os.Geteuid() == 0, log: logr.Discard(),
		mountedBelow: func(string) (bool, error) { return false, nil },
	}, dir
}

func text(pairs ...string) payload {
	p := payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = newFile([]byte(pairs[i+1]), 0o644)
	}
	return p
}

// visible is what a container finds in the volume: names it can open, and contents.
func visible(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		top := filepath.Join(dir, e.Name())
		real, err := filepath.EvalSymlinks(top)
		if err != nil {
			all[e.Name()] = "broken: " + err.Error()
			continue
		}
		err = filepath.WalkDir(real, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			all[e.Name()+strings.TrimPrefix(path, real)] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func contents(p payload) map[string]string {
	all := map[string]string{}
	for name, f := range p {
		all[name] = string(f.data)
	}
	return all
}

// own are the writer's own names in the volume.
func own(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "..*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// settled fails unless the volume is exactly p, with nothing left over.
func settled(t testing.TB, dir string, p payload) {
	t.Helper()
	if diff := cmp.Diff(contents(p), visible(t, dir)); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}
	if names := own(t, dir); len(names) != 2 {
		t.Errorf("the writer's names are %v, want ..data and one version", names)
	}
}

func write(t testing.TB, w *writer, p payload) bool {
	t.Helper()
	wrote, err := w.write(p)
	if err != nil {
		t.Fatal(err)
	}
	return wrote
}

func TestWriteOnlyWhatDiffers(t *testing.T) {
	w, dir := newWriter(t)
	if !write(t, w, text("a", "1", "b/c", "2", "empty", "")) {
		t.Error("the first write wrote nothing")
	}
	settled(t, dir, text("a", "1", "b/c", "2", "empty", ""))
	if write(t, w, text("a", "1", "b/c", "2", "empty", "")) {
		t.Error("the same again was written")
	}
	more := text("a", "1", "b/c", "2", "empty", "")
	readOnly := newFile([]byte("1"), 0o400)
	cases := []struct {
		name string
		next payload
	}{
		{"other contents of the same length", text("a", "x", "b/c", "2", "empty", "")},
		{"shorter contents", text("a", "", "b/c", "2", "empty", "")},
		{"a file less", text("a", "1", "empty", "")},
		{"a file more", text("a", "1", "empty", "", "new", "n")},
		{"a file becomes a directory", text("a/b", "1")},
		{"a directory becomes a file", text("a", "1")},
		{"another mode", payload{"a": readOnly}},
		{"nothing at all", payload{}},
		{"everything back", more},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !write(t, w, c.next) {
				t.Error("a difference was not written")
			}
			settled(t, dir, c.next)
			for name, f := range c.next {
				fi, err := os.Stat(filepath.Join(dir, name))
				if err != nil || fi.Mode() != f.mode {
					t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode(), err, f.mode)
				}
			}
			if write(t, w, c.next) {
				t.Error("the same again was written")
			}
		})
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	w, dir := newWriter(t)
	p := payload{"d/a": newFile([]byte("x"), 0o666), "b": newFile(nil, 0o400)}
	write(t, w, p)
	for name, want := range map[string]fs.FileMode{"..data/d/a": 0o666, "..data/b": 0o400, "..data/d": fs.ModeDir | 0o755, "..data/": fs.ModeDir | 0o755} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
	if target, _ := os.Readlink(filepath.Join(dir, "d")); target != "..data/d" {
		t.Errorf("d is a link to %q, want ..data/d", target)
	}
	if target, _ := os.Readlink(filepath.Join(dir, "..data")); !isVersion(target) {
		t.Errorf("..data is a link to %q", target)
	}
}

// cut is a volume whose power goes before the nth change.
type cut struct {
	tree
	left int
}

type powerCut struct{}

func (c *cut) change() {
	if c.left == 0 {
		panic(powerCut{})
	}
	c.left--
}

func (c *cut) Mkdir(name string, mode fs.FileMode) error { c.change(); return c.tree.Mkdir(name, mode) }
func (c *cut) Chmod(name string, mode fs.FileMode) error { c.change(); return c.tree.Chmod(name, mode) }
func (c *cut) Symlink(target, name string) error         { c.change(); return c.tree.Symlink(target, name) }
func (c *cut) Rename(from, to string) error              { c.change(); return c.tree.Rename(from, to) }
func (c *cut) Remove(name string) error                  { c.change(); return c.tree.Remove(name) }

// RemoveAll is cut off half-way.
func (c *cut) RemoveAll(name string) error {
	c.change()
	if entries, _ := fs.ReadDir(c.FS(), name); len(entries) > 0 {
		if err := c.tree.RemoveAll(name + "/" + entries[0].Name()); err != nil {
			return err
		}
	}
	c.change()
	return c.tree.RemoveAll(name)
}

func (c *cut) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if flag&os.O_CREATE == 0 {
		return c.tree.OpenFile(name, flag, mode)
	}
	c.change()
	f, err := c.tree.OpenFile(name, flag, mode)
	if c.left == 0 { // after the file is there, before it has contents
		f.Close()
		c.change()
	}
	return f, err
}

// TestACrashAtEveryStep cuts a write off before each of its changes. What
// containers see is the old set of files or the new one, at most with a name of the
// other missing, and the next write ends the work.
func TestACrashAtEveryStep(t *testing.T) {
	before := text("a", "old", "gone", "old", "d/x", "old")
	after := text("a", "new", "d/x", "new", "d/y", "new", "come", "new")
	steps := 0
	for n := 0; ; n++ {
		w, dir := newWriter(t)
		write(t, w, before)
		real := w.dir
		w.dir = &cut{tree: real, left: n}
		crashed := func() (crashed bool) {
			defer func() {
				if r := recover(); r != nil {
					if _, ok := r.(powerCut); !ok {
						panic(r)
					}
					crashed = true
				}
			}()
			write(t, w, after)
			return false
		}()
		seen := visible(t, dir)
		for name, value := range seen {
			if strings.HasPrefix(value, "broken") && (name == "gone" || name == "come") {
				delete(seen, name) // a link whose file is in the other version
			}
		}
		if seen["a"] != seen["d/x"] || seen["a"] != "old" && seen["a"] != "new" || (seen["d/y"] == "new") != (seen["a"] == "new") {
			t.Errorf("cut before change %d: a container sees %v", n, seen)
		}
		w.dir = real
		next := after
		if n%2 == 1 {
			next = before // the change was taken back meanwhile
		}
		write(t, w, next)
		settled(t, dir, next)
		if !crashed {
			break
		}
		steps++
	}
	if steps < 15 {
		t.Errorf("the write has only %d steps: the test does not see them", steps)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	w, dir := newWriter(t)
	old := text("a", "old")
	write(t, w, old)
	if _, err := w.write(text("b", "", "b/c", "")); err == nil || !strings.Contains(err.Error(), `path "b/c": "b" is a file already`) {
		t.Errorf("write = %v", err)
	}
	settled(t, dir, old)
	real := w.dir
	for _, refuse := range []string{"OpenFile", "Rename"} {
		w.dir = refusing{real, refuse}
		if _, err := w.write(text("a", "new")); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("write without %s = %v", refuse, err)
		}
		if got := visible(t, dir)["a"]; got != "old" {
			t.Errorf("after a failed write a is %q", got)
		}
		if versions := slices.DeleteFunc(own(t, dir), func(n string) bool { return !isVersion(filepath.Base(n)) }); len(versions) != 1 {
			t.Errorf("a failed write left %v", versions)
		}
	}
	w.dir = real
	write(t, w, old)
	settled(t, dir, old)
}

type refusing struct {
	tree
	what string
}

func (r refusing) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if r.what == "OpenFile" && flag&os.O_CREATE != 0 {
		return nil, fs.ErrPermission
	}
	return r.tree.OpenFile(name, flag, mode)
}

func (r refusing) Rename(from, to string) error {
	if r.what == "Rename" {
		return fs.ErrPermission
	}
	return r.tree.Rename(from, to)
}

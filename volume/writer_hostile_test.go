package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A privileged container can write into its volume. What it plants leads nowhere.
func TestPlantedLinksLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "a")
	p := text("a", "ours", "d/x", "ours")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]func(dir string){
		"..data leads outside": func(dir string) {
			must(os.Remove(dir + "/..data"))
			must(os.Symlink(outside, dir+"/..data"))
		},
		"..data leads upwards": func(dir string) {
			must(os.Remove(dir + "/..data"))
			must(os.Symlink("..2026_01_01_00_00_00.1/../..", dir+"/..data"))
		},
		"..data is a directory": func(dir string) {
			must(os.Remove(dir + "/..data"))
			must(os.Mkdir(dir+"/..data", 0o755))
		},
		"..data_tmp leads outside": func(dir string) { must(os.Symlink(outside, dir+"/..data_tmp")) },
		"a name leads outside": func(dir string) {
			must(os.Remove(dir + "/a"))
			must(os.Symlink(secret, dir+"/a"))
		},
		"a name is a file": func(dir string) {
			must(os.Remove(dir + "/a"))
			must(os.WriteFile(dir+"/a", nil, 0o600))
		},
		"a version leads outside": func(dir string) {
			version, err := os.Readlink(dir + "/..data")
			must(err)
			must(os.RemoveAll(dir + "/" + version))
			must(os.Symlink(outside, dir+"/"+version))
		},
		"a file of the version leads outside": func(dir string) {
			must(os.Remove(dir + "/..data/a"))
			must(os.Symlink(secret, dir+"/..data/a"))
		},
		"an old version has links": func(dir string) {
			must(os.Mkdir(dir+"/..2026_01_01_00_00_00.1", 0o755))
			must(os.Symlink(outside, dir+"/..2026_01_01_00_00_00.1/link"))
		},
	}
	for name, plant := range cases {
		t.Run(name, func(t *testing.T) {
			must(os.WriteFile(secret, []byte("theirs"), 0o600))
			w, dir := newWriter(t)
			write(t, w, p)
			plant(dir)
			write(t, w, text("a", "new", "d/x", "new"))
			write(t, w, p)
			if diff := cmp.Diff(contents(p), visible(t, dir)); diff != "" {
				t.Errorf("volume (-want +got):\n%s", diff)
			}
			entries, err := os.ReadDir(outside)
			must(err)
			if data, _ := os.ReadFile(secret); string(data) != "theirs" || len(entries) != 1 {
				t.Errorf("outside: %q, %v", data, entries)
			}
		})
	}
}

func TestWhatIsNotTheWritersStays(t *testing.T) {
	w, dir := newWriter(t)
	write(t, w, text("a", "1"))
	for _, name := range []string{"mine", "..mine"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "full/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, w, text("a", "2"))
	for _, name := range []string{"mine", "..mine", "full/x"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.write(text("full", "1")); err == nil || !strings.Contains(err.Error(), "make way for full") {
		t.Errorf("write over a full directory = %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "full/x")); err != nil {
		t.Error(err)
	}
}

func TestAVersionWithAMountInItStays(t *testing.T) {
	w, dir := newWriter(t)
	write(t, w, text("a", "1"))
	version, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	w.mountedBelow = func(name string) (bool, error) {
		if name != version {
			t.Errorf("asked for mounts in %s, want %s", name, version)
		}
		return true, nil
	}
	if _, err := w.write(text("a", "2")); !errors.Is(err, ErrMounted) {
		t.Errorf("write = %v, want ErrMounted", err)
	}
	if _, err := os.Stat(filepath.Join(dir, version, "a")); err != nil {
		t.Errorf("the version with the mount: %v", err)
	}
	if got := visible(t, dir)["a"]; got != "2" {
		t.Errorf("a is %q: the new contents count all the same", got)
	}
}

// A reader that opens ..data once sees files of one version, however often they
// are replaced.
func TestReadersSeeOneSet(t *testing.T) {
	w, dir := newWriter(t)
	set := func(i int) payload { s := strings.Repeat("x", i%7); return text("a", s, "b", s) }
	write(t, w, set(0))
	var stop atomic.Bool
	done := make(chan int)
	go func() {
		seen := 0
		for !stop.Load() {
			d, err := os.OpenRoot(filepath.Join(dir, "..data"))
			if err != nil {
				if _, err := os.Lstat(filepath.Join(dir, "..data")); err != nil {
					t.Errorf("..data is not there: %v", err)
				}
				continue // the version was removed while we opened it
			}
			a, err1 := d.ReadFile("a")
			b, err2 := d.ReadFile("b")
			d.Close()
			if err1 != nil || err2 != nil {
				continue // the version was removed while we read
			}
			if string(a) != string(b) {
				t.Errorf("one look saw %q and %q", a, b)
			}
			seen++
		}
		done <- seen
	}()
	for i := 1; i < 400; i++ {
		write(t, w, set(i))
	}
	stop.Store(true)
	if seen := <-done; seen == 0 {
		t.Error("the reader never read")
	}
}

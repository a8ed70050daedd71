package podsource_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// reader is a running file source and what it told.
type reader struct {
	t     *testing.T
	dir   string
	files *podsource.Files
	mu    struct {
		sync.Mutex
		sets  [][]*corev1.Pod
		lines []string
		reads int
	}
}

// read starts a source on path. RescanEvery is an hour where notifications are
// under test, so that nothing else can be the reason for a look.
func read(t *testing.T, path string, every time.Duration) *reader {
	t.Helper()
	r := &reader{t: t, dir: path}
	var err error
	r.files, err = podsource.NewFiles(podsource.FilesConfig{
		Path: path, NodeName: "n1", RescanEvery: every,
		Log: funcr.New(func(_, args string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mu.lines = append(r.mu.lines, args)
		}, funcr.Options{}),
		Hooks: podsource.FilesHooks{Scanned: func(_ time.Duration, _, read int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mu.reads += read
		}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.files.Run(ctx, func(pods []*corev1.Pod) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mu.sets = append(r.mu.sets, pods)
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

// state is the names and images of the last set, and how many there were.
func (r *reader) state() (pods string, sets int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	if n := len(r.mu.sets); n > 0 {
		for _, p := range r.mu.sets[n-1] {
			all = append(all, strings.TrimSuffix(p.Name, "-n1")+"="+p.Spec.Containers[0].Image)
		}
	}
	return strings.Join(all, " "), len(r.mu.sets)
}

func (r *reader) logged(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.mu.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (r *reader) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.reads
}

// want waits until the last set is the one wanted.
func (r *reader) want(pods string) {
	r.t.Helper()
	eventually(r.t, func() bool { got, sets := r.state(); return sets > 0 && got == pods },
		func() any { got, sets := r.state(); return map[string]any{"want": pods, "got": got, "sets": sets} })
}

func (r *reader) wantErrors(texts ...string) {
	r.t.Helper()
	eventually(r.t, func() bool {
		all := r.files.Errors()
		if len(all) != len(texts) {
			return false
		}
		for i := range texts {
			if !strings.Contains(all[i].Error(), texts[i]) {
				return false
			}
		}
		return true
	}, func() any { return r.files.Errors() })
}

func eventually(t *testing.T, ok func() bool, why func() any) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came: %+v", why())
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

func image(name, image string) string {
	return manifest(name, "containers: [{name: app, image: '"+image+"'}]")
}

func TestFilesFollowTheDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", image("b", "x:1"))
	r := read(t, dir, time.Hour)
	r.want("b=x:1")
	write(t, dir, "a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"app","image":"x:1"}]}}`)
	r.want("a=x:1 b=x:1")
	write(t, dir, "b.yaml", image("b", "x:2")+"---\n"+image("c", "x:1"))
	r.want("a=x:1 b=x:2 c=x:1")
	require.NoError(t, os.Rename(filepath.Join(dir, "a.json"), filepath.Join(dir, "z")))
	r.want("b=x:2 c=x:1 a=x:1")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.want("a=x:1")
	require.NoError(t, os.Remove(filepath.Join(dir, "z")))
	r.want("")
	require.Empty(t, r.files.Errors())
}

func TestAnEmptyDirectoryIsAnEmptySet(t *testing.T) {
	r := read(t, t.TempDir(), time.Hour)
	r.want("")
	_, sets := r.state()
	require.Equal(t, 1, sets)
}

func TestAMissingPathIsAnEmptySetUntilItAppears(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc", "manifests")
	r := read(t, dir, time.Hour)
	r.want("")
	r.wantErrors("look at manifests: stat " + dir)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write(t, dir, "a.yaml", image("a", "x:1"))
	r.want("a=x:1")
	r.wantErrors()
	require.Equal(t, 1, r.logged("manifests can't be listed"))

	require.NoError(t, os.RemoveAll(dir))
	r.want("")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	write(t, dir, "b.yaml", image("b", "x:1"))
	r.want("b=x:1")
}

func TestADirectorySwappedByTwoRenamesLosesNoPod(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, dir, "a.yaml", image("a", "x:1"))
	r := read(t, dir, 10*time.Millisecond)
	r.want("a=x:1")
	require.NoError(t, os.Rename(dir, dir+".old"))
	r.wantErrors("look at manifests")
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, dir, "a.yaml", image("a", "x:1"))
	r.wantErrors()
	write(t, dir, "b.yaml", image("b", "x:1"))
	r.want("a=x:1 b=x:1")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, set := range r.mu.sets {
		require.NotEmpty(t, set, "a set without the pods went out while the directory was away")
	}
}

func TestOneFileIsASourceToo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "only.yaml~", image("a", "x:1"))
	write(t, dir, "other.yaml", image("b", "x:1"))
	r := read(t, filepath.Join(dir, "only.yaml~"), time.Hour)
	r.want("a=x:1")
	write(t, dir, "only.yaml~", image("a", "x:2"))
	r.want("a=x:2")
	write(t, dir, "new", image("a", "x:3"))
	require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "only.yaml~")))
	r.want("a=x:3")
}

func TestABadFileKeepsItsPodsAndHidesNoOthers(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", image("a", "x:1")+"---\n"+image("a2", "x:1"))
	write(t, dir, "b.yaml", image("b", "x:1"))
	r := read(t, dir, time.Hour)
	r.want("a=x:1 a2=x:1 b=x:1")

	write(t, dir, "a.yaml", image("a", "x:2")+"---\n"+image("a2", ""))
	path := filepath.Join(dir, "a.yaml")
	r.wantErrors(path + " document 2: spec.containers[0].image: Required value")
	write(t, dir, "b.yaml", image("b", "x:2"))
	write(t, dir, "c.yaml", image("c", "x:1"))
	r.want("a=x:1 a2=x:1 b=x:2 c=x:1")

	require.NoError(t, os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)))
	write(t, dir, "c.yaml", image("c", "x:2"))
	r.want("a=x:1 a2=x:1 b=x:2 c=x:2")
	require.Equal(t, 1, r.logged("document 2: spec.containers[0].image"), "once per content")

	write(t, dir, "a.yaml", image("a", "x:3"))
	r.want("a=x:3 b=x:2 c=x:2")
	r.wantErrors()

	write(t, dir, "a.yaml", "")
	r.wantErrors("a.yaml: no pod in it; remove it to remove its pods")
	require.NoError(t, os.Remove(path))
	r.want("b=x:2 c=x:2")
	r.wantErrors()
}

func TestWhatEditorsLeaveBehindIsNoManifest(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".hidden.yaml", ".web.yaml.swp", "web.yaml~", "#web.yaml#", ".#web.yaml", "web.yaml.bak", "web.yaml.orig", "web.tmp", "web.swx", "4913"} {
		write(t, dir, name, image("no", "x:1"))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	write(t, filepath.Join(dir, "sub"), "no.yaml", image("no", "x:1"))
	write(t, dir, "web", image("one", "x:1"))
	r := read(t, dir, 10*time.Millisecond)
	r.want("one=x:1")
	write(t, dir, "web2", image("two", "x:1"))
	r.want("one=x:1 two=x:1")
	require.Equal(t, 1, r.logged("sub-directories"))
	require.Empty(t, r.files.Errors())
}

func TestLinksOfAConfigMapVolumeAreSwapped(t *testing.T) {
	dir := t.TempDir()
	version := func(name, img string, files ...string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		for _, f := range files {
			write(t, filepath.Join(dir, name), f, image(strings.TrimSuffix(f, ".yaml"), img))
		}
		require.NoError(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("..1", "x:1", "a.yaml", "b.yaml")
	for _, f := range []string{"a.yaml", "b.yaml"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", f), filepath.Join(dir, f)))
	}
	r := read(t, dir, time.Hour)
	r.want("a=x:1 b=x:1")
	version("..2", "x:2", "a.yaml")
	// The link's target is gone: that is no word yet that b is.
	r.want("a=x:2 b=x:1")
	r.wantErrors("b.yaml")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.want("a=x:2")
	r.wantErrors()
}

func TestADirectoryBehindASwappedLinkIsFollowed(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // elsewhere the parent is not watched; the slow look finds it
	}
	base := t.TempDir()
	for _, v := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, v), 0o755))
		write(t, filepath.Join(base, v), "a.yaml", image("a", "x:"+v))
	}
	link := filepath.Join(base, "manifests")
	require.NoError(t, os.Symlink("1", link))
	r := read(t, link, time.Hour)
	r.want("a=x:1")
	require.NoError(t, os.Symlink("2", link+".new"))
	require.NoError(t, os.Rename(link+".new", link))
	r.want("a=x:2")
	write(t, filepath.Join(base, "2"), "a.yaml", image("a", "x:3"))
	r.want("a=x:3")
	require.NoError(t, os.RemoveAll(filepath.Join(base, "1")))
	write(t, filepath.Join(base, "2"), "b.yaml", image("b", "x:3"))
	r.want("a=x:3 b=x:3")
}

func TestWhatIsNoRegularFileNeverBlocks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644))
	require.NoError(t, os.Symlink(filepath.Join(dir, "pipe.yaml"), filepath.Join(dir, "linked.yaml")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero.yaml")))
	require.NoError(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	write(t, dir, "web.yaml", image("web", "x:1"))
	r := read(t, dir, 10*time.Millisecond)
	r.want("web=x:1")
	r.wantErrors("linked.yaml: not a regular file", "loop.yaml", "pipe.yaml: not a regular file", "zero.yaml: not a regular file")

	// A manifest that turns into a pipe keeps its pods like any bad one.
	require.NoError(t, os.Remove(filepath.Join(dir, "web.yaml")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "web.yaml"), 0o644))
	r.wantErrors("linked.yaml", "loop.yaml", "pipe.yaml", "web.yaml: not a regular file", "zero.yaml")
	r.want("web=x:1")
}

func TestAManifestHasABound(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "big.yaml", "# "+strings.Repeat("x", 10<<20)+"\n"+image("a", "x:1"))
	r := read(t, dir, time.Hour)
	r.want("")
	r.wantErrors("big.yaml: larger than 10485760 bytes")
}

func TestAFileInTheMakingIsNotRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // elsewhere nobody can tell
	}
	dir := t.TempDir()
	write(t, dir, "a.yaml", image("a", "x:1"))
	r := read(t, dir, 5*time.Millisecond)
	r.want("a=x:1")
	f, err := os.Create(filepath.Join(dir, "b.yaml"))
	require.NoError(t, err)
	// The first half is a valid pod, with another image than was meant.
	_, err = f.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec:\n  containers:\n  - name: app\n    image: x:1")
	require.NoError(t, err)
	write(t, dir, "a.yaml", image("a", "x:2"))
	r.want("a=x:2")
	_, err = f.WriteString("7\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	r.want("a=x:2 b=x:17")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, set := range r.mu.sets {
		for _, p := range set {
			if p.Name == "b-n1" {
				require.Equal(t, "x:17", p.Spec.Containers[0].Image)
			}
		}
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, dir, name, image(name, "x:1"))
	}
	r := read(t, dir, time.Millisecond)
	r.want("a=x:1 b=x:1 c=x:1")
	// Files that changed just now are read until their times can be trusted.
	var reads int
	var since time.Time
	eventually(t, func() bool {
		if n := r.reads(); n != reads {
			reads, since = n, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	}, func() any { return r.reads() })
	_, sets := r.state()
	require.Equal(t, 1, sets)
	write(t, dir, "b", image("b", "x:2"))
	r.want("a=x:1 b=x:2 c=x:1")
}

func TestNewFilesRefusesWhatItCantUse(t *testing.T) {
	for _, cfg := range []podsource.FilesConfig{{}, {Path: "/m"}, {NodeName: "n"}} {
		_, err := podsource.NewFiles(cfg)
		require.EqualError(t, err, "podsource: FilesConfig needs Path and NodeName")
	}
}

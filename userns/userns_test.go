package userns_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/userns"
)

// three pods fit into this range.
func threePods(dir string) userns.Config {
	return userns.Config{RootDir: dir, First: 1 << 20, Length: 3 << 16, MaxPods: 3}
}

func open(t *testing.T, cfg userns.Config) *userns.Allocator {
	t.Helper()
	a, err := userns.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustMap(t *testing.T, a *userns.Allocator, uid observed.UID) userns.Mapping {
	t.Helper()
	m, err := a.Map(uid)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func hostIDs(n uint32) userns.Mapping { return userns.Mapping{HostID: n, Length: 1 << 16} }

func TestNewChecksTheRange(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		cfg  userns.Config
		want string // part of the error; "" for none
	}{
		"defaults":                      {userns.Config{}, ""},
		"a relative root":               {userns.Config{RootDir: "x"}, `"x", want an absolute path`},
		"larger pods":                   {userns.Config{IDsPerPod: 1 << 17}, ""},
		"IDs per pod":                   {userns.Config{IDsPerPod: 1000}, "1000 IDs per pod are not a multiple of 65536"},
		"first":                         {userns.Config{First: 1 << 16, IDsPerPod: 1 << 17}, "the first ID for pods, 65536, is not a multiple of the 131072"},
		"length":                        {userns.Config{Length: 1<<16 + 1}, "the 65537 IDs for pods are not a multiple"},
		"beyond the last ID":            {userns.Config{First: math.MaxUint32 - 1<<16 + 1, Length: 2 << 16}, "are more than there are"},
		"too few":                       {userns.Config{Length: 109 << 16}, "are enough for 109 pods with 65536 each, and the node takes 110; lower maxPods"},
		"enough":                        {userns.Config{Length: 110 << 16}, ""},
		"the last slot can't be mapped": {userns.Config{First: math.MaxUint32 - 2<<16 + 1, Length: 2 << 16, MaxPods: 2}, "are enough for 1 pods"},
	} {
		if tt.cfg.RootDir == "" {
			tt.cfg.RootDir = dir
		}
		_, err := userns.New(tt.cfg)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func TestMap(t *testing.T) {
	dir := t.TempDir()
	a := open(t, threePods(dir))
	for i, uid := range []observed.UID{"a", "b", "c"} {
		if got, want := mustMap(t, a, uid), hostIDs(uint32(1<<20+i<<16)); got != want {
			t.Errorf("mapping of %s = %+v, want the lowest free one %+v", uid, got, want)
		}
	}
	if _, err := a.Map("d"); !errors.Is(err, userns.ErrExhausted) || !strings.Contains(err.Error(), "pod d") {
		t.Errorf("a fourth pod: %v, want ErrExhausted", err)
	}
	if got := mustMap(t, a, "b"); got != hostIDs(1<<20+1<<16) {
		t.Errorf("asked again, pod b has %+v", got)
	}
	for range 2 { // the second time nothing is left to do
		if err := a.Release("b"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pods/b/userns")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file of a released pod: %v, want none", err)
	}
	if got := mustMap(t, a, "d"); got != hostIDs(1<<20+1<<16) {
		t.Errorf("mapping of d = %+v, want the released one", got)
	}
}

func TestTheFileIsTheKubelets(t *testing.T) {
	dir := t.TempDir()
	mustMap(t, open(t, threePods(dir)), "a")
	got, err := os.ReadFile(filepath.Join(dir, "pods/a/userns"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"uidMappings":[{"hostId":1048576,"containerId":0,"length":65536}],"gidMappings":[{"hostId":1048576,"containerId":0,"length":65536}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "pods/a"))
	if err != nil || len(entries) != 1 {
		t.Errorf("the pod's directory has %v, %v", entries, err)
	}
}

func TestMappingsSurviveARestart(t *testing.T) {
	cfg := threePods(t.TempDir())
	before := open(t, cfg)
	for _, uid := range []observed.UID{"a", "b"} {
		mustMap(t, before, uid)
	}
	if err := before.Release("a"); err != nil {
		t.Fatal(err)
	}

	after := open(t, cfg)
	for range 2 { // a second look finds the same
		if err := after.Recover(); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustMap(t, after, "c"); got != hostIDs(1<<20) {
		t.Errorf("new pod c has %+v, want the free IDs below pod b's", got)
	}
	if got := mustMap(t, after, "d"); got != hostIDs(1<<20+2<<16) {
		t.Errorf("new pod d has %+v, want the free IDs above pod b's", got)
	}
	// Without Recover, too, a pod keeps what its file says.
	if got := mustMap(t, open(t, cfg), "b"); got != hostIDs(1<<20+1<<16) {
		t.Errorf("pod b has %+v after the restart", got)
	}
}

func TestRecoverWithoutPods(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, threePods(dir)).Recover(); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pods/a/volumes"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pods/stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := open(t, threePods(dir))
	if err := a.Recover(); err != nil {
		t.Errorf("with a pod that has no mapping: %v", err)
	}
	if got := mustMap(t, a, "b"); got != hostIDs(1<<20) {
		t.Errorf("first mapping = %+v", got)
	}
}

func TestBadRecords(t *testing.T) {
	one := func(host, container, length uint32) string {
		return fmt.Sprintf(`[{"hostId":%d,"containerId":%d,"length":%d}]`, host, container, length)
	}
	both := func(m string) string { return `{"uidMappings":` + m + `,"gidMappings":` + m + `}` }
	for name, tt := range map[string]struct{ content, want string }{
		"empty":                  {"", "unexpected end of JSON"},
		"cut":                    {both(one(1<<20, 0, 1<<16))[:40], "unexpected end of JSON"},
		"no mappings":            {"{}", "0 mappings of users and 0 of groups"},
		"two mappings":           {`{"uidMappings":[{},{}],"gidMappings":[{},{}]}`, "2 mappings of users"},
		"different mappings":     {`{"uidMappings":` + one(1<<20, 0, 1<<16) + `,"gidMappings":` + one(1<<20+1<<16, 0, 1<<16) + `}`, "mapped differently"},
		"not root":               {both(one(1<<20, 1, 1<<16)), "user 0 is not mapped"},
		"another length":         {both(one(1<<20, 0, 2<<16)), "it has 131072 IDs, and each pod gets 65536"},
		"the host's own":         {both(one(0, 0, 1<<16)), "are outside of the 196608 from 1048576 on"},
		"beyond the range":       {both(one(1<<20+3<<16, 0, 1<<16)), "are outside of"},
		"beyond the last ID":     {both(one(math.MaxUint32-1<<16+1, 0, 1<<16)), "are outside of"},
		"between two slots":      {both(one(1<<20+1, 0, 1<<16)), "are parts of two pods' ranges"},
		"a negative ID":          {strings.ReplaceAll(both(one(1<<20, 0, 1<<16)), "1048576", "-1"), "cannot unmarshal"},
		"large":                  {strings.Repeat(" ", 1<<17), "it is no small file"},
		"IDs that are another's": {both(one(1<<20, 0, 1<<16)), "IDs from 1048576 on are another pod's"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustMap(t, open(t, threePods(dir)), "a")
			path := filepath.Join(dir, "pods/b/userns")
			if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			a := open(t, threePods(dir))
			err := a.Recover()
			if !errors.Is(err, userns.ErrRecord) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "pod b from "+path) {
				t.Errorf("Recover: %v\nwant %q", err, tt.want)
			}
			if _, err := a.Map("b"); !errors.Is(err, userns.ErrRecord) {
				t.Errorf("Map of the pod: %v, want ErrRecord: a container may be running", err)
			}
			if got := mustMap(t, a, "a"); got != hostIDs(1<<20) {
				t.Errorf("the other pod has %+v", got)
			}
			if _, err := a.Map("c"); !errors.Is(err, userns.ErrRecord) || !strings.Contains(err.Error(), path) {
				t.Errorf("Map of a new pod: %v, want ErrRecord: the IDs may be those that b runs with", err)
			}
			// Once nothing of it runs, the pod is as any other.
			if err := a.Release("b"); err != nil {
				t.Fatal(err)
			}
			if got := mustMap(t, a, "b"); got != hostIDs(1<<20+1<<16) {
				t.Errorf("after its release the pod has %+v", got)
			}
			mustMap(t, a, "c")
		})
	}
}

func TestABadRecordThatIsRemovedByHandHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pods/b/userns")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := open(t, threePods(dir))
	if err := a.Recover(); err == nil {
		t.Fatal("an empty file is fine")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustMap(t, a, "a")
}

func TestUIDsThatLeadElsewhere(t *testing.T) {
	a := open(t, threePods(t.TempDir()))
	for _, uid := range []observed.UID{"", ".", "..", "../x", "/x", "a/b", "a/"} {
		if _, err := a.Map(uid); err == nil {
			t.Errorf("Map(%q) gave a mapping", uid)
		}
		if err := a.Release(uid); err == nil {
			t.Errorf("Release(%q) is fine", uid)
		}
	}
}

func TestAFailedWriteTakesNoIDs(t *testing.T) {
	dir := t.TempDir()
	a := open(t, threePods(dir))
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pods/a"), nil, 0o600); err != nil { // where the directory should be
		t.Fatal(err)
	}
	if m, err := a.Map("a"); err == nil {
		t.Errorf("Map = %+v without a file", m)
	}
	if got := mustMap(t, a, "b"); got != hostIDs(1<<20) {
		t.Errorf("the next pod has %+v", got)
	}
}

func TestACrashDuringTheWrite(t *testing.T) {
	dir := t.TempDir()
	half := filepath.Join(dir, "pods/a/userns.tmp")
	if err := os.MkdirAll(filepath.Dir(half), 0o750); err != nil {
		t.Fatal(err)
	}
	a := open(t, threePods(dir))
	for _, step := range []func() error{
		func() error { return a.Release("a") }, // the pod had gone when the agent came back
		func() error { _, err := a.Map("a"); return err },
	} {
		if err := os.WriteFile(half, []byte(`{"uidMap`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Recover(), step()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("half a file is still there: %v", err)
		}
	}
}

// TestNoTwoPodsShareAnID does what pods do, at random and at once, with restarts.
func TestNoTwoPodsShareAnID(t *testing.T) {
	seed := rand.Uint64()
	cfg := userns.Config{RootDir: t.TempDir(), Length: 12 << 16, MaxPods: 12}
	for round := range 3 {
		a := open(t, cfg)
		if err := a.Recover(); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for p := range 12 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(round*100+p)))
				uid := observed.UID(fmt.Sprintf("pod-%d", p))
				for range 10 {
					var err error
					if r.IntN(3) == 0 {
						err = a.Release(uid)
					} else {
						_, err = a.Map(uid)
					}
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			})
		}
		wg.Wait()
		owner := map[uint32]int{}
		for p := range 12 {
			m := mustMap(t, a, observed.UID(fmt.Sprintf("pod-%d", p)))
			if other, ok := owner[m.HostID]; ok {
				t.Errorf("seed %d: pods %d and %d have the IDs from %d on", seed, p, other, m.HostID)
			}
			owner[m.HostID] = p
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":1048576,"containerId":0,"length":65536}],"gidMappings":[{"hostId":1048576,"containerId":0,"length":65536}]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := userns.DecodeRecord(data)
		if err != nil {
			if !errors.Is(err, userns.ErrRecord) {
				t.Errorf("%q: %v does not wrap ErrRecord", data, err)
			}
			return
		}
		if again, err := userns.DecodeRecord(userns.EncodeMapping(m)); err != nil || again != m {
			t.Errorf("%+v comes back as %+v, %v", m, again, err)
		}
	})
}

func BenchmarkMap(b *testing.B) {
	a, err := userns.New(userns.Config{RootDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := a.Map("a"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := a.Map("a"); err != nil {
			b.Fatal(err)
		}
	}
}

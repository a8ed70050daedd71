package containergc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/containergc"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime holds pods and removes from them.
type fakeRuntime struct {
	mu       sync.Mutex
	pods     map[observed.UID]observed.Pod
	listErr  error
	fail     map[string]error
	hang     map[string]bool
	calls    []string
	lists    int
	slow     bool // in a bubble
	underway int
	most     int
}

func newRuntime(pods ...observed.Pod) *fakeRuntime {
	rt := &fakeRuntime{pods: map[observed.UID]observed.Pod{}, fail: map[string]error{}, hang: map[string]bool{}}
	for _, p := range pods {
		rt.pods[p.UID] = p
	}
	return rt
}

func (rt *fakeRuntime) AllPods(context.Context) ([]observed.Pod, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.lists++
	if rt.listErr != nil {
		return nil, rt.listErr
	}
	var list []observed.Pod
	for _, p := range rt.pods {
		list = append(list, p)
	}
	return list, nil
}

func (rt *fakeRuntime) RemoveContainer(ctx context.Context, c observed.Container) error {
	return rt.remove(ctx, string(c.ID), func(p *observed.Pod) {
		p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(o observed.Container) bool { return o.ID == c.ID })
	})
}

func (rt *fakeRuntime) RemoveSandbox(ctx context.Context, id observed.SandboxID) error {
	return rt.remove(ctx, string(id), func(p *observed.Pod) {
		p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(o observed.Sandbox) bool { return o.ID == id })
	})
}

func (rt *fakeRuntime) remove(ctx context.Context, id string, do func(*observed.Pod)) error {
	rt.mu.Lock()
	hang, err := rt.hang[id], rt.fail[id]
	rt.calls = append(rt.calls, id)
	rt.underway++
	rt.most = max(rt.most, rt.underway)
	rt.mu.Unlock()
	defer func() {
		rt.mu.Lock()
		rt.underway--
		rt.mu.Unlock()
	}()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if rt.slow {
		time.Sleep(time.Millisecond) // lets others begin
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	uid := observed.UID(strings.SplitN(id, "/", 2)[0])
	p := rt.pods[uid]
	do(&p)
	rt.pods[uid] = p
	return nil
}

func (rt *fakeRuntime) listed() int {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.lists
}

func (rt *fakeRuntime) called() string {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	list := slices.Clone(rt.calls)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// inspecting is a runtime that can look at one pod.
type inspecting struct{ *fakeRuntime }

func (rt inspecting) InspectPod(_ context.Context, last observed.Pod) (observed.Pod, error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	p := rt.pods[last.UID]
	p.UID = last.UID
	return p, nil
}

// stopping is a runtime that can stop a container.
type stopping struct {
	*fakeRuntime
	err     error
	stopped *[]string
}

func (rt stopping) StopContainer(_ context.Context, c observed.Container) error {
	*rt.stopped = append(*rt.stopped, string(c.ID))
	return rt.err
}

func collector(t *testing.T, rt *fakeRuntime, change func(*containergc.Config)) *containergc.Collector {
	t.Helper()
	cfg := containergc.Config{Lister: rt, Remover: rt, Removable: func(uid observed.UID) bool { return strings.HasPrefix(string(uid), "gone") }}
	if change != nil {
		change(&cfg)
	}
	c, err := containergc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// running calls fn in a bubble in which the collector runs.
func running(t *testing.T, rt *fakeRuntime, change func(*containergc.Config), fn func(t *testing.T, c *containergc.Collector)) {
	t.Helper()
	rt.slow = true
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, rt, change)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		fn(t, c)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil after cancel", err)
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	rt := newRuntime()
	for name, cfg := range map[string]containergc.Config{
		"no lister":     {Remover: rt},
		"no remover":    {Lister: rt},
		"negative age":  {Lister: rt, Remover: rt, Policy: containergc.Policy{MinAge: -1}},
		"negative pace": {Lister: rt, Remover: rt, Parallel: -1},
		"relative path": {Lister: rt, Remover: rt, LogDir: "log"},
	} {
		if _, err := containergc.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPassesComeAtTheirTime(t *testing.T) {
	rt := newRuntime(pod("a", "s0 ready", "app1 exited", "app2 exited", "app3 exited", "app4 running"))
	var passes []containergc.Pass
	running(t, rt, func(cfg *containergc.Config) {
		cfg.Hooks.Passed = func(p containergc.Pass) { passes = append(passes, p) }
	}, func(t *testing.T, _ *containergc.Collector) {
		time.Sleep(59 * time.Second)
		if rt.listed() != 0 {
			t.Errorf("%d lists in the first minute", rt.listed())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := rt.called(), "a/app1 a/app2"; got != want {
			t.Errorf("removed %s, want %s", got, want)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
	if len(passes) != 2 || passes[0].Containers != 2 || passes[1].Containers != 0 || passes[0].Err != nil {
		t.Errorf("passes = %+v", passes)
	}
}

func TestRemovalsArePaced(t *testing.T) {
	var words []string
	for i := range 10 {
		words = append(words, fmt.Sprintf("app%d exited", i))
	}
	rt := newRuntime(pod("gone", words...))
	running(t, rt, nil, func(t *testing.T, c *containergc.Collector) {
		if err := c.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if rt.most != 2 || len(rt.calls) != 10 {
		t.Errorf("%d removals, at most %d at a time; want 10 and 2", len(rt.calls), rt.most)
	}
}

func TestAHangingRemovalHoldsUpOnlyItself(t *testing.T) {
	rt := newRuntime(
		pod("gone", "s0 dead", "app1 exited", "app2 exited", "app3 exited", "app4 exited"),
		pod("gone-too", "s0 dead", "app5 exited"))
	rt.hang["gone/app1"] = true
	running(t, rt, nil, func(t *testing.T, c *containergc.Collector) {
		begin := time.Now()
		err := c.Collect(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "remove container app of pod default/gone") {
			t.Errorf("error = %v", err)
		}
		if took := time.Since(begin); took < 2*time.Minute || took > 121*time.Second {
			t.Errorf("took %v, want the deadline of one removal", took)
		}
		// The regular pass has waited its turn, and may be trying app1 again by now.
		got := slices.Compact(strings.Fields(rt.called()))
		if want := strings.Fields("gone-too/app5 gone-too/s0 gone/app1 gone/app2 gone/app3 gone/app4"); !slices.Equal(got, want) {
			t.Errorf("removed %s\nwant %s: the sandbox with the stuck container stays", got, want)
		}
	})
}

func TestAFailedListConcludesNothing(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "default_x_gone")
	if err := os.Mkdir(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	rt := newRuntime()
	rt.listErr = errors.New("answer too large")
	c := collector(t, rt, func(cfg *containergc.Config) { cfg.LogDir = dir })
	if err := c.Collect(t.Context()); !errors.Is(err, rt.listErr) {
		t.Errorf("error = %v", err)
	}
	if _, err := os.Stat(logs); err != nil {
		t.Errorf("logs removed after a failed list: %v", err)
	}
}

func TestManyErrorsStayReadable(t *testing.T) {
	var words []string
	rt := newRuntime()
	for i := range 10 {
		words = append(words, fmt.Sprintf("a%d exited", i), fmt.Sprintf("b%d exited", i))
		rt.fail[fmt.Sprintf("gone/a%d", i)] = errors.New("no")
		rt.fail[fmt.Sprintf("gone/b%d", i)] = errors.New("no")
	}
	rt.pods["gone"] = pod("gone", words...)
	c := collector(t, rt, nil)
	err := c.Collect(t.Context())
	if err == nil || strings.Count(err.Error(), "\n") > 10 || !strings.Contains(err.Error(), "and 12 more") {
		t.Errorf("error = %v", err)
	}
}

func TestUnknownContainersAreStoppedFirst(t *testing.T) {
	rt := newRuntime(pod("gone", "app1 unknown", "app2 exited"))
	var stopped []string
	c := collector(t, rt, func(cfg *containergc.Config) { cfg.Remover = stopping{rt, nil, &stopped} })
	if err := c.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if got := strings.Join(stopped, " "); got != "gone/app1" || rt.called() != "gone/app1 gone/app2" {
		t.Errorf("stopped %s, removed %s", got, rt.called())
	}

	rt = newRuntime(pod("gone", "app1 unknown", "app2 exited"))
	c = collector(t, rt, func(cfg *containergc.Config) { cfg.Remover = stopping{rt, errors.New("hung"), &stopped} })
	if err := c.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown state") {
		t.Errorf("error = %v", err)
	}
	if rt.called() != "gone/app2" {
		t.Errorf("removed %s: what could not be stopped stays", rt.called())
	}
}

func TestPodDoneRemovesEverythingAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"default_gone_gone", "default_gone_gone-not", "default_stays_stays"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "app"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, inspects := range []bool{false, true} {
		t.Run(fmt.Sprint("inspects ", inspects), func(t *testing.T) {
			rt := newRuntime(
				pod("gone", "s0 dead", "s1 dead", "app1 exited", "app2 exited s1", "b1 created"),
				pod("stays", "s0 ready", "app1 exited"))
			running(t, rt, func(cfg *containergc.Config) {
				cfg.LogDir = dir
				if inspects {
					cfg.Lister = inspecting{rt}
				}
			}, func(t *testing.T, c *containergc.Collector) {
				c.PodDone("gone")
				c.PodDone("stays") // not removable: nothing happens
				time.Sleep(100 * time.Millisecond)
				if got, want := rt.called(), "gone/app1 gone/app2 gone/b1 gone/s0 gone/s1"; got != want {
					t.Errorf("removed %s, want %s", got, want)
				}
				if inspects && rt.listed() != 0 {
					t.Errorf("%d lists of everything for one pod", rt.listed())
				}
			})
		})
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 2 || left[0].Name() != "default_gone_gone-not" || left[1].Name() != "default_stays_stays" {
		t.Errorf("log directories left: %v", left)
	}
}

func TestPodDoneWaitsForItsPod(t *testing.T) {
	rt := newRuntime(pod("x", "s0 dead", "app1 exited"))
	var mu sync.Mutex
	removable := false
	running(t, rt, func(cfg *containergc.Config) {
		cfg.Lister = inspecting{rt}
		cfg.Removable = func(observed.UID) bool {
			mu.Lock()
			defer mu.Unlock()
			return removable
		}
	}, func(t *testing.T, c *containergc.Collector) {
		c.PodDone("x")
		time.Sleep(2500 * time.Millisecond)
		if rt.called() != "" {
			t.Errorf("removed %s before it was allowed", rt.called())
		}
		mu.Lock()
		removable = true
		mu.Unlock()
		time.Sleep(time.Second)
		if got, want := rt.called(), "x/app1 x/s0"; got != want {
			t.Errorf("removed %s, want %s", got, want)
		}
	})
}

// A removal may take minutes. Who came back meanwhile has its logs there.
func TestAPodThatComesBackDuringARemovalKeepsItsLogs(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "default_x_x")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	rt := newRuntime(pod("x", "s0 dead"))
	running(t, rt, func(cfg *containergc.Config) {
		cfg.LogDir = dir
		cfg.Removable = func(observed.UID) bool { return rt.called() == "" }
	}, func(t *testing.T, c *containergc.Collector) {
		c.PodDone("x")
		time.Sleep(100 * time.Millisecond)
		if rt.called() != "x/s0" {
			t.Errorf("removed %q, want x/s0", rt.called())
		}
		if _, err := os.Stat(own); err != nil {
			t.Errorf("its log directory: %v", err)
		}
	})
}

func TestWhoObservesPodsIsTold(t *testing.T) {
	rt := newRuntime(
		pod("gone1", "s0 dead"), pod("gone2", "s0 dead", "app1 exited"), // both go, the container not at once
		pod("stays", "s0 ready", "app1 exited", "app2 exited"), pod("other", "s0 ready", "app1 running"))
	rt.fail["gone2/app1"] = errors.New("no answer")
	var told []string
	c := collector(t, rt, func(cfg *containergc.Config) {
		cfg.Hooks.Removed = func(uid observed.UID) { told = append(told, string(uid)) }
	})
	if err := c.Collect(t.Context()); err == nil {
		t.Error("no error for a removal that failed")
	}
	slices.Sort(told)
	if want := []string{"gone1", "gone2", "stays"}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
}

func TestPodDoneGivesUpToThePass(t *testing.T) {
	rt := newRuntime(pod("gone", "s0 ready", "app1 running"))
	running(t, rt, func(cfg *containergc.Config) { cfg.Every = 24 * time.Hour }, func(t *testing.T, c *containergc.Collector) {
		c.PodDone("gone")
		time.Sleep(time.Hour)
		if rt.listed() != 10 || rt.called() != "" {
			t.Errorf("%d looks, removed %q; want 10 looks and nothing removed from a pod that is up", rt.listed(), rt.called())
		}
	})
}

func TestContainerDied(t *testing.T) {
	p := pod("a", "s0 ready", "app1 exited", "app2 exited", "app3 running")
	rt := newRuntime(p)
	running(t, rt, nil, func(t *testing.T, c *containergc.Collector) {
		c.ContainerDied(pod("a", "s0 ready", "app2 exited", "app3 running"), false) // within the limit
		synctest.Wait()
		if rt.called() != "" {
			t.Errorf("removed %s", rt.called())
		}
		c.ContainerDied(p, false)
		time.Sleep(10 * time.Millisecond)
		if got, want := rt.called(), "a/app1"; got != want {
			t.Errorf("removed %s, want %s", got, want)
		}
		c.ContainerDied(pod("a", "app2 exited", "app3 running"), true)
		time.Sleep(10 * time.Millisecond)
		if got, want := rt.called(), "a/app1 a/app2"; got != want {
			t.Errorf("removed %s, want %s", got, want)
		}
		if rt.listed() != 0 {
			t.Errorf("%d lists", rt.listed())
		}
	})
}

func TestRequestsAreMergedAndBounded(t *testing.T) {
	rt := newRuntime()
	dropped := 0
	c := collector(t, rt, func(cfg *containergc.Config) { cfg.Hooks.Dropped = func(observed.UID) { dropped++ } })
	// Nothing runs yet, so requests pile up.
	for range 3 {
		for i := range 1001 {
			c.PodDone(observed.UID(fmt.Sprint("gone", i)))
		}
	}
	if dropped != 3 {
		t.Errorf("dropped %d, want one per round: a pod that waits already needs no room", dropped)
	}
}

func TestCancelStopsAPass(t *testing.T) {
	rt := newRuntime(pod("gone", "s0 dead", "app1 exited", "app2 exited", "app3 exited"))
	rt.hang["gone/app1"], rt.hang["gone/app2"] = true, true
	synctest.Test(t, func(t *testing.T) {
		c := collector(t, rt, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Collect(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v", err)
		}
		if got, want := rt.called(), "gone/app1 gone/app2"; got != want {
			t.Errorf("tried %s, want %s", got, want)
		}
	})
}

func TestLogDirsAndLinks(t *testing.T) {
	logs, links := t.TempDir(), t.TempDir()
	for _, name := range []string{
		"default_web_gone1", "default_web_gone2", "default_web_stays", "kube-system_a.b-1_gone-x", // ours
		"lost+found", "gone", "a_b", "A_b_gone3", "_b_gone4", "default__gone5", "a_b_", // foreign
	} {
		if err := os.MkdirAll(filepath.Join(logs, name, "app"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(logs, "default_file_gone6"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(logs, "default_web_stays/app/0.log")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string) {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("web_default_app-alive123.log", target)
	link("web_default_app-rotating.log", filepath.Join(logs, "none"))
	link("web_default_app-rotat.log", filepath.Join(logs, "none")) // five characters are no ID
	link("web_default_app-exited12.log", filepath.Join(logs, "none"))
	link("web_default_app-unknown1.log", filepath.Join(logs, "none"))
	link("foreign", filepath.Join(logs, "none"))
	if err := os.WriteFile(filepath.Join(links, "file-abcdef.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	stays := pod("stays", "s0 ready", "app1 running", "app2 exited")
	stays.Containers[0].ID, stays.Containers[1].ID = "exited12", "rotating-and-more"
	// The runtime still has something of gone2: its logs stay with it.
	rt := newRuntime(stays, pod("gone2", "s0 ready", "app1 running"))
	var pass containergc.Pass
	ready := false
	c := collector(t, rt, func(cfg *containergc.Config) {
		cfg.LogDir, cfg.ContainerLogDir = logs, links
		cfg.SourcesReady = func() bool { return ready }
		cfg.Hooks.Passed = func(p containergc.Pass) { pass = p }
	})
	if err := c.Collect(t.Context()); err != nil || pass.LogDirs != 0 {
		t.Errorf("before the sources are heard: %+v, %v", pass, err)
	}
	want := "web_default_app-alive123.log web_default_app-rotating.log foreign file-abcdef.log"
	for _, e := range mustRead(t, links) {
		if !strings.Contains(want, e) {
			t.Errorf("link %s is left", e)
		}
	}
	if n := len(mustRead(t, links)); n != 4 || pass.Links != 3 {
		t.Errorf("%d links left, %d removed; want 4 and 3", n, pass.Links)
	}
	ready = true
	if err := c.Collect(t.Context()); err != nil || pass.LogDirs != 2 {
		t.Errorf("then: %+v, %v", pass, err)
	}
	for _, name := range mustRead(t, logs) {
		if name == "default_web_gone1" || name == "kube-system_a.b-1_gone-x" {
			t.Errorf("%s is left", name)
		}
	}
	if n := len(mustRead(t, logs)); n != 10 {
		t.Errorf("%d entries left: %v", n, mustRead(t, logs))
	}
	// Directories that do not exist are as good as empty.
	c = collector(t, rt, func(cfg *containergc.Config) { cfg.LogDir, cfg.ContainerLogDir = "/nonexistent", "/nonexistent" })
	if err := c.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

func mustRead(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

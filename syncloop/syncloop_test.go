package syncloop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary is a handler that writes down what it is told.
type diary struct {
	mu     sync.Mutex
	lines  []string
	hang   chan struct{} // not nil: syncs wait for it
	failed error         // what clean-ups say
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read returns what was written since the last time.
func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func names(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, ",")
}

func (d *diary) HandlePodAdditions(_ context.Context, p []*corev1.Pod) { d.add("add %s", names(p)) }
func (d *diary) HandlePodUpdates(_ context.Context, p []*corev1.Pod)   { d.add("update %s", names(p)) }
func (d *diary) HandlePodRemoves(_ context.Context, p []*corev1.Pod)   { d.add("remove %s", names(p)) }
func (d *diary) HandlePodReconcile(_ context.Context, p []*corev1.Pod) {
	d.add("reconcile %s", names(p))
}
func (d *diary) HandlePodSyncs(_ context.Context, uids []observed.UID) {
	d.add("sync %v", uids)
	if d.hang != nil {
		<-d.hang
	}
}
func (d *diary) HandlePodCleanups(context.Context) error {
	d.add("cleanup")
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// exits is a diary that wants to know of exits too.
type exits struct{ *diary }

func (e exits) HandleContainerDied(_ context.Context, uid observed.UID, id observed.ContainerID) {
	e.add("died %s %s", uid, id)
}

// hall is a loop under test and the channels that lead into it.
type hall struct {
	*diary
	loop   *syncloop.Loop
	config chan podsource.Update
	pleg   chan pleg.PodLifecycleEvent
	sync   chan []observed.UID
	probe  chan observed.UID
	cancel context.CancelFunc
	done   chan error
}

func open(t *testing.T, change func(*syncloop.Config)) *hall {
	t.Helper()
	h := &hall{
		diary:  &diary{},
		config: make(chan podsource.Update),
		pleg:   make(chan pleg.PodLifecycleEvent, 10),
		sync:   make(chan []observed.UID),
		probe:  make(chan observed.UID, 10),
		done:   make(chan error, 1),
	}
	cfg := syncloop.Config{
		Handler: h.diary, ConfigCh: h.config, PlegCh: h.pleg, SyncCh: h.sync, ProbeCh: h.probe,
		Seen: func(source string) { h.add("seen %s", source) },
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if h.loop, err = syncloop.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.cancel = cancel
	go func() { h.done <- h.loop.Run(ctx) }()
	return h
}

// close ends the loop and checks that it ends well.
func (h *hall) close(t *testing.T) {
	t.Helper()
	h.cancel()
	if err := <-h.done; err != nil {
		t.Errorf("Run = %v, want nil after cancel", err)
	}
}

func (h *hall) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	if got := h.read(); !slices.Equal(got, lines) {
		t.Errorf("handled %q, want %q", got, lines)
	}
}

func pods(names ...string) []*corev1.Pod {
	var all []*corev1.Pod
	for _, n := range names {
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	return all
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	if _, err := syncloop.New(syncloop.Config{}); err == nil || !strings.Contains(err.Error(), "Handler") {
		t.Errorf("New without a Handler = %v, want an error that says so", err)
	}
	if _, err := syncloop.New(syncloop.Config{Handler: &diary{}, SyncFrequency: -1}); err == nil || !strings.Contains(err.Error(), "SyncFrequency") {
		t.Errorf("New with a negative SyncFrequency = %v, want an error that says so", err)
	}
}

func TestConfigUpdatesAreDispatchedByOperation(t *testing.T) {
	for _, c := range []struct {
		update podsource.Update
		want   []string
	}{
		{podsource.Update{Op: podsource.OpAdd, Source: "file", Pods: pods("a", "b")}, []string{"add a,b", "seen file"}},
		{podsource.Update{Op: podsource.OpUpdate, Source: "http", Pods: pods("a")}, []string{"update a", "seen http"}},
		{podsource.Update{Op: podsource.OpDelete, Source: "api", Pods: pods("a")}, []string{"update a", "seen api"}},
		{podsource.Update{Op: podsource.OpRemove, Source: "api", Pods: pods("a")}, []string{"remove a", "seen api"}},
		{podsource.Update{Op: podsource.OpReconcile, Source: "api", Pods: pods("a")}, []string{"reconcile a", "seen api"}},
		{podsource.Update{Op: podsource.OpAdd, Source: "file"}, []string{"seen file"}},
		{podsource.Update{Op: 99, Source: "file", Pods: pods("a")}, []string{"seen file"}},
	} {
		t.Run(c.update.Op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := open(t, nil)
				h.config <- c.update
				h.want(t, c.want...)
				h.close(t)
			})
		})
	}
}

func TestABurstOfEventsIsOneSyncPerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{hang: make(chan struct{})}
		h := open(t, func(c *syncloop.Config) { c.Handler = exits{d} })
		h.diary = d
		h.pleg <- pleg.PodLifecycleEvent{ID: "first", Type: pleg.PodSync}
		synctest.Wait()
		for _, e := range []pleg.PodLifecycleEvent{
			{ID: "a", Type: pleg.ContainerDied, Data: "c1"},
			{ID: "b", Type: pleg.ContainerStarted, Data: "c2"},
			{ID: "a", Type: pleg.ContainerStarted, Data: "c3"},
			{ID: "gone", Type: pleg.ContainerRemoved, Data: "c4"},
			{ID: "a", Type: pleg.ContainerRemoved, Data: "c1"},
		} {
			h.pleg <- e
		}
		close(d.hang)
		h.want(t, "sync [first]", "sync [a b]", "died a c1")
		h.pleg <- pleg.PodLifecycleEvent{ID: "a", Type: pleg.ContainerRemoved, Data: "c9"}
		h.want(t)
		h.close(t)
	})
}

func TestDuePodsAndProbeResultsAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []string
		h := open(t, func(c *syncloop.Config) {
			c.Hooks.Synced = func(cause string, pods int) { causes = append(causes, fmt.Sprint(cause, pods)) }
		})
		h.sync <- []observed.UID{"a", "b"}
		h.want(t, "sync [a b]")
		h.probe <- "c"
		h.want(t, "sync [c]")
		if want := []string{"sync2", "probe1"}; !slices.Equal(causes, want) {
			t.Errorf("causes = %q, want %q", causes, want)
		}
		h.close(t)
	})
}

func TestHousekeeping(t *testing.T) {
	count := func(h *hall) int {
		synctest.Wait()
		n := 0
		for _, l := range h.read() {
			if l == "cleanup" {
				n++
			}
		}
		return n
	}
	t.Run("it is rare while nothing happens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, nil)
			time.Sleep(2 * time.Second)
			h.want(t, "cleanup") // the first, soon after the start
			time.Sleep(5 * time.Minute)
			if n := count(h); n != 10 {
				t.Errorf("%d clean-ups in 5m of quiet, want 10", n)
			}
			h.close(t)
		})
	})
	t.Run("it follows news", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, nil)
			time.Sleep(10 * time.Second)
			h.want(t, "cleanup")
			h.sync <- []observed.UID{"a"}
			time.Sleep(2*time.Second - time.Millisecond)
			h.want(t, "sync [a]")
			time.Sleep(time.Millisecond)
			h.want(t, "cleanup")
			h.close(t)
		})
	})
	t.Run("steady news does not put it off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, nil)
			for range 600 {
				h.probe <- "a"
				time.Sleep(100 * time.Millisecond)
			}
			if n := count(h); n < 28 || n > 30 {
				t.Errorf("%d clean-ups in a busy minute, want one per 2s", n)
			}
			h.close(t)
		})
	})
	t.Run("it waits until every source has been heard", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ready := false
			h := open(t, func(c *syncloop.Config) { c.SourcesReady = func() bool { return ready } })
			time.Sleep(time.Hour)
			h.want(t)
			ready = true
			h.config <- podsource.Update{Op: podsource.OpAdd, Source: "api"}
			time.Sleep(2 * time.Second)
			h.want(t, "seen api", "cleanup")
			h.close(t)
		})
	})
	t.Run("one that fails is tried again soon", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, nil)
			h.mu.Lock()
			h.failed = errors.New("no list")
			h.mu.Unlock()
			time.Sleep(time.Minute)
			if n := count(h); n != 30 {
				t.Errorf("%d clean-ups that failed in 1m, want 30", n)
			}
			h.close(t)
		})
	})
}

func TestTheLoopPausesWhileTheRuntimeIsInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		trouble := errors.New("container runtime is down")
		var waits []time.Duration
		h := open(t, func(c *syncloop.Config) {
			c.RuntimeErrors = func() error { mu.Lock(); defer mu.Unlock(); return trouble }
			c.Hooks.Paused = func(_ error, wait time.Duration) { waits = append(waits, wait) }
		})
		go func() { h.config <- podsource.Update{Op: podsource.OpAdd, Source: "file", Pods: pods("a")} }()
		time.Sleep(10 * time.Minute)
		h.want(t)
		want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000}
		for i := range want {
			if want[i] *= time.Millisecond; waits[i] != want[i] {
				t.Errorf("waits = %v, want %v...", waits[:len(want)], want)
				break
			}
		}
		if err := h.loop.Healthy(); err != nil {
			t.Errorf("Healthy = %v during a pause, want nil: it turns", err)
		}
		mu.Lock()
		trouble = nil
		mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		// Housekeeping was due long ago; which of the two comes first is chance.
		got := slices.DeleteFunc(h.read(), func(l string) bool { return l == "cleanup" })
		if want := []string{"add a", "seen file"}; !slices.Equal(got, want) {
			t.Errorf("handled %q, want %q", got, want)
		}
		mu.Lock()
		trouble = errors.New("again")
		mu.Unlock()
		before := len(waits)
		h.probe <- "x"
		synctest.Wait()
		if len(waits) == before || waits[before] != 100*time.Millisecond {
			t.Errorf("first wait of new trouble = %v, want 100ms", waits[before:])
		}
		h.close(t) // also from within a pause
	})
}

func TestHealthIsThatItTurned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := h.loop.Healthy(); err != nil {
			t.Errorf("Healthy = %v after a quiet hour, want nil", err)
		}
		h.read()
		h.hang = make(chan struct{})
		h.sync <- []observed.UID{"a"}
		time.Sleep(5*time.Minute + 31*time.Second)
		err := h.loop.Healthy()
		if err == nil || !strings.Contains(err.Error(), "limit is 5m0s") {
			t.Errorf("Healthy = %v while a handler hangs, want an error with the limit", err)
		}
		close(h.hang)
		synctest.Wait()
		if err := h.loop.Healthy(); err != nil {
			t.Errorf("Healthy = %v afterwards, want nil", err)
		}
		h.close(t)
	})
	l, err := syncloop.New(syncloop.Config{Handler: &diary{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Healthy(); err != nil {
		t.Errorf("Healthy = %v before Run, want nil", err)
	}
}

func TestAQuietLoopIsHealthyHoweverSeldomItTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, func(c *syncloop.Config) { c.QuietHousekeepingEvery = 20 * time.Minute })
		for range 60 {
			time.Sleep(time.Minute)
			if err := h.loop.Healthy(); err != nil {
				t.Fatalf("Healthy = %v", err)
			}
		}
		h.close(t)
	})
}

func TestChannelsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil)
		close(h.pleg)
		close(h.sync)
		close(h.probe)
		synctest.Wait() // returns only if the loop does not spin on them
		h.config <- podsource.Update{Op: podsource.OpAdd, Source: "file", Pods: pods("a")}
		h.want(t, "add a", "seen file")
		close(h.config)
		if err := <-h.done; !errors.Is(err, syncloop.ErrConfigEnded) {
			t.Errorf("Run = %v, want ErrConfigEnded", err)
		}
		h.cancel()
	})
}

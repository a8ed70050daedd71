package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	n := &node{}
	for name, cfg := range map[string]podworkers.Config{
		"Syncer":   {Observer: n},
		"Observer": {Syncer: n},
		"Resync":   {Syncer: n, Observer: n, Resync: -1},
	} {
		if _, err := podworkers.New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New without a good %s = %v, want an error that names it", name, err)
		}
	}
}

func TestOnePodFromCreateToGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		var phases []string
		var rounds []string
		w := start(t, n, func(c *podworkers.Config) {
			c.Hooks.PhaseChanged = func(pod string, uid observed.UID, from, to podworkers.Phase) {
				phases = append(phases, fmt.Sprintf("%s %s %v>%v", pod, uid, from, to))
			}
			c.Hooks.Synced = func(r podworkers.Round) { rounds = append(rounds, r.Op) }
		})
		wantPhase(t, w, "a", podworkers.Unseen)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n, "sync a")
		done := make(chan struct{})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Done: done}})
		<-done
		synctest.Wait()
		wantCalls(t, n, "stop a 30", "release a")
		wantPhase(t, w, "a", podworkers.Finished)
		if known := w.SyncKnownPods(nil); len(known) != 0 {
			t.Errorf("known after the end = %v, want none", known)
		}
		wantPhase(t, w, "a", podworkers.Gone)
		synctest.Wait()

		want := []string{
			"default/a a Unseen>Syncing", "default/a a Syncing>StopRequested", "default/a a StopRequested>Stopping",
			"default/a a Stopping>Stopped", "default/a a Stopped>Finished", "default/a a Finished>Gone",
		}
		if !slices.Equal(phases, want) {
			t.Errorf("phases = %q, want %q", phases, want)
		}
		if want := []string{"create", "kill", "terminated"}; !slices.Equal(rounds, want) {
			t.Errorf("rounds = %q, want %q", rounds, want)
		}
	})
}

func TestFirstUpdateDecidesHowALifeBegins(t *testing.T) {
	for name, c := range map[string]struct {
		update  podworkers.Update
		running bool // in the runtime, left by an earlier agent
		calls   []string
		phase   podworkers.Phase
	}{
		"a new pod is synced": {
			update: podworkers.Update{Type: podworkers.Create, Pod: pod("a")},
			calls:  []string{"sync a"}, phase: podworkers.Syncing,
		},
		"a deleted pod without anything in the runtime is released at once": {
			update: podworkers.Update{Type: podworkers.Create, Pod: pod("a", deleted(30))},
			calls:  []string{"release a"}, phase: podworkers.Finished,
		},
		"a deleted pod that an earlier agent started is stopped first": {
			update:  podworkers.Update{Type: podworkers.Create, Pod: pod("a", deleted(7))},
			running: true,
			calls:   []string{"stop a 7", "release a"}, phase: podworkers.Finished,
		},
		"a failed pod is released": {
			update: podworkers.Update{Type: podworkers.Create, Pod: pod("a", phase(corev1.PodFailed))},
			calls:  []string{"release a"}, phase: podworkers.Finished,
		},
		"a succeeded pod that still runs is stopped first": {
			update:  podworkers.Update{Type: podworkers.Create, Pod: pod("a", phase(corev1.PodSucceeded))},
			running: true,
			calls:   []string{"stop a 30", "release a"}, phase: podworkers.Finished,
		},
		"a kill of an unknown pod ends it": {
			update: podworkers.Update{Type: podworkers.Kill, Pod: pod("a")},
			calls:  []string{"release a"}, phase: podworkers.Finished,
		},
		"a sync introduces nothing": {
			update: podworkers.Update{Type: podworkers.Sync, Pod: pod("a")},
			phase:  podworkers.Unseen,
		},
		"an orphan is stopped with one second and forgotten": {
			update:  podworkers.Update{Type: podworkers.Kill, Orphan: observed.Pod{UID: "a"}},
			running: true,
			calls:   []string{"stop a 1 runtime only"}, phase: podworkers.Unseen,
		},
		"an orphan that is gone is forgotten": {
			update: podworkers.Update{Type: podworkers.Kill, Orphan: observed.Pod{UID: "a"}},
			phase:  podworkers.Unseen,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := &node{}
				n.set("a", c.running)
				w := start(t, n)
				w.UpdatePod(c.update)
				synctest.Wait()
				wantCalls(t, n, c.calls...)
				wantPhase(t, w, "a", c.phase)
			})
		})
	}
}

func TestUpdatesBeforeRunAreServedByRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w, err := podworkers.New(podworkers.Config{Syncer: n, Observer: n})
		if err != nil {
			t.Fatal(err)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		wantCalls(t, n, "sync a")
		if err := w.Run(ctx); !errors.Is(err, podworkers.ErrRunTwice) {
			t.Errorf("second Run = %v, want ErrRunTwice", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if _, open := <-w.Due(); open {
			t.Error("Due is open after Run")
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n)
		wantPhase(t, w, "a", podworkers.StopRequested)
	})
}

func TestTheLastUpdateWins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		free := make(chan struct{})
		var images []string
		n := &node{sync: func(_ context.Context, p *corev1.Pod) (bool, error) {
			images = append(images, p.Labels["v"])
			<-free
			return false, nil
		}}
		var took time.Duration
		w := start(t, n, func(c *podworkers.Config) {
			c.Hooks.Synced = func(r podworkers.Round) { took = r.Took }
		})
		v := func(v string) *corev1.Pod {
			return pod("a", func(p *corev1.Pod) { p.Labels = map[string]string{"v": v} })
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: v("1")})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: v("2"), Start: time.Now()})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: v("3"), Start: time.Now()})
		close(free)
		synctest.Wait()
		if want := []string{"1", "3"}; !slices.Equal(images, want) {
			t.Errorf("synced versions = %q, want %q", images, want)
		}
		if took != 5*time.Second {
			t.Errorf("took = %v, want the 5s since the older update", took)
		}
	})
}

func TestAnEndInterruptsTheRunningSync(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{sync: func(ctx context.Context, _ *corev1.Pod) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		time.Sleep(time.Hour)
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n, "sync a") // a change waits for its turn
		w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: pod("a", deleted(5))})
		synctest.Wait()
		// Stopped although no look shows it: the sync may have left something.
		wantCalls(t, n, "stop a 5", "release a")
		if s, _ := w.State("a"); s.LastError != "" {
			t.Errorf("LastError = %q: an interrupted sync is no error", s.LastError)
		}
	})
}

func TestAShorterGraceInterruptsTheRunningStop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{stop: func(ctx context.Context, _ observed.UID, grace int64) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(grace) * time.Second):
				return nil
			}
		}}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		began := time.Now()
		slow, fast := make(chan struct{}), make(chan struct{})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a", deleted(120)), Kill: &podworkers.KillOptions{Done: slow}})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Grace: seconds(200)}})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Grace: seconds(0), Done: fast}})
		<-fast
		if !isClosed(slow) {
			t.Error("the first Done is open although nothing runs")
		}
		if took := time.Since(began); took != 21*time.Second {
			t.Errorf("stopped after %v, want 21s: 20 s, then the least grace period of 1 s", took)
		}
		synctest.Wait()
		wantCalls(t, n, "sync a", "stop a 120", "stop a 1", "release a")
	})
}

func TestAPodThatEndsByItselfIsStoppedByItsOwnRules(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{sync: func(context.Context, *corev1.Pod) (bool, error) { return true, nil }}
		n.set("a", true)
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n, "sync a", "stop a own", "release a")
		s, ok := w.State("a")
		if !ok || s.Phase != podworkers.Finished || !s.OwnGrace || s.Deleted || s.ContentRemovable() {
			t.Errorf("state = %+v, want finished by itself, content kept", s)
		}
		w.SyncKnownPods([]*corev1.Pod{pod("a")})
		w.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: pod("a")})
		time.Sleep(time.Hour)
		synctest.Wait()
		wantCalls(t, n) // it ended; only leaving its source can change that
		wantPhase(t, w, "a", podworkers.Finished)
	})
}

func TestEvictedContentMayGoAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{stop: func(ctx context.Context, _ observed.UID, _ int64) error { <-ctx.Done(); return ctx.Err() }}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Evict: true, Grace: seconds(3)}})
		synctest.Wait()
		s, _ := w.State("a")
		if s.Phase != podworkers.Stopping || !s.Evicted || s.Deleted || s.Grace != 3 || s.OwnGrace || !s.Working || !s.ContentRemovable() {
			t.Errorf("state = %+v, want stopping, evicted, grace 3", s)
		}
	})
}

func TestErrorsAreRetried(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		from, to time.Duration
	}{
		"any error after the back-off":          {errors.New("no"), 10 * time.Second, 15 * time.Second},
		"an error that knows its time, then":    {fmt.Errorf("start: %w", later(3*time.Second)), 3 * time.Second, 3 * time.Second},
		"a time past, soon":                     {later(-time.Hour), 10 * time.Millisecond, 10 * time.Millisecond},
		"a time far off, with the next resync":  {later(time.Hour), time.Minute, time.Minute},
		"a time that is none, after a back-off": {later(0), 10 * time.Second, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var tries []time.Time
				n := &node{sync: func(context.Context, *corev1.Pod) (bool, error) {
					if tries = append(tries, time.Now()); len(tries) == 1 {
						return false, c.err
					}
					return false, nil
				}}
				w := start(t, n)
				w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
				synctest.Wait()
				s, _ := w.State("a")
				if !strings.Contains(s.LastError, "sync pod default/a: ") || s.RetryAt.IsZero() || !s.SyncedAt.IsZero() {
					t.Errorf("state = %+v, want the error and the time of the retry", s)
				}
				time.Sleep(61 * time.Second)
				synctest.Wait()
				if len(tries) < 2 {
					t.Fatalf("tried %d times, want 2", len(tries))
				}
				if gap := tries[1].Sub(tries[0]); gap < c.from || gap > c.to {
					t.Errorf("retried after %v, want %v to %v", gap, c.from, c.to)
				}
				if s, _ := w.State("a"); s.LastError != "" || s.SyncedAt.IsZero() {
					t.Errorf("state = %+v, want no error after a good sync", s)
				}
			})
		})
	}
}

// later is an error that wants to be tried again so much after it is looked at;
// zero does not know.
type later time.Duration

func (l later) Error() string { return "not yet" }
func (l later) RetryAt() time.Time {
	if l == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(l))
}

func TestStopAndReleaseAreRetriedUntilTheyAreTrue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := errors.New("runtime is away")
		n := &node{}
		w := start(t, n, func(c *podworkers.Config) { c.AutoResync = false }) // nobody reads Due
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		n.with(func(n *node) {
			n.stop = func(context.Context, observed.UID, int64) error { return bad }
			n.release = func(context.Context, *corev1.Pod) error { return bad }
		})
		n.took()
		done := make(chan struct{})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Done: done}})
		synctest.Wait()
		wantCalls(t, n, "stop a 30")
		wantPhase(t, w, "a", podworkers.Stopping)

		n.with(func(n *node) { n.stop, n.stillRun = nil, 1 }) // now StopPod says yes, and is wrong once
		time.Sleep(15 * time.Second)
		synctest.Wait()
		wantCalls(t, n, "stop a 30")
		if s, _ := w.State("a"); s.Phase != podworkers.Stopping || !strings.Contains(s.LastError, "still run") {
			t.Errorf("state = %+v, want stopping: a container still runs", s)
		}
		if isClosed(done) {
			t.Error("Done is closed while a container runs")
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		wantCalls(t, n, "stop a 30", "release a")
		wantPhase(t, w, "a", podworkers.Stopped)
		if !isClosed(done) {
			t.Error("Done is open although nothing runs")
		}
		n.with(func(n *node) { n.release = nil })
		time.Sleep(15 * time.Second)
		synctest.Wait()
		wantCalls(t, n, "release a")
		wantPhase(t, w, "a", podworkers.Finished)
	})
}

func TestALookThatFailsDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{lookErr: errors.New("inspect timed out")}
		n.set("o", true)
		var rounds []error
		w := start(t, n, func(c *podworkers.Config) {
			c.Hooks.Synced = func(r podworkers.Round) { rounds = append(rounds, r.Err) }
		})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n)
		var look *podworkers.LookError
		if len(rounds) != 1 || !errors.As(rounds[0], &look) || look.Pod != "default/a" || !errors.Is(look, n.lookErr) {
			t.Errorf("rounds = %v, want one LookError of default/a", rounds)
		}
		// An orphan was named by a listing; that is enough to try.
		w.UpdatePod(podworkers.Update{Orphan: observed.Pod{UID: "o", Containers: []observed.Container{{State: observed.Running}}}})
		synctest.Wait()
		wantCalls(t, n, "stop o 1 runtime only")
		wantPhase(t, w, "o", podworkers.Stopping) // the look after the stop failed too
		n.with(func(n *node) { n.lookErr = nil })
		time.Sleep(15 * time.Second)
		synctest.Wait()
		wantCalls(t, n, "sync a")
		wantPhase(t, w, "o", podworkers.Unseen)
	})
}

func TestKillDuringTheFirstLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{blind: true}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		time.Sleep(time.Hour)
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n)
		wantPhase(t, w, "a", podworkers.Stopping) // not Stopped: nobody has seen that
		n.with(func(n *node) { n.blind = false })
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Grace: seconds(1)}})
		synctest.Wait()
		wantCalls(t, n, "release a")
		wantPhase(t, w, "a", podworkers.Finished)
	})
}

func TestAStuckPodDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{sync: func(ctx context.Context, p *corev1.Pod) (bool, error) {
			if p.UID == "stuck" {
				<-ctx.Done()
			}
			return false, ctx.Err()
		}}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("stuck")})
		synctest.Wait()
		wantCalls(t, n, "sync stuck")
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("b")})
		synctest.Wait()
		wantCalls(t, n, "sync b")
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("b")})
		synctest.Wait()
		wantCalls(t, n, "stop b 30", "release b")
	})
}

func TestAThousandIdlePodsHaveNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const pods = 1000
		const slack = 9 // the runtime may start a few of its own
		n := &node{}
		w := start(t, n)
		synctest.Wait()
		before := runtime.NumGoroutine()
		for i := range pods {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod(fmt.Sprint(i))})
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+slack {
			t.Errorf("%d goroutines with %d idle pods, %d with none", after, pods, before)
		}
		if got := len(n.took()); got != pods {
			t.Errorf("%d syncs, want %d", got, pods)
		}
		time.Sleep(90*time.Second + time.Millisecond)
		synctest.Wait()
		if got := len(n.took()); got != pods {
			t.Errorf("%d syncs in 90s, want one per pod", got)
		}
		if after := runtime.NumGoroutine(); after > before+slack {
			t.Errorf("%d goroutines after the resync, %d before", after, before)
		}
	})
}

func TestQuestions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n)
		if s, ok := w.State("a"); ok || s.Phase != podworkers.Unseen || s.ContentRemovable() {
			t.Errorf("state before anything = %+v, %v, want Unseen: it may run", s, ok)
		}
		w.SyncKnownPods(nil)
		if s, ok := w.State("a"); ok || s.Phase != podworkers.Gone || !s.ContentRemovable() {
			t.Errorf("state of a stranger = %+v, %v, want Gone", s, ok)
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("b")})
		synctest.Wait()
		all := w.States()
		if len(all) != 2 || all["a"].Pod != "default/a" || all["b"].Phase != podworkers.Syncing || all["b"].StartedAt.IsZero() {
			t.Errorf("States = %+v, want a and b, started", all)
		}
		// Who waits for the end of a pod that is not there does not wait.
		done := make(chan struct{})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Kill: &podworkers.KillOptions{Done: done}})
		if !isClosed(done) {
			t.Error("Done of an update without a UID is open")
		}
	})
	for p, want := range map[podworkers.Phase]bool{
		podworkers.Unseen: true, podworkers.Syncing: true, podworkers.StopRequested: true, podworkers.Stopping: true,
		podworkers.Stopped: false, podworkers.Finished: false, podworkers.Gone: false,
	} {
		if got := p.MayHaveRunning(); got != want {
			t.Errorf("%v.MayHaveRunning() = %v, want %v", p, got, want)
		}
	}
}

package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestStuckInspectionsDelayOnlyTheirPods(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stuck int
		deaf  bool
	}{
		{"one that ends with its deadline", 1, false},
		{"one that ignores its deadline", 1, true},
		{"more than there are inspectors", 20, false},
		{"more than there are inspectors, ignoring their deadlines", 20, true},
		{"more than may be in flight", 100, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := newFake()
			rt.deaf = tt.deaf
			inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
				release := make(chan struct{})
				for i := range tt.stuck {
					uid := observed.UID(fmt.Sprint("stuck", i))
					rt.set(uid, container(string(uid), observed.Running))
					rt.do(func() { rt.hanging[uid] = release })
				}
				time.Sleep(time.Second)
				if tt.stuck > 4*8 { // too many for any to be served until their deadline
					time.Sleep(40 * time.Second)
				}
				for i := range 60 { // the others live on meanwhile
					id := fmt.Sprint("c", i)
					rt.set("a", container(id, observed.Running))
					began := time.Now()
					p, err := r.Wait(t.Context(), "a", r.MarkDirty("a"))
					if err != nil || string(p.Containers[0].ID) != id {
						t.Fatalf("Wait = %v, %v", p, err)
					}
					if took := time.Since(began); took > 3*time.Second {
						t.Errorf("round %d took %v", i, took)
					}
					time.Sleep(2 * time.Second)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if _, err := r.Wait(ctx, "stuck0", r.MarkDirty("stuck0")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Wait for the stuck pod = %v", err)
				}
				cancel()
				if err := r.Healthy(); err != nil {
					t.Error(err)
				}
				rt.do(func() {
					if most := 4*8 + 4; !tt.deaf && rt.mostAtATime > most {
						t.Errorf("%d inspections at once, want at most %d", rt.mostAtATime, most)
					}
				})
				r.events()
				rt.do(func() { clear(rt.hanging) })
				close(release)
				time.Sleep(40 * time.Second)
				if got := len(r.events()); got != 2*tt.stuck {
					t.Errorf("%d events of the pods that were stuck, want %d", got, 2*tt.stuck)
				}
				if got := len(r.Cache().Pods()); got != tt.stuck+1 {
					t.Errorf("%d pods in the cache, want %d", got, tt.stuck+1)
				}
			})
		})
	}
}

func TestAnswerAfterTheDeadlineIsNotUsed(t *testing.T) {
	rt := newFake()
	rt.deaf = true
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		release := make(chan struct{})
		rt.do(func() { rt.hanging["a"] = release })
		rt.set("a", container("c1", observed.Running))
		time.Sleep(time.Minute)
		if err := r.Relist(t.Context()); err == nil || !strings.Contains(err.Error(), "still has not answered") {
			t.Errorf("Relist = %v, want the pod that does not answer", err)
		}
		rt.set("a", container("c1", observed.Exited)) // it exits while nobody can see it
		rt.do(func() { clear(rt.hanging) })
		close(release)
		equal(t, "afterwards", r.events(), []pleg.PodLifecycleEvent{
			event("a", pleg.ContainerDied, "c1"), event("a", pleg.ContainerStarted, "a-sb"),
		})
		if got := rt.looksAt("a"); got != 2 {
			t.Errorf("%d looks, want 2: never a second beside one that hangs", got)
		}
	})
}

func TestRunLeavesDeafInspectionsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newFake()
		release := make(chan struct{})
		rt.deaf = true
		rt.hanging["a"] = release
		rt.set("a", container("c1", observed.Running))
		r := start(t, pleg.Config{Runtime: rt})
		synctest.Wait()
		began := time.Now()
		r.stop(t)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Run took %v to end, want the second of grace", took)
		}
		close(release)
		synctest.Wait()
		if _, ok := r.Cache().Get("a"); ok {
			t.Error("an answer after the end reached the cache")
		}
	})
}

func TestFailedInspectionIsRetriedWithBackoff(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		r.events()
		rt.set("a", container("c1", observed.Exited))
		rt.do(func() { rt.failing["a"] = errors.New("bad") })
		time.Sleep(2 * time.Minute)
		if got := rt.looksAt("a"); got < 7 || got > 10 { // 1, 2, 4, 8, 16, 30, 30 seconds apart
			t.Errorf("%d looks in two minutes", got)
		}
		equal(t, "while failing", r.events(), nil)
		if p, ok := r.Cache().Get("a"); !ok || !p.HasRunning() {
			t.Errorf("Get = %v, %v, want the last good observation", p, ok)
		}
		rt.do(func() { clear(rt.failing) })
		time.Sleep(30 * time.Second)
		equal(t, "recovered", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
	})
}

func TestRecoveryWithoutChangeIsPodSync(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		r.events()
		rt.do(func() { rt.failing["a"] = errors.New("bad") })
		r.MarkDirty("a")
		synctest.Wait()
		rt.do(func() { clear(rt.failing) })
		time.Sleep(time.Second)
		equal(t, "recovered", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.PodSync, "")})
	})
}

func TestRetriesComeAtOnceWhenTheRuntimeIsBack(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		r.events()
		down := errors.New("down")
		rt.do(func() { rt.listErr = down; rt.failing["a"] = down })
		r.MarkDirty("a")
		time.Sleep(40 * time.Second) // the next retry is half a minute away
		rt.set("a", container("c1", observed.Exited))
		rt.do(func() { rt.listErr = nil; clear(rt.failing) })
		time.Sleep(time.Second)
		equal(t, "back", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
	})
}

func TestMarkDuringAnInspectionThatFailsNeedsNoBackoff(t *testing.T) {
	rt := newFake()
	inBubble(t, pleg.Config{Runtime: rt, RelistEvery: 30 * time.Second}, func(t *testing.T, r *running) {
		hang := make(chan struct{})
		rt.do(func() { rt.failing["a"] = errors.New("bad"); rt.hanging["a"] = hang })
		r.MarkDirty("a")
		synctest.Wait()
		r.MarkDirty("a")
		synctest.Wait()
		rt.do(func() { clear(rt.failing) })
		rt.set("a", container("c1", observed.Running))
		close(hang)
		synctest.Wait()
		if p, ok := r.Cache().Get("a"); !ok || !p.HasRunning() {
			t.Errorf("Get = %v, %v, want the second look at once", p, ok)
		}
	})
}

func TestRelistWaitsForALookThatHasSeenWhatTheListSaw(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt, RelistEvery: 30 * time.Second}, func(t *testing.T, r *running) {
		hang := make(chan struct{})
		rt.do(func() { rt.hanging["a"] = hang })
		r.MarkDirty("a") // this look reads the state before the exit
		synctest.Wait()
		rt.set("a", container("c1", observed.Exited))
		ended := make(chan error, 1)
		go func() { ended <- r.Relist(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("Relist = %v during the look", err)
		default:
		}
		rt.do(func() { rt.takes = time.Second; clear(rt.hanging) })
		close(hang)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if p, _ := r.Cache().Get("a"); p.HasRunning() {
			t.Errorf("the cache has %v after Relist", p)
		}
	})
}

func TestMarksDuringAnInspectionLeadToOneMore(t *testing.T) {
	rt := newFake()
	rt.takes = 100 * time.Millisecond
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		r.MarkDirty("a")
		synctest.Wait()
		var last observed.Seq
		for range 1000 {
			last = r.MarkDirty("a")
		}
		rt.set("a", container("c1", observed.Running))
		if p, err := r.Wait(t.Context(), "a", last); err != nil || !p.HasRunning() {
			t.Errorf("Wait = %v, %v", p, err)
		}
		time.Sleep(time.Minute)
		if got := rt.looksAt("a"); got != 2 {
			t.Errorf("%d looks, want 2", got)
		}
	})
}

func TestListDuringAnInspectionLeadsToNoSecondOne(t *testing.T) {
	rt := newFake()
	rt.takes = 3 * time.Second
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		time.Sleep(time.Minute)
		if got := rt.looksAt("a"); got != 1 {
			t.Errorf("%d looks, want 1: the lists meanwhile agree with it", got)
		}
	})
}

func TestWait(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt, RelistEvery: 30 * time.Second}, func(t *testing.T, r *running) {
		ctx := t.Context()
		if p, err := r.Wait(ctx, "a", 0); err != nil || !p.HasRunning() || rt.looksAt("a") != 1 {
			t.Errorf("Wait for anything = %v, %v after %d looks, want what is there", p, err, rt.looksAt("a"))
		}
		seq := r.MarkDirty("a")
		synctest.Wait()
		if _, err := r.Wait(ctx, "a", seq); err != nil || rt.looksAt("a") != 2 {
			t.Errorf("Wait = %v after %d looks, want the look of the mark", err, rt.looksAt("a"))
		}
		if next := r.MarkDirty("b"); next <= seq {
			t.Errorf("MarkDirty = %d after %d", next, seq)
		}
		if p, err := r.Wait(ctx, "nobody", 0); err != nil || p.Exists() || p.UID != "nobody" {
			t.Errorf("Wait for a pod that is not there = %v, %v, want an empty Pod", p, err)
		}

		bad := errors.New("bad")
		rt.do(func() { rt.failing["a"] = bad })
		seq = r.MarkDirty("a")
		for range 2 { // also when the look has failed before
			if _, err := r.Wait(ctx, "a", seq); !errors.Is(err, bad) || !strings.Contains(err.Error(), "default/pod-a") {
				t.Errorf("Wait = %v, want %v and the pod's name", err, bad)
			}
		}
		rt.do(func() { clear(rt.failing) })
		began := time.Now()
		if _, err := r.Wait(ctx, "a", r.MarkDirty("a")); err != nil || time.Since(began) > 0 {
			t.Errorf("Wait = %v after %v, want no back-off for a mark", err, time.Since(began))
		}

		rt.do(func() { rt.hanging["a"] = make(chan struct{}) })
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := r.Wait(short, "a", r.MarkDirty("a")); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "wait for pod a") {
			t.Errorf("Wait = %v, want its own deadline", err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := r.Wait(ctx, "a", r.MarkDirty("a"))
			waiting <- err
		}()
		synctest.Wait()
		r.cancel()
		if err := <-waiting; !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Wait at the end = %v, want ErrStopped", err)
		}
		<-r.read
		if _, err := r.Wait(ctx, "a", 0); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Wait after the end = %v, want ErrStopped", err)
		}
	})
}

func TestWaitBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := pleg.New(pleg.Config{Runtime: newFake()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := g.Wait(ctx, "a", g.MarkDirty("a")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v, want its ctx's end", err)
		}
	})
}

func TestWaitedForPodsComeFirst(t *testing.T) {
	rt := newFake()
	rt.takes = 100 * time.Millisecond
	for i := range 1000 {
		rt.set(observed.UID(fmt.Sprint("p", i)), container(fmt.Sprint("c", i), observed.Running))
	}
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		began := time.Now()
		if _, err := r.Wait(t.Context(), "new", r.MarkDirty("new")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("waited %v behind pods that nobody waits for", took)
		}
	})
}

func TestFirstRelistIsBounded(t *testing.T) {
	const pods = 10_000
	rt := newFake()
	rt.takes = time.Millisecond
	for i := range pods {
		rt.set(observed.UID(fmt.Sprint("p", i)), container(fmt.Sprint("c", i), observed.Running))
	}
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		if err := r.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(r.Cache().Pods()); got != pods {
			t.Errorf("%d pods in the cache, want %d", got, pods)
		}
		rt.do(func() {
			if rt.mostAtATime != 8 {
				t.Errorf("%d inspections at once, want 8", rt.mostAtATime)
			}
		})
		if got := len(r.events()); got != 2*pods {
			t.Errorf("%d events, want %d", got, 2*pods)
		}
	})
}

func TestNothingIsKeptOfPodsThatAreGone(t *testing.T) {
	rt := newFake()
	r := start(t, pleg.Config{Runtime: rt})
	defer r.stop(t)
	// round is so many pods that come and go, some at a time.
	round := func(name string, n int) {
		const batch = 500
		look := func(uids []observed.UID, exists bool) {
			var last observed.Seq
			for _, uid := range uids {
				last = r.MarkDirty(uid)
			}
			for _, uid := range uids {
				if p, err := r.Wait(t.Context(), uid, last-batch); err != nil || p.Exists() != exists {
					t.Fatalf("Wait = %v, %v", p, err)
				}
			}
		}
		for i := 0; i < n; i += batch {
			var uids []observed.UID
			for j := range batch {
				uid := observed.UID(fmt.Sprint(name, i+j))
				rt.set(uid, container("c"+string(uid), observed.Exited))
				uids = append(uids, uid)
			}
			look(uids, true)
			for _, uid := range uids {
				rt.remove(uid)
			}
			look(uids, false)
		}
		rt.do(func() { rt.looks = map[observed.UID]int{} })
		r.mu.Lock()
		r.got = nil
		r.mu.Unlock()
	}
	// What has just become garbage may need some more rounds of the collector: a
	// goroutine is on its way out, a pool is kept for one round.
	heap := func(enough int) int {
		var m runtime.MemStats
		for try := 0; try < 50 && (try < 5 || int(m.HeapAlloc) > enough); try++ {
			runtime.Gosched()
			runtime.GC()
			runtime.ReadMemStats(&m)
		}
		return int(m.HeapAlloc)
	}
	round("warm", 10_000) // maps keep the room that they once had
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := heap(0)
	round("pod", 10_000)
	for range 10_000 {
		if _, err := r.Wait(ended, "nobody", 1<<40); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait = %v", err)
		}
	}
	const noise = 500_000 // fifty bytes per pod
	if grown := heap(before+noise) - before; grown > noise {
		t.Errorf("the heap grew by %d bytes over 10,000 pods", grown)
	}
	if got := r.Cache().Pods(); len(got) != 0 {
		t.Errorf("%d pods in the cache, want none", len(got))
	}
}

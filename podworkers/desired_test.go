package podworkers_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

func TestSyncKnownPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n)
		for _, uid := range []string{"stays", "leaves", "ended"} {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod(uid)})
		}
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("ended")})
		synctest.Wait()
		n.took()

		known := w.SyncKnownPods([]*corev1.Pod{pod("stays"), pod("ended"), pod("never handed in")})
		if len(known) != 3 {
			t.Errorf("known = %v, want stays, leaves, ended", known)
		}
		if s := known["leaves"]; s.Phase != podworkers.StopRequested || !s.Deleted {
			t.Errorf("a pod that left = %+v, want its stop requested", s)
		}
		if s := known["ended"]; s.Phase != podworkers.Finished || s.Deleted {
			t.Errorf("a desired pod that ended = %+v, want finished, not deleted", s)
		}
		wantPhase(t, w, "never handed in", podworkers.Gone)
		synctest.Wait()
		wantCalls(t, n, "stop leaves own", "release leaves")

		known = w.SyncKnownPods([]*corev1.Pod{pod("stays")})
		if len(known) != 1 || known["stays"].Phase != podworkers.Syncing {
			t.Errorf("known = %v, want only stays", known)
		}
		wantCalls(t, n)
	})
}

func TestTheSameUIDAgain(t *testing.T) {
	for name, ended := range map[string]bool{"while it ends": false, "after it ended": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := &node{}
				w := start(t, n)
				again := podworkers.Update{Type: podworkers.Create, Pod: pod("a", static("web"))}
				for range 5 {
					free := make(chan struct{})
					n.with(func(n *node) {
						n.stop = func(context.Context, observed.UID, int64) error { <-free; return nil }
					})
					w.UpdatePod(again)
					synctest.Wait()
					wantCalls(t, n, "sync a")
					w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a", static("web"))})
					if ended {
						close(free)
					}
					synctest.Wait()
					w.UpdatePod(again)
					if s, _ := w.State("a"); !s.Restart {
						t.Errorf("state = %+v, want Restart", s)
					}
					if !ended {
						if known := w.SyncKnownPods([]*corev1.Pod{again.Pod}); len(known) != 1 {
							t.Errorf("known = %v, want the life that ends", known)
						}
						close(free)
					}
					synctest.Wait()
					wantCalls(t, n, "stop a 30", "release a")
					if known := w.SyncKnownPods([]*corev1.Pod{again.Pod}); len(known) != 0 {
						t.Errorf("known = %v, want none, so that the pod is handed in again", known)
					}
				}
			})
		})
	}
}

func TestAPodThatComesWhileItsOrphanEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		free := make(chan struct{})
		n := &node{stop: func(context.Context, observed.UID, int64) error { <-free; return nil }}
		n.set("a", true)
		w := start(t, n, func(c *podworkers.Config) { c.AutoResync = false })
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: observed.Pod{UID: "a"}})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		if s, _ := w.State("a"); !s.RuntimeOnly || !s.Restart {
			t.Errorf("state = %+v, want an orphan with a restart", s)
		}
		close(free)
		if got, want := <-w.Due(), []observed.UID{"a"}; !slices.Equal(got, want) {
			t.Errorf("due = %v, want %v: somebody has to hand the pod in", got, want)
		}
		if known := w.SyncKnownPods([]*corev1.Pod{pod("a")}); len(known) != 0 {
			t.Errorf("known = %v, want none", known)
		}
		wantCalls(t, n, "stop a 1 runtime only")
	})
}

func TestAnOrphanWhosePodIsKnownAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		free := make(chan struct{})
		n := &node{stop: func(ctx context.Context, _ observed.UID, _ int64) error {
			select {
			case <-free:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		n.set("a", true)
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: observed.Pod{UID: "a"}})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		close(free)
		synctest.Wait()
		wantCalls(t, n, "stop a 1 runtime only", "release a")
		wantPhase(t, w, "a", podworkers.Finished)
	})
}

func TestStaticPodsOfOneNameRunOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n)
		for _, uid := range []string{"1", "2", "3", "4"} {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod(uid, static("web"))})
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("api")}) // same rules do not apply
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("x", static("other"))})
		synctest.Wait()
		calls := n.took()
		slices.Sort(calls)
		if want := []string{"sync 1", "sync api", "sync x"}; !slices.Equal(calls, want) {
			t.Errorf("calls = %q, want %q", calls, want)
		}
		if s, _ := w.State("2"); !s.Waiting || s.Working || s.Phase != podworkers.Syncing {
			t.Errorf("state of 2 = %+v, want waiting", s)
		}
		// A waiting pod that is told to end never starts, and lets others pass.
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("2", static("web"))})
		synctest.Wait()
		wantCalls(t, n, "release 2")
		wantPhase(t, w, "2", podworkers.Finished)

		// The name is free when the first is released, not before.
		bound := make(chan struct{})
		n.with(func(n *node) { n.release = func(context.Context, *corev1.Pod) error { <-bound; return nil } })
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("1", static("web"))})
		time.Sleep(time.Minute - time.Millisecond)
		synctest.Wait()
		calls = slices.DeleteFunc(n.took(), func(c string) bool { return c == "sync api" || c == "sync x" })
		if want := []string{"stop 1 30", "release 1"}; !slices.Equal(calls, want) {
			t.Errorf("calls = %q, want %q", calls, want)
		}
		freed := time.Now()
		close(bound)
		synctest.Wait()
		if s, _ := w.State("3"); s.Waiting || !s.StartedAt.Equal(freed) {
			t.Errorf("state of 3 = %+v, want started the moment the name was free, %v", s, freed)
		}
		if s, _ := w.State("4"); !s.Waiting {
			t.Errorf("state of 4 = %+v, want waiting", s)
		}
		// Leaving the desired set frees the name too.
		w.SyncKnownPods([]*corev1.Pod{pod("4", static("web"))})
		synctest.Wait()
		if s, _ := w.State("4"); s.Waiting || s.StartedAt.IsZero() {
			t.Errorf("state of 4 = %+v, want started", s)
		}
	})
}

func TestDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n, func(c *podworkers.Config) { c.AutoResync = false })
		for _, uid := range []string{"a", "b"} {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod(uid)})
		}
		synctest.Wait()
		n.took()
		began := time.Now()
		time.Sleep(time.Hour) // a slow reader finds each pod once
		synctest.Wait()
		batch := <-w.Due()
		slices.Sort(batch)
		if want := []observed.UID{"a", "b"}; !slices.Equal(batch, want) {
			t.Errorf("due = %v, want %v", batch, want)
		}
		wantCalls(t, n)
		for _, uid := range batch {
			w.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: pod(string(uid))})
		}
		synctest.Wait()
		synced := time.Now()
		if synced.Sub(began) != time.Hour {
			t.Errorf("synced at %v, want at once", synced.Sub(began))
		}
		n.took()
		<-w.Due()
		if gap := time.Since(synced); gap < time.Minute || gap > 90*time.Second {
			t.Errorf("due again after %v, want 60s to 90s", gap)
		}
		// What ends is announced, so that the reader wakes up and prunes.
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		for {
			if slices.Contains(<-w.Due(), "a") {
				break
			}
		}
		wantPhase(t, w, "a", podworkers.Finished)
	})
}

func TestSyncAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var w *podworkers.Workers
		began := time.Now()
		deadline := began.Add(25 * time.Second)
		n := &node{}
		n.sync = func(context.Context, *corev1.Pod) (bool, error) {
			if time.Now().Before(deadline) {
				w.SyncAt("a", deadline.Add(time.Hour))
				w.SyncAt("a", deadline)
				return false, nil
			}
			return true, nil
		}
		w = start(t, n)
		w.SyncAt("nobody", deadline)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		time.Sleep(deadline.Sub(began) - time.Millisecond)
		synctest.Wait()
		wantCalls(t, n, "sync a")
		w.SyncAt("a", time.Now().Add(time.Hour)) // later than what is planned
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantCalls(t, n, "sync a", "stop a own", "release a")
	})
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n)
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		n.took()
		w.SyncAt("a", time.Now().Add(time.Second)) // of an idle pod
		time.Sleep(time.Second)
		synctest.Wait()
		wantCalls(t, n, "sync a")
	})
}

func TestHooksMayAskBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		var w *podworkers.Workers
		var seen []podworkers.Phase
		w = start(t, n, func(c *podworkers.Config) {
			c.Hooks.PhaseChanged = func(_ string, uid observed.UID, _, to podworkers.Phase) {
				seen = append(seen, to)
				w.Phase(uid)
				if to == podworkers.Finished {
					w.SyncKnownPods(nil)
				}
			}
		})
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		synctest.Wait()
		if last := seen[len(seen)-1]; last != podworkers.Gone {
			t.Errorf("last phase = %v, want Gone", last)
		}
	})
}

func TestForgetDropsOnlyWhatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		w := start(t, n)
		if !w.Forget("a") {
			t.Error("Forget of a pod that is not known = false, want true")
		}
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		if w.Forget("a") {
			t.Error("Forget of a pod that runs = true, want false")
		}
		wantPhase(t, w, "a", podworkers.Syncing)
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a")})
		synctest.Wait()
		wantPhase(t, w, "a", podworkers.Finished)
		if !w.Forget("a") {
			t.Error("Forget of a pod that is over = false, want true")
		}
		wantPhase(t, w, "a", podworkers.Unseen) // no source set was needed
		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		synctest.Wait()
		wantCalls(t, n, "sync a", "stop a 30", "release a", "sync a")
	})
}

package podworkers_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// slowRuntime shows pleg what the node's calls did; each look takes a while.
type slowRuntime struct{ *node }

func (r slowRuntime) InspectPod(_ context.Context, last observed.Pod) (observed.Pod, error) {
	time.Sleep(5 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := observed.Pod{UID: last.UID}
	if r.running[last.UID] {
		pod.Sandboxes = []observed.Sandbox{{ID: "s", Ready: true}}
		pod.Containers = []observed.Container{{ID: "c", State: observed.Running}}
	}
	return pod, nil
}

func (r slowRuntime) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	r.mu.Lock()
	uids := make([]observed.UID, 0, len(r.running))
	for uid, running := range r.running {
		if running {
			uids = append(uids, uid)
		}
	}
	r.mu.Unlock()
	var pods []observed.Pod
	for _, uid := range uids {
		if pod, err := r.InspectPod(ctx, observed.Pod{UID: uid}); err == nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// With pleg as its Observer a worker acts on what is true after its own last call,
// and does not wait for the next relist to know it.
func TestWithPlegAsObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := &node{}
		looks, err := pleg.New(pleg.Config{Runtime: slowRuntime{n}, RelistEvery: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- looks.Run(ctx) }()
		go func() {
			for range looks.Watch() {
			}
		}()
		t.Cleanup(func() { cancel(); <-done })
		w := start(t, n, func(c *podworkers.Config) { c.Observer = looks })
		synctest.Wait()

		w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("a")})
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		wantCalls(t, n, "sync a")
		if seen, _ := looks.Cache().Get("a"); !seen.HasRunning() {
			t.Errorf("cache = %+v right after the sync, want a running container", seen)
		}
		n.with(func(n *node) { n.stillRun = 1 }) // the first stop only says so
		stopped := make(chan struct{})
		w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod("a"), Kill: &podworkers.KillOptions{Done: stopped}})
		<-stopped
		if calls := n.took(); !slices.Equal(calls, []string{"stop a 30", "stop a 30"}) {
			t.Errorf("calls until nothing ran = %q, want two stops", calls)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		wantCalls(t, n, "release a")
		if known := w.SyncKnownPods([]*corev1.Pod{}); len(known) != 0 {
			t.Errorf("known = %v, want none", known)
		}
	})
}

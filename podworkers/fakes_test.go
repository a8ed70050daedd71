package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a runtime and a Syncer in one: SyncPod makes a container run, StopPod
// makes it not run. Its fields change what happens; set them before or inside a
// bubble with [node.with].
type node struct {
	mu      sync.Mutex
	seq     observed.Seq
	running map[observed.UID]bool
	calls   []string              // "sync a", "stop a 30", "release a"
	named   map[observed.UID]bool // pods named web that were synced and not released
	shared  []observed.UID        // more than one of them at once

	blind    bool  // Wait has no answer until ctx ends
	lookErr  error // what Wait says
	sync     func(ctx context.Context, pod *corev1.Pod) (bool, error)
	stop     func(ctx context.Context, uid observed.UID, grace int64) error
	release  func(ctx context.Context, pod *corev1.Pod) error
	stillRun int // so many stops leave the container running
}

func (n *node) with(f func(n *node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

func (n *node) log(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, fmt.Sprintf(format, args...))
}

// took returns the calls since the last time, and forgets them.
func (n *node) took() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	calls := n.calls
	n.calls = nil
	return calls
}

func (n *node) MarkDirty(observed.UID) observed.Seq {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	return n.seq
}

func (n *node) Wait(ctx context.Context, uid observed.UID, after observed.Seq) (observed.Pod, error) {
	n.mu.Lock()
	blind, err, running, seq := n.blind, n.lookErr, n.running[uid], n.seq
	n.mu.Unlock()
	if blind {
		<-ctx.Done()
		return observed.Pod{}, ctx.Err()
	}
	if after == 0 || after > seq {
		return observed.Pod{}, errors.New("a number that was never drawn")
	}
	pod := observed.Pod{UID: uid}
	if running {
		pod.Containers = []observed.Container{{ID: "c-" + observed.ContainerID(uid), State: observed.Running}}
	}
	return pod, err
}

func (n *node) SyncPod(ctx context.Context, pod *corev1.Pod, _ observed.Pod) (bool, error) {
	n.log("sync %s", pod.UID)
	n.mu.Lock()
	f := n.sync
	if pod.Name == "web" {
		if n.named == nil {
			n.named = map[observed.UID]bool{}
		}
		if n.named[observed.UID(pod.UID)] = true; len(n.named) > 1 {
			n.shared = slices.Collect(maps.Keys(n.named))
		}
	}
	n.mu.Unlock()
	if f != nil {
		return f(ctx, pod)
	}
	n.with(func(n *node) { n.set(observed.UID(pod.UID), true) })
	return false, nil
}

func (n *node) set(uid observed.UID, running bool) {
	if n.running == nil {
		n.running = map[observed.UID]bool{}
	}
	n.running[uid] = running
}

func (n *node) StopPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod, grace *int64) error {
	period, text := int64(-1), "own"
	if grace != nil {
		period, text = *grace, fmt.Sprint(*grace)
	}
	if pod == nil {
		text += " runtime only"
	}
	n.log("stop %s %s", seen.UID, text)
	n.mu.Lock()
	f := n.stop
	n.mu.Unlock()
	if f != nil {
		if err := f(ctx, seen.UID, period); err != nil {
			return err
		}
	}
	n.with(func(n *node) {
		if n.stillRun--; n.stillRun < 0 {
			n.set(seen.UID, false)
		}
	})
	return nil
}

func (n *node) ReleasePod(ctx context.Context, pod *corev1.Pod, _ observed.Pod) error {
	n.log("release %s", pod.UID)
	n.mu.Lock()
	f := n.release
	n.mu.Unlock()
	if f != nil {
		if err := f(ctx, pod); err != nil {
			return err
		}
	}
	n.with(func(n *node) { delete(n.named, observed.UID(pod.UID)) })
	return nil
}

// sharedName returns pods that ran under one name at one time.
func (n *node) sharedName() []observed.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.shared
}

// start runs workers on n until the test ends; within a bubble.
func start(t *testing.T, n *node, change ...func(*podworkers.Config)) *podworkers.Workers {
	t.Helper()
	cfg := podworkers.Config{Syncer: n, Observer: n, AutoResync: true}
	for _, c := range change {
		c(&cfg)
	}
	w, err := podworkers.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil after cancel", err)
		}
	})
	return w
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// pod makes a pod with a grace period of 30 s.
func pod(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func static(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Name = name
		p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	}
}

func deleted(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	}
}

func phase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}

func wantCalls(t *testing.T, n *node, want ...string) {
	t.Helper()
	if got := n.took(); !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
}

func wantPhase(t *testing.T, w *podworkers.Workers, uid observed.UID, want podworkers.Phase) {
	t.Helper()
	if got := w.Phase(uid); got != want {
		t.Errorf("phase of %s = %v, want %v", uid, got, want)
	}
}

// isClosed reports whether a Done channel was closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func seconds(s int64) *int64 { return &s }

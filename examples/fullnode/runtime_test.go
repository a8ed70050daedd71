package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

// told is a runtime that says what a test tells it to. While a watch runs its
// fields are changed inside of with.
type told struct {
	mu         sync.Mutex
	asked      []time.Time
	versionErr error
	err        error
	hang       bool
	conditions []*runtimeapi.RuntimeCondition
}

func (r *told) with(do func(*told)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(r)
}

func (r *told) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.versionErr != nil {
		return nil, r.versionErr
	}
	return &runtimeapi.VersionResponse{RuntimeName: "told"}, r.err
}

func (r *told) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, time.Now())
	if r.hang {
		r.mu.Unlock()
		<-ctx.Done()
		r.mu.Lock()
		return nil, ctx.Err()
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: r.conditions}}, r.err
}

func conditions(runtime, network bool) []*runtimeapi.RuntimeCondition {
	return []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: runtime, Reason: "Broken", Message: "shim"},
		{Type: runtimeapi.NetworkReady, Status: network, Reason: "NoCNI", Message: "cni plugin not initialized"},
	}
}

// watching runs a watch in a bubble.
func watching(t *testing.T, rt *told, check func(t *testing.T, w *runtimeWatch)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newRuntimeWatch(rt, logr.Discard())
		if w.Err() == nil || w.NetworkReady() == nil || w.Name() != "" {
			t.Errorf("before the first answer: %v, %v, %q, want two errors and no name", w.Err(), w.NetworkReady(), w.Name())
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		synctest.Wait()
		check(t, w)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("error = %v, want none", err)
	case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
		t.Errorf("error = %v, want %q in it", err, text)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRuntimeWatch(t *testing.T) {
	for _, c := range []struct {
		name             string
		rt               *told
		runtime, network string
		ready            bool
	}{
		{"all is well", &told{conditions: conditions(true, true)}, "", "", true},
		{"no network is no reason to stop", &told{conditions: conditions(true, false)}, "", "NetworkReady is false, reason NoCNI: cni plugin not initialized", true},
		{"the runtime says it is not ready", &told{conditions: conditions(false, true)}, "RuntimeReady is false, reason Broken: shim", "", false},
		{"the runtime says nothing", &told{}, "did not report RuntimeReady", "did not report NetworkReady", false},
		{"no answer yet", &told{err: errFault}, "may not have completed yet", "not known yet", false},
		{"no CRI v1", &told{versionErr: fmt.Errorf("version: %w", criclient.ErrUnimplemented)}, "may not have completed yet", "not known yet", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			watching(t, c.rt, func(t *testing.T, w *runtimeWatch) {
				wantError(t, w.Err(), c.runtime)
				wantError(t, w.NetworkReady(), c.network)
				if isClosed(w.ready) != c.ready {
					t.Errorf("ready closed = %v, want %v", !c.ready, c.ready)
				}
			})
		})
	}
}

func TestRuntimeWatchOverlooksAShortSilence(t *testing.T) {
	rt := &told{conditions: conditions(true, true)}
	watching(t, rt, func(t *testing.T, w *runtimeWatch) {
		if w.Name() != "told" {
			t.Errorf("name = %q", w.Name())
		}
		rt.with(func(r *told) { r.err = errFault })
		time.Sleep(downAfter - time.Second)
		wantError(t, w.Err(), "")
		time.Sleep(2 * time.Second)
		wantError(t, w.Err(), "container runtime is down")
		wantError(t, w.NetworkReady(), "")
		rt.with(func(r *told) { r.err = nil })
		time.Sleep(time.Second)
		wantError(t, w.Err(), "") // it is asked more often while it is away
	})
}

func TestRuntimeWatchSaysOnceThatTheRuntimeIsBack(t *testing.T) {
	rt := &told{err: errFault}
	var lines []string
	synctest.Test(t, func(t *testing.T) {
		w := newRuntimeWatch(rt, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		for range 2 {
			rt.err, rt.conditions = errFault, nil
			w.ask(t.Context())
			w.ask(t.Context())
			rt.err, rt.conditions = nil, conditions(true, true)
			w.ask(t.Context())
			w.ask(t.Context())
		}
	})
	var words []string
	for _, line := range lines {
		words = append(words, fmt.Sprint(!strings.Contains(line, "not ready")))
	}
	if got := strings.Join(words, " "); got != "false true false true" {
		t.Errorf("ready? %s, want two times away and back:\n%s", got, strings.Join(lines, "\n"))
	}
}

func TestRuntimeWatchIsNotHeldUpByACallThatHangs(t *testing.T) {
	rt := &told{conditions: conditions(true, true)}
	watching(t, rt, func(t *testing.T, w *runtimeWatch) {
		rt.with(func(r *told) { r.hang = true })
		time.Sleep(downAfter + time.Second)
		wantError(t, w.Err(), "container runtime is down")
		rt.with(func(r *told) { r.hang = false })
		time.Sleep(statusTimeout + time.Second)
		wantError(t, w.Err(), "")
	})
}

func TestRuntimeWatchAsksSeldomWhenAllIsWell(t *testing.T) {
	rt := &told{conditions: conditions(true, true)}
	asked := func() (n int) {
		rt.with(func(r *told) { n = len(r.asked) })
		return n
	}
	watching(t, rt, func(t *testing.T, _ *runtimeWatch) {
		time.Sleep(time.Minute + time.Second)
		if n := asked(); n != 7 {
			t.Errorf("asked %d times in a minute, want 7", n)
		}
		rt.with(func(r *told) { r.err = errFault })
		time.Sleep(time.Minute)
		if n := asked() - 7; n < 60 || n > 130 {
			t.Errorf("asked %d times in a minute of silence, want about two a second", n)
		}
	})
}

// looks is a listing over a runtime in memory with one running pod.
func looks(t *testing.T, check func(t *testing.T, rt *critest.Runtime, l *listing, container string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{Registry: critest.AnyImage})
		ctx := t.Context()
		labels := map[string]string{
			observed.LabelPodUID: "u", observed.LabelPodName: "web", observed.LabelPodNamespace: "default", observed.LabelContainerName: "app",
		}
		sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}, Labels: labels}
		id, err := rt.RunPodSandbox(ctx, sandbox, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rt.PullImage(ctx, &runtimeapi.ImageSpec{Image: "app:1"}, nil, nil); err != nil {
			t.Fatal(err)
		}
		c, err := rt.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app:1"}, Labels: labels,
		}, sandbox)
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.StartContainer(ctx, c); err != nil {
			t.Fatal(err)
		}
		observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: rt})
		if err != nil {
			t.Fatal(err)
		}
		l := newListing(observer, func(uid observed.UID) (corev1.PodStatus, bool) {
			if uid != "u" {
				return corev1.PodStatus{}, false
			}
			running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
			return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", ContainerID: "critest://" + c, State: running}}}, true
		})
		check(t, rt, l, c)
	})
}

func TestListingRemembersWhatRan(t *testing.T) {
	looks(t, func(t *testing.T, rt *critest.Runtime, l *listing, _ string) {
		if l.running() != nil || isClosed(l.listed) {
			t.Error("something is known before the first list")
		}
		rt.FailNext("ListPodSandbox", errFault)
		if _, err := l.RunningPods(t.Context()); err == nil {
			t.Fatal("no error of a list that failed")
		}
		if l.running() != nil || isClosed(l.listed) {
			t.Error("a list that failed counts")
		}
		for range 2 { // the second one closes nothing twice
			if _, err := l.RunningPods(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if pods := l.running(); len(pods) != 1 || pods[0].UID != "u" || !isClosed(l.listed) {
			t.Errorf("running = %v, listed %v", pods, isClosed(l.listed))
		}
		rt.FailNext("ListPodSandbox", errFault)
		if _, err := l.RunningPods(t.Context()); err == nil || len(l.running()) != 1 {
			t.Errorf("after a list that failed (%v): running = %v, want what was known", err, l.running())
		}
	})
}

// A runtime that has just been restarted may answer with lists that are empty or
// not complete.
func TestFirstLookAtAPodDoesNotTrustEmptyLists(t *testing.T) {
	for _, empty := range [][]string{nil, {"ListPodSandbox"}, {"ListContainers"}, {"ListPodSandbox", "ListContainers"}} {
		t.Run(strings.Join(empty, " and "), func(t *testing.T) {
			looks(t, func(t *testing.T, rt *critest.Runtime, l *listing, id string) {
				for _, method := range empty {
					rt.Inject(critest.Fault{Method: method, Empty: true, Times: 1})
				}
				pod, err := l.InspectPod(t.Context(), observed.Pod{UID: "u"})
				if err == nil && (!pod.HasRunning() || !pod.HasReadySandbox()) {
					t.Errorf("InspectPod = %+v, want the running container and its sandbox, or an error", pod)
				}
				if pod, err = l.InspectPod(t.Context(), observed.Pod{UID: "u"}); err != nil {
					t.Fatal(err)
				}
				if c, ok := pod.Container("app"); !ok || string(c.ID) != id || !pod.HasReadySandbox() {
					t.Errorf("the next look = %+v", pod)
				}
				if pod, err := l.InspectPod(t.Context(), observed.Pod{UID: "nobody"}); err != nil || pod.Exists() {
					t.Errorf("InspectPod of a pod that is not there = %+v, %v", pod, err)
				}
			})
		})
	}
}

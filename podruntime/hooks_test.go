package podruntime_test

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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// hooked gives the named containers a hook on each end of their life.
func hooked(p *corev1.Pod, names ...string) *corev1.Pod {
	for _, name := range names {
		c, _, _ := podspec.Find(p, name)
		c.Lifecycle = &corev1.Lifecycle{
			PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"postStart"}}},
			PreStop:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"preStop"}}},
		}
	}
	return p
}

func with(p *corev1.Pod, grace int64) *corev1.Pod {
	p.Spec.TerminationGracePeriodSeconds = &grace
	return p
}

// hookLog runs hooks by what is in do, and remembers them.
type hookLog struct {
	mu  sync.Mutex
	ran []string
	do  func(ctx context.Context, call lifecycle.Call) (string, error) // nil: nothing
}

func what(call lifecycle.Call) string { return strings.Join(call.Handler.Exec.Command, " ") }

func (h *hookLog) run(ctx context.Context, call lifecycle.Call) (string, error) {
	h.mu.Lock()
	h.ran = append(h.ran, call.Container.Name+" "+what(call))
	h.mu.Unlock()
	if h.do == nil {
		return "", nil
	}
	return h.do(ctx, call)
}

func (h *hookLog) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.ran)
	if !slices.Equal(h.ran, want) {
		t.Errorf("hooks = %v, want %v", h.ran, want)
	}
	h.ran = nil
}

// takes makes preStop hooks last for a while, or as long as they may.
func takes(d time.Duration) func(context.Context, lifecycle.Call) (string, error) {
	return func(ctx context.Context, call lifecycle.Call) (string, error) {
		if what(call) != "preStop" {
			return "", nil
		}
		select {
		case <-time.After(d):
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func TestPostStart(t *testing.T) {
	t.Run("runs right after the start and before the next container", func(t *testing.T) {
		n, p := newNode(t), hooked(pod("Always", "s:s", "a", "b"), "s", "a")
		n.hook = func(_ context.Context, call lifecycle.Call) (string, error) {
			if c, _ := n.see(p).Container(call.Container.Name); c.ID != call.ID || c.State != observed.Running || call.PodIP == "" || call.Pod != p {
				t.Errorf("call = %+v, container %+v", call, c)
			}
			if _, later := n.see(p).Container("b"); later {
				t.Error("the next container did not wait")
			}
			return "", nil
		}
		n.converge(p)
		n.wantRunning(p, "a#0 b#0 s#0")
	})
	t.Run("that fails stops its container, with its grace and its preStop", func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a", "b"), "a"), 7)
		var order []string
		n.hook = func(_ context.Context, call lifecycle.Call) (string, error) {
			order = append(order, what(call))
			if what(call) == "postStart" {
				return "no\xff database\n", errors.New("exit code 1")
			}
			return "", nil
		}
		_, result, err := n.sync(t.Context(), p)
		if f := result.Failures["a"]; f.Reason != "PostStartHookError" || f.Message != "exit code 1: no database" || f.RetryAt.IsZero() {
			t.Errorf("failure = %+v", f)
		}
		if err == nil || fmt.Sprint(order) != "[postStart preStop]" {
			t.Errorf("hooks = %v, %v", order, err)
		}
		// What a command writes may be a secret, and errors go into logs.
		if want := "start container a of pod default/web: PostStartHookError: postStart of container a: exit code 1"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		n.wantRunning(p, "b#0") // it held nobody up
		n.wantEvents("a Normal Created: Container created", "a Normal Started: Container started",
			"a Warning FailedPostStartHook: PostStartHook failed", "a Normal Killing: FailedPostStartHook",
			"b Normal Created: Container created", "b Normal Started: Container started")
		n.wantCalls("RunPodSandbox", "CreateContainer a", "StartContainer a", "StopContainer a 7", "CreateContainer b", "StartContainer b")
		if n.counts["failed container PostStartHookError"] != 1 {
			t.Errorf("counts = %v", n.counts)
		}
	})
	t.Run("that hangs ends with its context, and the container is left to whom ended it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, p := newNode(t), hooked(pod("Always", "a", "b"), "a")
			n.hook = func(ctx context.Context, _ lifecycle.Call) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, result, err := n.sync(ctx, p)
			if !errors.Is(err, context.DeadlineExceeded) || len(result.Failures) > 0 {
				t.Errorf("sync = %v, %v", result.Failures, err)
			}
			n.wantRunning(p, "a#0")
			n.wantEvents("a Normal Created: Container created", "a Normal Started: Container started")
		})
	})
	t.Run("of a container that was made before this pass runs, too", func(t *testing.T) {
		n, p := newNode(t), hooked(pod("Always", "a"), "a")
		h := &hookLog{}
		n.hook = h.run
		n.rt.FailNext("StartContainer", errors.New("busy"))
		n.sync(t.Context(), p) //nolint:errcheck // it fails, as it should
		h.want(t)
		n.must(p)
		h.want(t, "a postStart")
	})
	t.Run("fails where nobody runs hooks", func(t *testing.T) {
		n := newNode(t)
		images, err := imagepull.New(imagepull.Config{Images: n.rt})
		if err != nil {
			t.Fatal(err)
		}
		if n.r, err = podruntime.New(podruntime.Config{CRI: n.rt, Images: images, LogDir: n.logs}); err != nil {
			t.Fatal(err)
		}
		_, result, _ := n.sync(t.Context(), hooked(pod("Always", "a"), "a"))
		if f := result.Failures["a"]; f.Reason != "PostStartHookError" || !strings.Contains(f.Message, "Config.Lifecycle") {
			t.Errorf("failure = %+v", f)
		}
	})
}

func TestPreStop(t *testing.T) {
	sec := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for _, tt := range []struct {
		name  string
		grace int64
		over  *int64
		takes time.Duration
		stop  string // when the runtime is asked, and with what grace
		event string
	}{
		{"counts inside the grace period", 30, nil, sec(10), "after 10s with 20s", ""},
		{"counts in whole seconds", 30, nil, 1500 * time.Millisecond, "after 2s with 29s", ""},
		{"that takes all of it leaves two seconds", 20, nil, time.Hour, "after 20s with 2s",
			"a Warning FailedPreStopHook: PreStopHook failed: it had not ended after the grace period of 20s"},
		{"gets no more than the override", 30, ptr(int64(5)), time.Hour, "after 5s with 2s",
			"a Warning FailedPreStopHook: PreStopHook failed: it had not ended after the grace period of 5s"},
		{"does not run without grace", 30, ptr(int64(0)), time.Hour, "after 0s with 2s", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), tt.grace)
				n.hook = takes(tt.takes)
				n.must(p)
				n.takeEvents()
				start := time.Now()
				if err := n.r.StopPod(t.Context(), p, n.see(p), tt.over); err != nil {
					t.Fatal(err)
				}
				if got := n.stops(start)["a"]; got != tt.stop {
					t.Errorf("stop %s, want %s", got, tt.stop)
				}
				want := []string{"a Normal Killing: Stopping container a"}
				if tt.event != "" {
					want = append(want, tt.event)
				}
				n.wantEvents(want...)
			})
		})
	}
	t.Run("that fails is told and holds up nothing", func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), 9)
		n.must(p)
		n.takeEvents()
		n.rt.ForgetCalls()
		n.hook = func(context.Context, lifecycle.Call) (string, error) { return "a secret", errors.New("exit code 1") }
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		n.wantCalls("StopContainer a 9", "StopPodSandbox")
		n.wantEvents("a Normal Killing: Stopping container a", "a Warning FailedPreStopHook: PreStopHook failed")
	})
	t.Run("that the runtime ends just in time has not ended either", func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), 9)
		n.must(p)
		n.takeEvents()
		n.hook = func(context.Context, lifecycle.Call) (string, error) {
			return "", criclient.Wrap("run", status.Error(codes.DeadlineExceeded, "timeout 9s exceeded"))
		}
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		n.wantEvents("a Normal Killing: Stopping container a",
			"a Warning FailedPreStopHook: PreStopHook failed: it had not ended after the grace period of 9s")
	})
	t.Run("runs for a restart, too, and not for a container that has ended", func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a", "b"), "a", "b"), 9)
		n.must(p)
		h := &hookLog{}
		n.hook = h.run
		id, _ := n.rt.FindContainer("uid-1", "b")
		if err := n.rt.Kill(id, 1); err != nil {
			t.Fatal(err)
		}
		p.Spec.Containers[0].Image = "img:2"
		n.must(p)
		h.want(t, "a postStart", "a preStop", "b postStart")
	})
}

func TestPreStopOfSidecarsDoesNotWaitForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := sidecars(t, map[string]time.Duration{"a": 10 * time.Second}, 30)
		hooked(p, "a", "s0", "s1")
		var begun []string
		var mu sync.Mutex
		start := time.Now()
		n.hook = func(ctx context.Context, call lifecycle.Call) (string, error) {
			mu.Lock()
			begun = append(begun, fmt.Sprint(call.Container.Name, " ", time.Since(start)))
			mu.Unlock()
			return takes(4*time.Second)(ctx, call)
		}
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		slices.Sort(begun)
		if got := strings.Join(begun, ", "); got != "a 0s, s0 0s, s1 0s" {
			t.Errorf("hooks began at %s", got)
		}
		want := map[string]string{"a": "after 4s with 26s", "s1": "after 14s with 16s", "s0": "after 14s with 16s"}
		if got := n.stops(start); !equal(got, want) {
			t.Errorf("stops = %v, want %v", got, want)
		}
	})
}

// The worker ends the context of a stop when a shorter grace period is asked for,
// and stops again.
func TestAShorterGraceTakesEffectAtOnceAndRunsNoHookTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), 600)
		n.rt.AddImage("img:1", critest.Behavior{IgnoreTERM: true})
		n.must(p)
		h := &hookLog{do: takes(time.Hour)}
		n.hook = h.run
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := n.r.StopPod(ctx, p, n.see(p), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("StopPod = %v", err)
		}
		if err := n.r.StopPod(t.Context(), p, n.see(p), ptr(int64(1))); err != nil {
			t.Fatal(err)
		}
		h.want(t, "a preStop")
		if took := time.Since(start).Round(time.Second); took != 7*time.Second {
			t.Errorf("took %v, want 5s and the least grace", took)
		}
		for _, e := range n.takeEvents() {
			if strings.Contains(e, "FailedPreStopHook") {
				t.Errorf("event %q: the hook was cut by who asked for it", e)
			}
		}
	})
}

func TestWhenAPreStopHookRunsAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		hook error
		want []string
	}{
		{"not when the stop after it failed", nil, []string{"a preStop"}},
		{"not when it failed", errors.New("exit code 1"), []string{"a preStop"}},
		{"when the runtime was away", criclient.Wrap("run", status.Error(codes.Unavailable, "closed")), []string{"a preStop", "a preStop"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), 9)
			n.must(p)
			h := &hookLog{do: func(context.Context, lifecycle.Call) (string, error) { return "", tt.hook }}
			n.hook = h.run
			n.rt.FailNext("StopContainer", errors.New("shim is gone"))
			see := n.see(p)
			if err := n.r.StopPod(t.Context(), p, see, nil); err == nil {
				t.Fatal("the stop did not fail")
			}
			if err := n.r.StopPod(t.Context(), p, see, nil); err != nil {
				t.Fatal(err)
			}
			h.want(t, tt.want...)
		})
	}
	t.Run("in the pod's next life", func(t *testing.T) {
		n, p := newNode(t), with(hooked(pod("Always", "a"), "a"), 9)
		n.must(p)
		h := &hookLog{}
		n.hook = h.run
		n.rt.FailNext("StopContainer", errors.New("shim is gone"))
		see := n.see(p)
		n.r.StopPod(t.Context(), p, see, nil) //nolint:errcheck // it fails, as it should
		n.r.ForgetPod("uid-1")
		if err := n.r.StopPod(t.Context(), p, see, nil); err != nil {
			t.Fatal(err)
		}
		h.want(t, "a preStop", "a preStop")
	})
}

func TestAPodThatOnlyTheRuntimeKnowsHasItsPreStop(t *testing.T) {
	n, p := newNode(t), with(hooked(pod("Always", "a", "b"), "b"), 9)
	c := &p.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromString("web")}}}
	n.must(p)
	var got []string
	var mu sync.Mutex
	n.hook = func(_ context.Context, call lifecycle.Call) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if call.Pod != nil || call.PodIP == "" {
			t.Errorf("call = %+v", call)
		}
		if h := call.Handler.HTTPGet; h != nil {
			got = append(got, fmt.Sprint(call.Container.Name, " ", h.Path, " ", h.Port.String(), " ", call.Container.Ports[0].ContainerPort))
		} else {
			got = append(got, call.Container.Name+" "+what(call))
		}
		return "", nil
	}
	if err := n.r.StopPod(t.Context(), nil, n.see(p), nil); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := "[a /bye web 80 b preStop]"; fmt.Sprint(got) != want {
		t.Errorf("hooks = %v, want %v", got, want)
	}
	t.Run("unless somebody else wrote what is there", func(t *testing.T) {
		n := newNode(t)
		n.hook = func(context.Context, lifecycle.Call) (string, error) {
			t.Error("a hook ran")
			return "", nil
		}
		n.must(pod("Always", "a"))
		see := n.see(pod("Always", "a"))
		for _, text := range []string{"", "null", "{", `"x"`, "[]"} {
			see.Containers[0].Annotations = map[string]string{observed.AnnotationPreStopHandler: text, observed.AnnotationContainerPorts: text}
			if err := n.r.StopPod(t.Context(), nil, see, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

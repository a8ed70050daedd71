package podruntime_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// stops lists when each container was asked to stop, and with what grace.
func (n *node) stops(since time.Time) map[string]string {
	all := map[string]string{}
	for _, c := range n.rt.Calls() {
		if c.Method == "StopContainer" {
			grace := time.Duration(c.Request.(*runtimeapi.StopContainerRequest).Timeout) * time.Second
			all[c.Container] = "after " + c.Time.Sub(since).Round(time.Second).String() + " with " + grace.String()
		}
	}
	return all
}

// sidecars is a running pod a, s0, s1 whose containers take a while to end.
func sidecars(t *testing.T, takes map[string]time.Duration, grace int64) (*node, *corev1.Pod) {
	n := newNode(t)
	n.rt.AddImage("img:1", critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior {
		return critest.Behavior{TermAfter: takes[c.Metadata.Name]}
	}})
	p := pod("Always", "s:s0", "s:s1", "a")
	p.Spec.TerminationGracePeriodSeconds = &grace
	n.converge(p)
	n.takeEvents()
	n.rt.ForgetCalls()
	return n, p
}

func TestSidecarsStopLastAndInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := sidecars(t, map[string]time.Duration{"a": 10 * time.Second, "s1": 5 * time.Second, "s0": time.Second}, 30)
		start := time.Now()
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": "after 0s with 30s", "s1": "after 10s with 20s", "s0": "after 15s with 15s"}
		if got := n.stops(start); !equal(got, want) {
			t.Errorf("stops = %v, want %v", got, want)
		}
		if took := time.Since(start).Round(time.Second); took != 16*time.Second {
			t.Errorf("took %v, want 16s", took)
		}
		if got := n.see(p); got.HasRunning() || got.HasReadySandbox() {
			t.Errorf("something still runs: %+v", got)
		}
		events := n.takeEvents()
		slices.Sort(events)
		if got := strings.Join(events, "\n"); got != "a Normal Killing: Stopping container a\n"+
			"s0 Normal Killing: Stopping container s0\ns1 Normal Killing: Stopping container s1" {
			t.Errorf("events:\n%s", got)
		}
	})
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return true
}

func TestSidecarsGetTwoSecondsWhenTheGraceIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := sidecars(t, map[string]time.Duration{"a": time.Hour}, 10)
		start := time.Now()
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": "after 0s with 10s", "s1": "after 10s with 2s", "s0": "after 10s with 2s"}
		if got := n.stops(start); !equal(got, want) {
			t.Errorf("stops = %v, want %v", got, want)
		}
	})
}

func TestASidecarWaitsForNobodyWhoDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := sidecars(t, nil, 600)
		for _, name := range []string{"a", "s1"} {
			id, _ := n.rt.FindContainer("uid-1", name)
			if err := n.rt.Kill(id, 1); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil || time.Since(start) > time.Second {
			t.Errorf("StopPod = %v after %v", err, time.Since(start))
		}
	})
}

// A runtime that restarts fails the call and may be back for the next one, which
// would kill at once.
func TestARuntimeThatGoesAwayTakesNoGraceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p := sidecars(t, map[string]time.Duration{"a": 10 * time.Second}, 30)
		n.rt.Inject(critest.Fault{Method: "StopContainer", Container: "a", Err: status.Error(codes.Unavailable, "transport is closing"), Times: 1})
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); !errors.Is(err, criclient.ErrUnavailable) {
			t.Errorf("StopPod = %v, want ErrUnavailable", err)
		}
		if got := n.see(p); !got.HasReadySandbox() {
			t.Errorf("the sandbox was stopped: %+v", got)
		}
		start := time.Now()
		if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start).Round(time.Second); took != 10*time.Second {
			t.Errorf("took %v, want the 10s that the container needs", took)
		}
		if c, _ := n.see(p).Container("a"); c.ExitCode == 137 {
			t.Error("the container was killed")
		}
	})
}

func TestGrace(t *testing.T) {
	running := func(n *node, p *corev1.Pod) observed.Pod {
		n.must(p)
		n.rt.ForgetCalls()
		return n.see(p)
	}
	with := func(seconds *int64) *corev1.Pod {
		p := pod("Always", "a")
		p.Spec.TerminationGracePeriodSeconds = seconds
		return p
	}
	tests := []struct {
		name  string
		pod   *corev1.Pod
		known bool // the pod is at hand when it is stopped
		grace *int64
		want  string
	}{
		{"the pod's own", with(ptr(int64(30))), true, nil, "StopContainer a 30"},
		{"none is two seconds", with(nil), true, nil, "StopContainer a 2"},
		{"zero is two seconds", with(ptr(int64(0))), true, nil, "StopContainer a 2"},
		{"an override shortens", with(ptr(int64(30))), true, ptr(int64(5)), "StopContainer a 5"},
		{"an override of zero is two seconds", with(ptr(int64(30))), true, ptr(int64(0)), "StopContainer a 2"},
		{"without the pod its annotations tell", with(ptr(int64(30))), false, nil, "StopContainer a 30"},
		{"without the pod and annotations it is two seconds", with(nil), false, nil, "StopContainer a 2"},
		{"an override counts without the pod", with(ptr(int64(30))), false, ptr(int64(1)), "StopContainer a 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			seen := running(n, tt.pod)
			p := tt.pod
			if !tt.known {
				p = nil
			}
			if err := n.r.StopPod(t.Context(), p, seen, tt.grace); err != nil {
				t.Fatal(err)
			}
			n.wantCalls(tt.want, "StopPodSandbox")
		})
	}
	t.Run("a deletion goes before the spec", func(t *testing.T) {
		n := newNode(t)
		p := with(ptr(int64(30)))
		seen := running(n, p)
		p.DeletionGracePeriodSeconds = ptr(int64(7))
		if err := n.r.StopPod(t.Context(), p, seen, nil); err != nil {
			t.Fatal(err)
		}
		n.wantCalls("StopContainer a 7", "StopPodSandbox")
	})
}

func TestAProbesGraceCountsForItsKill(t *testing.T) {
	for _, tt := range []struct {
		name    string
		in      podruntime.Inputs
		deleted bool
		want    string
	}{
		{"liveness", results(podruntime.ProbeSuccess, podruntime.ProbeFailure), false, "StopContainer a 11"},
		{"startup", results(podruntime.ProbeFailure, podruntime.ProbeSuccess), false, "StopContainer a 12"},
		{"liveness of a pod that is being deleted", results(podruntime.ProbeSuccess, podruntime.ProbeFailure), true, "StopContainer a 40"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			p := probed(pod("Always", "a", "b"), "a")
			p.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
			c, _, _ := podspec.Find(p, "a")
			c.LivenessProbe.TerminationGracePeriodSeconds = ptr(int64(11))
			c.StartupProbe.TerminationGracePeriodSeconds = ptr(int64(12))
			n.must(p)
			n.rt.ForgetCalls()
			seen := n.see(p)
			plan := podruntime.ComputePodActions(p, seen, tt.in)
			if tt.deleted {
				p.DeletionGracePeriodSeconds = ptr(int64(40))
			}
			if _, err := n.r.EnsureSandbox(t.Context(), p, seen, plan, podruntime.SandboxSpec{}); err != nil {
				t.Fatal(err)
			}
			n.wantCalls(tt.want)
		})
	}
}

func TestAStopThatHangsEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("Always", "a", "b")
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(3600))
		n.rt.AddImage("img:1", critest.Behavior{IgnoreTERM: true})
		n.must(p)
		n.rt.ForgetCalls()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		err := n.r.StopPod(ctx, p, n.see(p), nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("StopPod = %v after %v", err, time.Since(start))
		}
		if slices.Contains(n.calls(), "StopPodSandbox") {
			t.Error("the sandbox was stopped, which kills without grace")
		}
		if err := n.r.StopPod(t.Context(), p, n.see(p), ptr(int64(1))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 12*time.Second {
			t.Errorf("gone after %v, want 12s", took)
		}
		if n.see(p).HasRunning() {
			t.Error("something still runs")
		}
	})
}

func TestStoppingWhatIsGoneIsSuccess(t *testing.T) {
	n := newNode(t)
	n.rt = critest.New(critest.Containerd16())
	gone := observed.Pod{UID: "u", Name: "p", Namespace: "n",
		Sandboxes:  []observed.Sandbox{{ID: "no-such-sandbox"}},
		Containers: []observed.Container{{ID: "no-such-container", Name: "a", State: observed.Running}}}
	r, err := podruntime.New(podruntime.Config{CRI: n.rt, Images: stubImages{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StopPod(t.Context(), nil, gone, nil); err != nil {
		t.Errorf("StopPod = %v", err)
	}
	if err := r.RemoveContainer(t.Context(), gone.Containers[0]); err != nil {
		t.Errorf("RemoveContainer = %v", err)
	}
	if err := r.RemoveSandbox(t.Context(), "no-such-sandbox"); err != nil {
		t.Errorf("RemoveSandbox = %v", err)
	}
	if err := r.StopPod(t.Context(), nil, observed.Pod{}, nil); err != nil {
		t.Errorf("StopPod of nothing = %v", err)
	}
}

func TestAFailedStopIsReportedAndTheOthersStop(t *testing.T) {
	n := newNode(t)
	p := pod("Always", "a", "b")
	n.must(p)
	n.rt.Inject(critest.Fault{Method: "StopContainer", Container: "a", Err: errors.New("shim is gone"), Times: 1})
	err := n.r.StopPod(t.Context(), p, n.see(p), nil)
	if err == nil || !strings.Contains(err.Error(), "stop container a (") {
		t.Errorf("error = %v", err)
	}
	if err := n.r.StopPod(t.Context(), p, n.see(p), nil); err != nil {
		t.Error(err)
	}
	if n.see(p).HasRunning() {
		t.Error("something still runs")
	}
}

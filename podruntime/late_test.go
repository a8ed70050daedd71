package podruntime_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

// A runtime that answers too late has done the work all the same.
func TestLateAnswers(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	for _, method := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(method, func(t *testing.T) {
			n := newNode(t)
			p := pod("Always", "a")
			n.rt.Inject(critest.Fault{Method: method, Err: late, Late: true, Times: 1})
			n.must(p)
			n.wantRunning(p, "a#0")
			n.wantCalls("RunPodSandbox", "CreateContainer a", "StartContainer a")
		})
		t.Run(method+" and the look after it fails too", func(t *testing.T) {
			n := newNode(t)
			p := pod("Always", "a")
			n.rt.Inject(critest.Fault{Method: method, Err: late, Late: true, Times: 1})
			for _, look := range []string{"ListPodSandbox", "ListContainers", "ContainerStatus"} {
				n.rt.Inject(critest.Fault{Method: look, Err: late})
			}
			if _, _, err := n.syncBlind(t.Context(), p); err == nil {
				t.Fatal("nobody noticed")
			}
			n.rt.ClearFaults()
			n.converge(p)
			n.wantRunning(p, "a#0")
			if got := n.see(p); len(got.Sandboxes) != 1 || len(got.Containers) != 1 {
				t.Errorf("there are %d sandboxes and %d containers, want one of each", len(got.Sandboxes), len(got.Containers))
			}
		})
	}
}

// syncBlind is a first pass that asks the runtime nothing before it acts.
func (n *node) syncBlind(ctx context.Context, p *corev1.Pod) (podruntime.Plan, podruntime.Result, error) {
	seen := observed.Pod{UID: observed.UID(p.UID)}
	plan := podruntime.ComputePodActions(p, seen, podruntime.Inputs{})
	sb, err := n.r.EnsureSandbox(ctx, p, seen, plan, podruntime.SandboxSpec{})
	if err != nil {
		return plan, podruntime.Result{}, err
	}
	result := n.r.Converge(ctx, p, seen, plan, sb, func(podruntime.Start) (podruntime.ContainerSpec, error) {
		return podruntime.ContainerSpec{}, nil
	})
	return plan, result, result.Err()
}

func TestACreatedContainerIsStartedNotDoubled(t *testing.T) {
	n := newNode(t)
	p := pod("Never", "a")
	n.rt.FailNext("StartContainer", errors.New("the agent ends here"))
	if _, _, err := n.sync(t.Context(), p); err == nil {
		t.Fatal("the start did not fail")
	}
	n.calls()
	n.must(p)
	n.wantCalls("StartContainer a")
	n.wantRunning(p, "a#0")
}

func TestACreatedContainerThatFailsAgainIsMadeAnew(t *testing.T) {
	n := newNode(t)
	p := pod("Never", "a")
	clear := n.rt.Inject(critest.Fault{Method: "StartContainer", Err: errors.New("no such device")})
	for range 2 {
		if _, _, err := n.sync(t.Context(), p); err == nil {
			t.Fatal("the start did not fail")
		}
	}
	clear()
	n.calls()
	n.must(p)
	n.wantCalls("CreateContainer a", "StartContainer a")
	n.wantRunning(p, "a#0")
	if got := len(n.see(p).Containers); got != 1 {
		t.Errorf("%d containers, want 1", got)
	}
}

func TestACreatedContainerOfAnotherImageIsNotStarted(t *testing.T) {
	n := newNode(t)
	p := pod("Never", "a")
	n.rt.FailNext("StartContainer", errors.New("x"))
	if _, _, err := n.sync(t.Context(), p); err == nil {
		t.Fatal("the start did not fail")
	}
	p.Spec.Containers[0].Image = "img:2"
	n.must(p)
	n.wantRunning(p, "a#1")
}

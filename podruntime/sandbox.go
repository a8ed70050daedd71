package podruntime

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// Sandbox is what the containers of a pod start in.
type Sandbox struct {
	ID observed.SandboxID
	// IPs has the primary address first; empty on the host's network.
	IPs []string
	// Config goes to the runtime again with each container. It is nil if the plan
	// starts none.
	Config *runtimeapi.PodSandboxConfig
	// Created is true when this call made the sandbox.
	Created bool
}

// EnsureSandbox carries out the first half of a plan: what has to be stopped or
// removed, and the sandbox. spec counts only if the plan starts something. It returns
// the sandbox kept or made, or the zero Sandbox when the plan ends with a stopped pod.
// The first thing that fails ends the call; the next plan starts from what was done.
func (r *Runtime) EnsureSandbox(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan Plan, spec SandboxSpec) (Sandbox, error) {
	if plan.KillPod {
		if plan.CreateSandbox && plan.SandboxID != "" {
			r.event(pod, "", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		if err := r.StopPod(ctx, pod, seen, nil); err != nil {
			return Sandbox{}, err
		}
	}
	for _, k := range plan.Kill {
		if err := r.stopContainer(ctx, pod, k.Container, stop{seen: seen, reason: k.Reason, message: k.Message}); err != nil {
			return Sandbox{}, err
		}
	}
	if err := r.reset(ctx, pod, seen, plan.Reset); err != nil {
		return Sandbox{}, err
	}
	for _, c := range plan.Prune {
		// A leftover does no harm: container GC comes again.
		if err := r.RemoveContainer(ctx, c); err != nil {
			r.log(pod).V(1).Info("Old init container was not removed", "container", c.Name, "containerID", string(c.ID), "err", err.Error())
		}
	}
	switch {
	case plan.CreateSandbox:
		return r.createSandbox(ctx, pod, plan, spec)
	case plan.KillPod, plan.Done:
		return Sandbox{}, nil
	case len(plan.Start) == 0: // nothing needs the configuration, and spec may be empty
		return Sandbox{ID: plan.SandboxID, IPs: seen.IPs()}, nil
	}
	config, err := r.sandboxConfig(pod, spec, plan.Attempt)
	if err != nil {
		return Sandbox{}, err
	}
	return Sandbox{ID: plan.SandboxID, IPs: seen.IPs(), Config: config}, nil
}

func (r *Runtime) createSandbox(ctx context.Context, pod *corev1.Pod, plan Plan, spec SandboxSpec) (Sandbox, error) {
	config, err := r.sandboxConfig(pod, spec, plan.Attempt)
	if err == nil {
		err = os.MkdirAll(config.LogDirectory, 0o755)
	}
	if err != nil {
		err = fmt.Errorf("prepare sandbox of pod %s: %w", podName(pod), err)
		r.event(pod, "", corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return Sandbox{}, err
	}
	begin := time.Now()
	call, done := finishing(ctx)
	defer done()
	id, err := r.cfg.CRI.RunPodSandbox(call, config, spec.RuntimeHandler)
	if err != nil && ctx.Err() == nil {
		if late := r.findSandbox(ctx, config.Metadata); late != "" {
			id, err = late, nil
		}
	}
	r.cfg.Hooks.SandboxCreated(pod, spec.RuntimeHandler, time.Since(begin), err)
	if err != nil {
		if ctx.Err() == nil { // else nobody waits for this pod any more
			r.event(pod, "", corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+criclient.Message(err))
		}
		return Sandbox{}, criclient.Wrap("create sandbox of pod "+podName(pod), err)
	}
	ips, err := r.sandboxIPs(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			r.event(pod, "", corev1.EventTypeWarning, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: "+criclient.Message(err))
		}
		return Sandbox{}, criclient.Wrap("look at the new sandbox of pod "+podName(pod), err)
	}
	return Sandbox{ID: observed.SandboxID(id), IPs: ips, Config: config, Created: true}, nil
}

// findSandbox looks for the ready sandbox that a failed call has made after all.
// A runtime goes on when its caller gives up, and from then on refuses the name
// as reserved (containerd issue 4604).
func (r *Runtime) findSandbox(ctx context.Context, want *runtimeapi.PodSandboxMetadata) string {
	list, err := r.cfg.CRI.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{observed.LabelPodUID: want.Uid},
	})
	if err != nil {
		return "" // the call's own error says enough; the next look will tell
	}
	for _, s := range list {
		if m := s.GetMetadata(); m.GetUid() == want.Uid && m.GetAttempt() == want.Attempt &&
			s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return s.GetId()
		}
	}
	return ""
}

func (r *Runtime) sandboxIPs(ctx context.Context, id string) ([]string, error) {
	resp, err := r.cfg.CRI.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return nil, err
	}
	network := resp.GetStatus().GetNetwork()
	var ips []string
	if ip := network.GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, more := range network.GetAdditionalIps() {
		if ip := more.GetIp(); ip != "" {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

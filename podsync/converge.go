package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// converge carries out a plan: what the pod stands on, the sandbox, containers.
func (s *Syncer) converge(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan, now time.Time) error {
	ground, err := s.prepare(ctx, pod, seen, plan)
	if err != nil {
		return err
	}
	sandbox, err := s.cfg.Runtime.EnsureSandbox(ctx, pod, seen, plan, ground.sandbox)
	if err != nil {
		return err
	}
	if sandbox.Created {
		s.cfg.Hooks.Step(pod, "sandbox ready")
		seen = withSandbox(seen, pod, plan, sandbox, now)
		if _, err := s.report(pod, s.input(pod, seen, false, now)); err != nil {
			return err
		}
	}
	resizeErr := s.resize(ctx, pod, seen, plan)
	if len(plan.Start) == 0 || ctx.Err() != nil {
		return resizeErr
	}
	result := s.cfg.Runtime.Converge(ctx, pod, seen, plan, sandbox, func(start podruntime.Start) (podruntime.ContainerSpec, error) {
		return s.containerSpec(ctx, pod, seen, start, sandbox, ground)
	})
	if s.remember(pod, result) {
		// Nothing changes in the runtime when a start fails, so no event will
		// come that would carry the reason out.
		if _, err := s.report(pod, s.input(pod, seen, false, time.Now())); err != nil {
			return errors.Join(resizeErr, result.Err(), err)
		}
	}
	return errors.Join(resizeErr, result.Err())
}

// ground is what a pod stands on before its containers start.
type ground struct {
	volumes map[string]volume.Mounted
	sandbox podruntime.SandboxSpec
	can     observed.HandlerFeatures
}

// prepare makes directories, cgroup and volumes for a pod that starts something,
// and freshens the volumes of one that runs. A pod that only stops needs nothing.
func (s *Syncer) prepare(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan) (ground, error) {
	var g ground
	starts := plan.CreateSandbox || len(plan.Start) > 0
	if !starts {
		if plan.KillPod || pod.DeletionTimestamp != nil || !seen.HasRunning() {
			return g, nil
		}
		s.refresh(ctx, pod)
		return g, nil
	}
	if err := s.makeDirs(pod); err != nil {
		s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "Failed", "error making pod data directories: "+err.Error())
		return g, err
	}
	parent, err := s.cgroup(ctx, pod)
	if err != nil {
		return g, err
	}
	if g.volumes, err = s.cfg.Volumes.SetUp(ctx, pod); err != nil {
		if ctx.Err() == nil { // else nobody waits for them any more
			s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: "+err.Error())
		}
		if !volume.RefreshOnly(err) {
			return g, fmt.Errorf("set up volumes: %w", err)
		}
	}
	if len(g.volumes) > 0 {
		s.cfg.Hooks.Step(pod, "volumes ready")
	}
	if g.sandbox, g.can, err = s.sandboxSpec(pod); err != nil {
		err = fmt.Errorf("prepare sandbox of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		return g, err
	}
	g.sandbox.CgroupParent = parent
	return g, nil
}

// refresh brings changed config maps and secrets into the volumes of a pod that
// runs. What can't be read keeps its last content: a container that has it needs
// no more.
func (s *Syncer) refresh(ctx context.Context, pod *corev1.Pod) {
	if _, err := s.cfg.Volumes.SetUp(ctx, pod); err != nil && ctx.Err() == nil {
		s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "FailedMount", err.Error())
	}
}

func (s *Syncer) cgroup(ctx context.Context, pod *corev1.Pod) (parent string, err error) {
	if s.cfg.Cgroups == nil {
		return "", nil
	}
	if parent, err = s.cfg.Cgroups.Ensure(ctx, pod); err != nil {
		err = fmt.Errorf("ensure the cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		if ctx.Err() == nil {
			s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: "+err.Error())
		}
	}
	return parent, err
}

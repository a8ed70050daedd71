package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// resize carries out the plan's changes of resources, records what was accepted,
// and says how far the pod's resize has come. A resize that fails does not keep
// containers from starting: it is the pod's condition, and tried again.
func (s *Syncer) resize(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan) error {
	if s.cfg.Allocations == nil || plan.KillPod || plan.CreateSandbox {
		return nil
	}
	uid := observed.UID(pod.UID)
	var resizeErr error
	changed := false
	if plan.ResizePod {
		var cgroup podruntime.PodCgroup
		if s.cfg.Cgroups != nil {
			cgroup = s.cfg.Cgroups.Pod(pod)
		}
		done, err := s.cfg.Runtime.Resize(ctx, pod, seen, plan, cgroup)
		for _, d := range done {
			old, _ := s.cfg.Allocations.Actuated(uid, d.Name)
			err = errors.Join(err, s.cfg.Allocations.SetActuated(uid, d.Name, d.Resources))
			now, _ := s.cfg.Allocations.Actuated(uid, d.Name)
			changed = changed || !equality.Semantic.DeepEqual(old, now)
		}
		if resizeErr = err; err == nil {
			s.cfg.Hooks.Step(pod, "resized")
		}
		if ctx.Err() != nil {
			return err // nobody waits for this pass any more
		}
	}
	s.cfg.Allocations.Progress(pod, seen, resizeErr, time.Now())
	switch {
	case changed && resizeErr == nil:
		// The runtime tells of no event, and seen has the old amounts.
		s.cfg.SyncAt(uid, time.Now())
	case plan.ResizePod:
		if _, err := s.report(pod, s.input(pod, seen, false, time.Now())); err != nil {
			return errors.Join(resizeErr, err)
		}
	}
	if resizeErr != nil {
		return fmt.Errorf("resize: %w", resizeErr)
	}
	return nil
}

// unfinished reports whether a resize is under way.
func unfinished(conditions []corev1.PodCondition) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizeInProgress })
}

// addResources tells what is in force, and which resizes are on their way.
func (s *Syncer) addResources(pod *corev1.Pod, in *status.Input) {
	uid := observed.UID(pod.UID)
	in.Actuated = make(map[string]corev1.ResourceRequirements)
	for c := range podspec.All(pod) {
		if r, ok := s.cfg.Allocations.Actuated(uid, c.Name); ok {
			in.Actuated[c.Name] = r
		}
	}
	if r, ok := s.cfg.Allocations.Actuated(uid, podruntime.PodItself); ok {
		in.ActuatedPod = &r
	}
	in.Resize = s.cfg.Allocations.Conditions(uid)
}

package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

// StopPod stops the pod's containers and sandboxes, with grace in seconds in
// place of the pod's own rules when it is not nil. pod is nil for a pod that
// only the runtime knows. A status that can't be reported does not keep
// containers running; it is logged, and reported again by the release.
func (s *Syncer) StopPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod, grace *int64) error {
	if pod != nil {
		_, err := s.report(pod, s.input(pod, seen, false, time.Now()))
		s.late(pod, err)
	}
	if err := s.cfg.Runtime.StopPod(ctx, pod, seen, grace); err != nil {
		if pod != nil && ctx.Err() == nil { // else a stop with less grace follows
			s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
		}
		return err
	}
	if pod != nil {
		s.cfg.Hooks.Step(pod, "stopped")
	}
	return nil
}

// late notes a status that is not on disk yet. The release has to write it.
func (s *Syncer) late(pod *corev1.Pod, err error) {
	if err != nil {
		s.cfg.Log.Error(err, "status is late", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID)
	}
}

// giveBack returns what a pod holds of the node beside its volumes.
func (s *Syncer) giveBack(ctx context.Context, uid observed.UID) error {
	if s.cfg.Cgroups != nil {
		if err := s.cfg.Cgroups.Remove(ctx, uid); err != nil {
			return fmt.Errorf("remove the pod's cgroup: %w", err)
		}
	}
	if s.cfg.UserNamespaces != nil {
		if err := s.cfg.UserNamespaces.Release(uid); err != nil {
			return fmt.Errorf("release the pod's user namespace: %w", err)
		}
	}
	return nil
}

// ReleasePod gives back the pod's volumes, its cgroup and its users, and reports how
// it ended. It has not succeeded before that is on disk. The pod's
// directory stays until [Syncer.Forget]: a pod that has ended may still be
// desired, and its result is kept there.
func (s *Syncer) ReleasePod(ctx context.Context, pod *corev1.Pod, seen observed.Pod) error {
	uid := observed.UID(pod.UID)
	now := time.Now()
	st, err := s.report(pod, s.input(pod, status.Recall(pod, seen, s.last(pod)), true, now))
	s.late(pod, err)
	if err := s.cfg.Volumes.TearDown(ctx, uid); err != nil {
		return fmt.Errorf("tear down volumes: %w", err)
	}
	if err := s.giveBack(ctx, uid); err != nil {
		return err
	}
	if _, err := s.cfg.Statuses.Set(pod, status.Terminate(pod, st, now)); err != nil && !errors.Is(err, status.ErrRejected) {
		return err
	}
	s.cfg.Runtime.ForgetPod(uid)
	s.mu.Lock()
	delete(s.mu.failures, uid)
	s.mu.Unlock()
	s.cfg.Hooks.Step(pod, "released")
	return nil
}

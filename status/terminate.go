package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// The words of a pod that was ended by spec.activeDeadlineSeconds, fit for
// Input.Verdict.
const (
	ReasonDeadlineExceeded  = "DeadlineExceeded"
	MessageDeadlineExceeded = "Pod was active on the node longer than the specified deadline"
)

// DeadlineExceeded reports whether the pod has been active for longer than its
// spec allows, and when that is or was; at is zero for a pod without a deadline
// or not started yet. The clock runs from status.startTime, so a restart of the
// agent does not set it back.
func DeadlineExceeded(pod *corev1.Pod, st corev1.PodStatus, now time.Time) (exceeded bool, at time.Time) {
	if pod.Spec.ActiveDeadlineSeconds == nil || st.StartTime == nil {
		return false, time.Time{}
	}
	at = st.StartTime.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
	return !now.Before(at), at
}

// Terminate makes the last status of a pod whose containers have all ended and
// whose resources are given back. Containers that nobody saw ending are
// reported as ended, so that nothing waits for them, and a pod without a result
// has failed, unless it is static.
func Terminate(pod *corev1.Pod, st corev1.PodStatus, now time.Time) corev1.PodStatus {
	last := *st.DeepCopy()
	st = *st.DeepCopy()
	if hadInitialized(pod, &st) {
		for i := range st.ContainerStatuses {
			endForSure(&st.ContainerStatuses[i])
		}
	}
	for i := range lastStarted(&st) {
		endForSure(&st.InitContainerStatuses[i])
	}
	for i := range st.EphemeralContainerStatuses {
		if cs := &st.EphemeralContainerStatuses[i]; cs.State.Running != nil {
			endForSure(cs)
			cs.Started = nil
		}
	}
	if !podspec.IsStatic(pod) && !IsTerminal(st.Phase) {
		st.Phase = corev1.PodFailed
	}
	ready := containersReady(pod, &st)
	for _, c := range []corev1.PodCondition{initialized(pod, &st), podReady(pod, ready), ready} {
		c.ObservedGeneration = pod.Generation
		c = since(c, last.Conditions, metav1.NewTime(now))
		if old := condition(st.Conditions, c.Type); old != nil {
			*old = c
		} else {
			st.Conditions = append(st.Conditions, c)
		}
	}
	return Normalize(pod, st)
}

func endForSure(cs *corev1.ContainerStatus) {
	if cs.State.Terminated != nil {
		return
	}
	end := lost(cs, messageUnsure)
	if before := cs.LastTerminationState.Terminated; before != nil && cs.State.Running == nil {
		// It only waited for its next start: its last end is its end.
		end.Terminated = before.DeepCopy()
		cs.LastTerminationState = corev1.ContainerState{}
	}
	cs.State = end
	cs.Ready = false
	started := false
	cs.Started = &started
}

// hadInitialized reports whether regular containers may have run.
func hadInitialized(pod *corev1.Pod, st *corev1.PodStatus) bool {
	if len(pod.Spec.InitContainers) == 0 || everRan(st.ContainerStatuses) {
		return true
	}
	c := &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	cs := find(st.InitContainerStatuses, c.Name)
	switch {
	case cs == nil:
		return false
	case podspec.IsSidecar(c):
		return cs.Started != nil && *cs.Started
	default:
		return cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
	}
}

// lastStarted returns how many init containers may have run: all up to the last
// one that is known to, and the first in any case.
func lastStarted(st *corev1.PodStatus) int {
	n := min(1, len(st.InitContainerStatuses))
	for i := range st.InitContainerStatuses {
		if everRan(st.InitContainerStatuses[i : i+1]) {
			n = i + 1
		}
	}
	return n
}

package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// The words of a pod whose containers all start again, because one of them exited
// and its rule asks for that (KEP-5532).
const (
	// ReasonRestartingAll is the reason of the end of a container that was removed
	// for it. Such an end is none by which the restart policy could decide.
	ReasonRestartingAll       = "RestartingAllContainers"
	messageRestartingAll      = "The container was removed, because all containers of the pod start again"
	reasonRestartAllStarted   = "RestartAllContainersStarted"
	messageRestartAllExitRule = "container exited with restart policy rule"
)

// restartingAll reports whether the containers of the pod are being removed so that
// all start again in the same sandbox. It begins with an exit that asks for it and
// lasts until the runtime holds none of them.
//
// podruntime plans by the same rule; what it is told is the condition that comes
// out of this.
func restartingAll(in *Input) bool {
	if !hasRestartAllRule(in.Pod) || in.Terminal || in.Pod.DeletionTimestamp != nil {
		return false
	}
	need := podspec.NeedSandbox(in.Pod, in.Seen)
	if need.Create {
		return false // in a new sandbox everything starts again by itself
	}
	begun, any := isTrue(in.Last.Conditions, corev1.AllContainersRestarting), false
	for c, kind := range podspec.All(in.Pod) {
		if kind == podspec.Ephemeral {
			continue
		}
		newest := true
		for _, o := range in.Seen.Containers {
			if o.Name != c.Name || !held(o) {
				continue
			}
			any = true
			if o.Sandbox == need.ID && newest {
				begun = begun || o.State == observed.Exited && podspec.RestartsAll(c, o.ExitCode)
				newest = false
			}
		}
	}
	return begun && any
}

// held reports whether the runtime itself has the instance: [Recall] knows no hash.
func held(c observed.Container) bool { return c.Hash != "" }

func hasRestartAllRule(pod *corev1.Pod) bool {
	for c, kind := range podspec.All(pod) {
		if kind == podspec.Ephemeral || c.RestartPolicy == nil {
			continue
		}
		for i := range c.RestartPolicyRules {
			if c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// wasReset reports whether a container that the runtime does not have any more was
// removed in order to start again.
func wasReset(in *Input, kind podspec.Kind, old *corev1.ContainerStatus) bool {
	return old != nil && kind != podspec.Ephemeral && (old.State.Running != nil || ended(old) != nil) &&
		!in.Terminal && in.Pod.DeletionTimestamp == nil && isTrue(in.Last.Conditions, corev1.AllContainersRestarting)
}

// afterReset is the status of a container that was removed to start again. An exit
// code that was seen stays; one that was not is that of the signal.
func afterReset(c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	st := corev1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		RestartCount: old.RestartCount,
		State:        corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: ReasonRestartingAll}},
	}
	last := lost(old, messageRestartingAll)
	if end := ended(old); end != nil {
		last.Terminated = end.DeepCopy()
	}
	if last.Terminated.Reason != ReasonRestartingAll {
		last.Terminated.Reason = ReasonRestartingAll
		st.RestartCount++
	}
	st.LastTerminationState = last
	return st
}

// mayRunAgain is the restart policy's word about a container with this end.
func mayRunAgain(pod *corev1.Pod, c *corev1.Container, end *corev1.ContainerStateTerminated) bool {
	return end.Reason == ReasonRestartingAll || podspec.MayRestart(pod, c, end.ExitCode)
}

// allRestarting is the condition of pods that have such a rule.
func allRestarting(in *Input, st *corev1.PodStatus) corev1.PodCondition {
	const t = corev1.AllContainersRestarting
	switch {
	case st.Phase == corev1.PodSucceeded:
		return no(t, reasonCompleted, "")
	case st.Phase == corev1.PodFailed:
		return no(t, reasonFailed, "")
	case restartingAll(in):
		c := yes(t, reasonRestartAllStarted)
		c.Message = messageRestartAllExitRule
		return c
	default:
		return no(t, "", "")
	}
}

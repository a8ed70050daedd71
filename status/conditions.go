package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// Reasons of conditions, in the kubelet's words.
const (
	reasonSandboxNotReady = "PodSandboxNotReady"
	reasonNotInitialized  = "ContainersNotInitialized"
	reasonNotReady        = "ContainersNotReady"
	reasonGatesNotReady   = "ReadinessGatesNotReady"
	reasonCompleted       = "PodCompleted"
	reasonFailed          = "PodFailed"
	reasonNoStatuses      = "UnknownContainerStatuses"
)

// owned reports whether only the node writes conditions of this type.
func owned(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReadyToStartContainers, corev1.PodResizePending, corev1.PodResizeInProgress,
		corev1.AllContainersRestarting:
		return true
	default:
		return false
	}
}

// conditions keeps what others wrote into the pod's status, and then has ours in
// the order in which the kubelet appends them.
func conditions(in *Input, st *corev1.PodStatus) []corev1.PodCondition {
	var list []corev1.PodCondition
	for _, c := range in.Pod.Status.Conditions {
		if !owned(c.Type) && c.Type != corev1.DisruptionTarget {
			list = append(list, *c.DeepCopy())
		}
	}
	if !IsTerminal(st.Phase) {
		for _, c := range in.Resize {
			list = append(list, sinceReason(c, in.Last.Conditions, metav1.NewTime(in.Now)))
		}
	}
	// DisruptionTarget is shared: the node's own word is in the status reported
	// before, a controller's in the pod.
	for _, from := range [][]corev1.PodCondition{in.Last.Conditions, in.Pod.Status.Conditions} {
		if c := condition(from, corev1.DisruptionTarget); c != nil {
			list = append(list, *c.DeepCopy())
			break
		}
	}
	ready := containersReady(in.Pod, st)
	for _, c := range []corev1.PodCondition{
		readyToStart(in),
		initialized(in.Pod, st),
		podReady(in.Pod, ready),
		ready,
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
	} {
		c.ObservedGeneration = in.Pod.Generation
		list = append(list, since(c, in.Last.Conditions, metav1.NewTime(in.Now)))
	}
	if hasRestartAllRule(in.Pod) {
		list = append(list, since(allRestarting(in, st), in.Last.Conditions, metav1.NewTime(in.Now)))
	}
	return list
}

// since gives c the time of its last transition: the old one as long as the
// condition's status is the old one.
func since(c corev1.PodCondition, last []corev1.PodCondition, now metav1.Time) corev1.PodCondition {
	c.LastTransitionTime = now
	if old := condition(last, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

// sinceReason is since for the resize conditions, which are True or absent: what
// changes is their reason (KEP-1287).
func sinceReason(c corev1.PodCondition, last []corev1.PodCondition, now metav1.Time) corev1.PodCondition {
	c.LastTransitionTime = now
	if old := condition(last, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

func condition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func isTrue(list []corev1.PodCondition, t corev1.PodConditionType) bool {
	c := condition(list, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

func no(t corev1.PodConditionType, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func yes(t corev1.PodConditionType, reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason}
}

func readyToStart(in *Input) corev1.PodCondition {
	if need := podspec.NeedSandbox(in.Pod, in.Seen); need.Create {
		return no(corev1.PodReadyToStartContainers, reasonSandboxNotReady, need.Reason)
	}
	return yes(corev1.PodReadyToStartContainers, "")
}

func initialized(pod *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	const t = corev1.PodInitialized
	if st.ContainerStatuses == nil && len(pod.Spec.InitContainers) > 0 {
		return no(t, reasonNoStatuses, "")
	}
	var unknown, incomplete []string
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := find(st.InitContainerStatuses, c.Name)
		switch {
		case cs == nil:
			unknown = append(unknown, c.Name)
		case podspec.IsSidecar(c) && (cs.Started == nil || !*cs.Started),
			!podspec.IsSidecar(c) && !cs.Ready:
			incomplete = append(incomplete, c.Name)
		}
	}
	switch {
	case st.Phase == corev1.PodSucceeded && len(unknown) == 0:
		return yes(t, reasonCompleted)
	case everRan(st.ContainerStatuses), len(unknown)+len(incomplete) == 0:
		return yes(t, "")
	default:
		return no(t, reasonNotInitialized, which(unknown, "incomplete", incomplete))
	}
}

// everRan reports whether any of the containers runs or has run.
func everRan(list []corev1.ContainerStatus) bool {
	for i := range list {
		if list[i].State.Running != nil || ended(&list[i]) != nil {
			return true
		}
	}
	return false
}

func containersReady(pod *corev1.Pod, st *corev1.PodStatus) corev1.PodCondition {
	const t = corev1.ContainersReady
	if st.ContainerStatuses == nil {
		return no(t, reasonNoStatuses, "")
	}
	var unknown, unready []string
	for c, kind := range podspec.All(pod) {
		if kind == podspec.Ephemeral || kind == podspec.Init && !podspec.IsSidecar(c) {
			continue
		}
		switch cs := find(*statusesOf(st, kind), c.Name); {
		case cs == nil:
			unknown = append(unknown, c.Name)
		case !cs.Ready:
			unready = append(unready, c.Name)
		}
	}
	switch {
	case st.Phase == corev1.PodSucceeded && len(unknown) == 0:
		return no(t, reasonCompleted, "")
	case st.Phase == corev1.PodFailed && len(unknown) == 0:
		return no(t, reasonFailed, "")
	case len(unknown)+len(unready) > 0:
		return no(t, reasonNotReady, which(unknown, "unready", unready))
	default:
		return yes(t, "")
	}
}

// podReady adds the readiness gates (KEP-580) to what the containers say.
func podReady(pod *corev1.Pod, ready corev1.PodCondition) corev1.PodCondition {
	if ready.Status != corev1.ConditionTrue {
		ready.Type = corev1.PodReady
		return ready
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := condition(pod.Status.Conditions, gate.ConditionType); {
		case c == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	if len(closed) > 0 {
		return no(corev1.PodReady, reasonGatesNotReady, strings.Join(closed, ", "))
	}
	return yes(corev1.PodReady, "")
}

func which(unknown []string, kind string, others []string) string {
	var parts []string
	if len(unknown) > 0 {
		parts = append(parts, fmt.Sprintf("containers with unknown status: %s", unknown))
	}
	if len(others) > 0 {
		parts = append(parts, fmt.Sprintf("containers with %s status: %s", kind, others))
	}
	return strings.Join(parts, ", ")
}

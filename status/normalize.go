package status

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// messageBytes is what the termination messages of one pod may have together
// (API documentation of Container.terminationMessagePath).
const messageBytes = 12 << 10

// Normalize returns st in the form in which two statuses of a pod can be
// compared and sent: times in whole seconds, as JSON has them, termination
// messages within their limit, regular and ephemeral containers by name and init
// containers in the order of the spec.
func Normalize(pod *corev1.Pod, st corev1.PodStatus) corev1.PodStatus {
	st = *st.DeepCopy()
	if st.StartTime != nil {
		*st.StartTime = seconds(*st.StartTime)
	}
	for i := range st.Conditions {
		c := &st.Conditions[i]
		c.LastProbeTime = seconds(c.LastProbeTime)
		c.LastTransitionTime = seconds(c.LastTransitionTime)
	}
	containers := len(pod.Spec.Containers) + len(pod.Spec.InitContainers) + len(pod.Spec.EphemeralContainers)
	limit := messageBytes / max(1, containers)
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, limit)
			normalizeState(&list[i].LastTerminationState, limit)
		}
	}
	byName := func(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(st.ContainerStatuses, byName)
	slices.SortStableFunc(st.EphemeralContainerStatuses, byName)
	inSpec := func(name string) int {
		return slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	}
	slices.SortStableFunc(st.InitContainerStatuses, func(a, b corev1.ContainerStatus) int { return inSpec(a.Name) - inSpec(b.Name) })
	return st
}

func normalizeState(s *corev1.ContainerState, limit int) {
	if s.Running != nil {
		s.Running.StartedAt = seconds(s.Running.StartedAt)
	}
	if t := s.Terminated; t != nil {
		t.StartedAt, t.FinishedAt = seconds(t.StartedAt), seconds(t.FinishedAt)
		t.Message = cut(t.Message, limit)
	}
}

func seconds(t metav1.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

// cut shortens s to at most limit bytes without splitting a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

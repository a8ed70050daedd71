package podsync

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// ranOnceAndIsLost reports whether a pod with restart policy Never has run and
// the runtime has lost every trace of it. To start it again would be to run it
// twice; the pod has failed.
// https://github.com/kubernetes/kubernetes/issues/51142
func ranOnceAndIsLost(pod *corev1.Pod, seen observed.Pod, last corev1.PodStatus) bool {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || seen.Exists() {
		return false
	}
	return slices.ContainsFunc(last.ContainerStatuses, func(cs corev1.ContainerStatus) bool {
		return cs.State.Running != nil || cs.State.Terminated != nil
	})
}

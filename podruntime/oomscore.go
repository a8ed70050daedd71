package podruntime

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	helper "k8s.io/component-helpers/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// The scores of the OOM killer: from -1000, never killed, to 1000, killed first.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// oomScoreAdj tells the kernel whom to kill first: those who asked for little and
// use much. A sidecar is never an easier victim than the containers it serves.
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, nodeMemory int64) int64 {
	if podspec.IsCritical(pod) && pod.Spec.PriorityClassName == "system-node-critical" {
		return oomGuaranteed
	}
	switch podspec.QoS(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	share := unclaimedShare(pod)
	score := burstableScore(memoryRequest(&c.Resources), share, nodeMemory)
	if kind != podspec.Init || !podspec.IsSidecar(c) || len(pod.Spec.Containers) == 0 {
		return score
	}
	least := int64(math.MaxInt64)
	for i := range pod.Spec.Containers {
		least = min(least, memoryRequest(&pod.Spec.Containers[i].Resources))
	}
	return min(score, burstableScore(least, share, nodeMemory))
}

// unclaimedShare is each container's part of the memory that the pod requests
// beyond what its containers do (KEP-2837).
func unclaimedShare(pod *corev1.Pod) int64 {
	n := int64(len(pod.Spec.Containers) + len(pod.Spec.InitContainers))
	if pod.Spec.Resources == nil || n == 0 {
		return 0
	}
	claimed := helper.AggregateContainerRequests(pod, helper.PodResourcesOptions{})
	return max(memoryRequest(pod.Spec.Resources)-claimed.Memory().Value(), 0) / n
}

// burstableScore lies between the other two classes: 3 to 999.
func burstableScore(request, share, nodeMemory int64) int64 {
	if nodeMemory <= 0 {
		return 999
	}
	if request >= nodeMemory-share {
		return 3
	}
	request += share
	part := request / max(nodeMemory/1000, 1)
	if nodeMemory < math.MaxInt64/1000 { // exact, as far as int64 goes
		part = 1000 * request / nodeMemory
	}
	return min(max(1000-part, 3), 999)
}

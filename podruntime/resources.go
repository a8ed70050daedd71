package podruntime

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// cpuPeriod is the CFS period in microseconds, the kubelet's default.
const cpuPeriod = 100_000

// The scores of the OOM killer: from -1000, never killed, to 1000, killed first.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// linuxResources turns the requests and limits of one container into CRI terms.
// nodeMemory is the node's memory in bytes, 0 when nobody knows it.
func linuxResources(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, nodeMemory int64) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{
		CpuShares:          cpuShares(c.Resources),
		CpuQuota:           podspec.CPUQuota(podspec.Milli(*c.Resources.Limits.Cpu()), cpuPeriod),
		CpuPeriod:          cpuPeriod,
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
		OomScoreAdj:        oomScoreAdj(pod, c, kind, nodeMemory),
	}
}

// cpuShares uses the request; a limit stands in for a request that is not given.
func cpuShares(r corev1.ResourceRequirements) int64 {
	cpu, ok := r.Requests[corev1.ResourceCPU]
	if !ok {
		cpu = r.Limits[corev1.ResourceCPU]
	}
	return podspec.CPUShares(podspec.Milli(cpu))
}

// oomScoreAdj tells the kernel whom to kill first: those who asked for little and
// use much. A sidecar is never an easier victim than the containers it serves.
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, nodeMemory int64) int64 {
	if isNodeCritical(pod) {
		return oomGuaranteed
	}
	switch podspec.QoS(pod) {
	case corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case corev1.PodQOSBestEffort:
		return oomBestEffort
	}
	score := burstableScore(memoryRequest(c), nodeMemory)
	if kind != podspec.Init || !podspec.IsSidecar(c) || len(pod.Spec.Containers) == 0 {
		return score
	}
	least := int64(math.MaxInt64)
	for i := range pod.Spec.Containers {
		least = min(least, memoryRequest(&pod.Spec.Containers[i]))
	}
	return min(score, burstableScore(least, nodeMemory))
}

func memoryRequest(c *corev1.Container) int64 {
	if q, ok := c.Resources.Requests[corev1.ResourceMemory]; ok {
		return q.Value()
	}
	return c.Resources.Limits.Memory().Value()
}

// burstableScore lies between the other two classes: 3 to 999.
func burstableScore(request, nodeMemory int64) int64 {
	switch {
	case nodeMemory <= 0:
		return 999
	case request >= nodeMemory:
		return 3
	}
	share := request / max(nodeMemory/1000, 1)
	if nodeMemory < math.MaxInt64/1000 { // exact, as far as int64 goes
		share = 1000 * request / nodeMemory
	}
	return min(max(1000-share, 3), 999)
}

// isNodeCritical: such a pod keeps the node itself going. Priorities from two
// billion up are reserved for the system.
func isNodeCritical(pod *corev1.Pod) bool {
	critical := pod.Spec.Priority != nil && *pod.Spec.Priority >= 2_000_000_000 ||
		podspec.IsStatic(pod)
	return critical && pod.Spec.PriorityClassName == "system-node-critical"
}

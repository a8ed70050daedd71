package podruntime

import (
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// setUnified writes one file of the container's cgroup, on cgroup v2.
func setUnified(res *runtimeapi.LinuxContainerResources, file string, value int64) {
	if res.Unified == nil {
		res.Unified = make(map[string]string, 5)
	}
	res.Unified[file] = strconv.FormatInt(value, 10)
}

// setMemoryQoS is KEP-2570. Reservations are written even when they are none: the
// container may have had some before a resize.
func (r rules) setMemoryQoS(res *runtimeapi.LinuxContainerResources, pod *corev1.Pod, c *corev1.Container) {
	request := memoryRequest(&c.Resources)
	var always, usually int64
	switch {
	case !r.MemoryQoS.Tiered:
	case podspec.QoS(pod) == corev1.PodQOSGuaranteed:
		always = request
	default:
		usually = request
	}
	setUnified(res, "memory.min", always)
	setUnified(res, "memory.low", usually)
	if high := r.throttleAt(pod, c, request); high > request {
		setUnified(res, "memory.high", high)
	}
}

// throttleAt is how much memory makes the kernel slow the container down; 0 when
// nothing does.
func (r rules) throttleAt(pod *corev1.Pod, c *corev1.Container, request int64) int64 {
	ceiling := c.Resources.Limits.Memory().Value()
	switch {
	case r.MemoryQoS.ThrottlingFactor == 0, request > 0 && request == ceiling:
		return 0
	case ceiling == 0 && pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero():
		return 0 // the pod's cgroup slows them down together
	case ceiling == 0:
		ceiling = r.MemoryQoS.Allocatable
	}
	high := float64(request) + r.MemoryQoS.ThrottlingFactor*float64(ceiling-request)
	return int64(high/float64(r.page)) * r.page
}

// setSwap bounds the swap space of a container.
func (r rules) setSwap(res *runtimeapi.LinuxContainerResources, pod *corev1.Pod, c *corev1.Container) {
	if r.CgroupV2 {
		setUnified(res, "memory.swap.max", r.swapShare(pod, c))
		return
	}
	// cgroup v1 counts memory and swap together, so equal limits leave no swap.
	res.MemorySwapLimitInBytes = res.MemoryLimitInBytes
}

// swapShare is in proportion to the memory request. A container whose request is
// its limit wants a steady speed, and so does a critical pod.
func (r rules) swapShare(pod *corev1.Pod, c *corev1.Container) int64 {
	request, limit := memoryRequest(&c.Resources), c.Resources.Limits.Memory().Value()
	if !r.Swap.Limited || r.nodeMemory <= 0 || podspec.IsCritical(pod) ||
		podspec.QoS(pod) != corev1.PodQOSBurstable || request == limit {
		return 0
	}
	return int64(float64(request) / float64(r.nodeMemory) * float64(r.Swap.Total))
}

func memoryPage() int64 { return int64(os.Getpagesize()) }

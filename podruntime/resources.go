package podruntime

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// ResourcePolicy says how requests and limits become settings of the kernel. The
// zero value is the kubelet's default on cgroup v1.
type ResourcePolicy struct {
	// NoCPUQuota leaves processor time to the weights alone: no container is
	// stopped when it has used up its limit.
	NoCPUQuota bool
	// CPUPeriod is the span over which a processor limit is counted; default
	// 100ms, and from 1µs to 1s.
	CPUPeriod time.Duration
	// HugePageSizes are the node's, in bytes. Nil asks the kernel, once, in [New].
	HugePageSizes []int64
	// CgroupV2 is true where the unified hierarchy is in use. Only there can the
	// kernel do what SingleProcessOOMKill, MemoryQoS and Swap.Limited speak of.
	CgroupV2 bool
	// SingleProcessOOMKill lets the OOM killer end one process of a container.
	// Otherwise the whole container goes with it.
	SingleProcessOOMKill bool
	MemoryQoS            MemoryQoS
	Swap                 Swap
}

// MemoryQoS protects requested memory and slows down those who near their limit
// (KEP-2570).
type MemoryQoS struct {
	// Tiered reserves what is requested: for a Guaranteed pod whatever happens,
	// for others until the node is out of memory.
	Tiered bool
	// ThrottlingFactor, from 0 to 1, says how far between request and limit a
	// container is slowed down. 0 never slows one down.
	ThrottlingFactor float64
	// Allocatable is the node's memory for pods in bytes. It stands in for the
	// limit of a container that has none.
	Allocatable int64
}

// Swap says who may use swap space (KEP-2400).
type Swap struct {
	// Controlled is true when the kernel can limit swap per container. Nothing is
	// set where it cannot.
	Controlled bool
	// Limited gives containers of Burstable pods a share of Total, the node's swap
	// in bytes, after their memory request. Otherwise nobody swaps.
	Limited bool
	Total   int64
}

// rules turn requests and limits into CRI terms on one node. They never change.
type rules struct {
	ResourcePolicy
	nodeMemory int64 // in bytes, 0 when nobody knows
	page       int64 // of memory, in bytes
}

func newRules(p ResourcePolicy, nodeMemory int64) (rules, error) {
	switch {
	case p.CPUPeriod == 0:
		p.CPUPeriod = 100 * time.Millisecond
	case p.CPUPeriod < time.Microsecond || p.CPUPeriod > time.Second:
		return rules{}, fmt.Errorf("podruntime: Config.Resources.CPUPeriod %v is not from 1µs to 1s", p.CPUPeriod)
	}
	if f := p.MemoryQoS.ThrottlingFactor; !(f >= 0 && f <= 1) {
		return rules{}, fmt.Errorf("podruntime: Config.Resources.MemoryQoS.ThrottlingFactor %v is not from 0 to 1", f)
	}
	if slices.ContainsFunc(p.HugePageSizes, func(size int64) bool { return size <= 0 }) {
		return rules{}, fmt.Errorf("podruntime: Config.Resources.HugePageSizes %v has one that is no size", p.HugePageSizes)
	}
	if p.HugePageSizes == nil {
		p.HugePageSizes = kernelHugePages()
	}
	return rules{ResourcePolicy: p, nodeMemory: nodeMemory, page: memoryPage()}, nil
}

// linuxResources are those of one container.
func (r rules) linuxResources(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind) *runtimeapi.LinuxContainerResources {
	memory := limitOf(pod, c, corev1.ResourceMemory)
	res := r.linux(requestOrLimit(pod, c), limitOf(pod, c, corev1.ResourceCPU), memory)
	res.OomScoreAdj = oomScoreAdj(pod, c, kind, r.nodeMemory)
	res.HugepageLimits = r.hugePageLimits(pod, c)
	if r.CgroupV2 && !r.SingleProcessOOMKill {
		setUnified(res, "memory.oom.group", 1)
	}
	if r.CgroupV2 {
		r.setMemoryQoS(res, pod, c)
	}
	if r.Swap.Controlled {
		r.setSwap(res, pod, c)
	}
	return res
}

// sandboxResources are what the pod's containers ask for together. Runtimes that
// put a pod into a virtual machine size it by them.
func (r rules) sandboxResources(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	sum := podspec.WithoutOverhead(pod)
	request, ok := sum.Requests[corev1.ResourceCPU]
	if !ok {
		request = sum.Limits[corev1.ResourceCPU]
	}
	return r.linux(request, sum.Limits[corev1.ResourceCPU], sum.Limits[corev1.ResourceMemory])
}

// overhead is what the sandbox itself costs. It is request and limit at once.
func (r rules) overhead(pod *corev1.Pod) *runtimeapi.LinuxContainerResources {
	if pod.Spec.Overhead == nil {
		return nil
	}
	cpu := pod.Spec.Overhead[corev1.ResourceCPU]
	return r.linux(cpu, cpu, pod.Spec.Overhead[corev1.ResourceMemory])
}

// linux has processor weight, processor limit and memory limit.
func (r rules) linux(request, limit, memory resource.Quantity) *runtimeapi.LinuxContainerResources {
	res := &runtimeapi.LinuxContainerResources{
		CpuShares:          podspec.CPUShares(podspec.Milli(request)),
		MemoryLimitInBytes: memory.Value(),
	}
	if !r.NoCPUQuota {
		res.CpuPeriod = r.CPUPeriod.Microseconds()
		res.CpuQuota = podspec.CPUQuota(podspec.Milli(limit), res.CpuPeriod)
	}
	return res
}

// limitOf is the container's limit. Where it has none the pod's counts (KEP-2837):
// no container can use more than the pod as a whole.
func limitOf(pod *corev1.Pod, c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	q := c.Resources.Limits[name]
	if q.IsZero() && pod.Spec.Resources != nil {
		return pod.Spec.Resources.Limits[name]
	}
	return q
}

// requestOrLimit is the processor request; a limit stands in for a request that is
// not given, as in the API's defaulting.
func requestOrLimit(pod *corev1.Pod, c *corev1.Container) resource.Quantity {
	if q, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		return q
	}
	return limitOf(pod, c, corev1.ResourceCPU)
}

func memoryRequest(r *corev1.ResourceRequirements) int64 {
	if q, ok := r.Requests[corev1.ResourceMemory]; ok {
		return q.Value()
	}
	return r.Limits.Memory().Value()
}

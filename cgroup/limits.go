package cgroup

import (
	"fmt"
	"math"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// Unlimited as a quota, a limit of memory or of processes takes the limit away.
const Unlimited int64 = -1

// leastShares are the CPU shares of who asked for nothing.
const leastShares int64 = 2

// unbounded is more than any machine has: what the kubelet writes where huge pages
// are not bounded, and less than what the kernel says for no limit of memory.
const unbounded int64 = 1 << 62

// Resources are values of one cgroup. A nil field is left as it is; one that the
// system's cgroup version does not have is ignored.
type Resources struct {
	CPUShares *int64 // 2 to 262144; cgroup v2 has a coarser weight in its place
	CPUQuota  *int64 // microseconds in each CPUPeriod, or Unlimited
	CPUPeriod *int64 // microseconds; written only together with CPUQuota
	Memory    *int64 // bytes, or Unlimited
	Pids      *int64 // processes and threads, or Unlimited
	// Hugepages are bytes by page size in the kernel's words: "2MB", "1GB".
	Hugepages map[string]int64

	// Cgroup v2 alone, in bytes: what is never reclaimed, what is reclaimed last,
	// and where allocations slow down.
	MemoryMin, MemoryLow, MemoryHigh *int64
}

// Limits are the values of the pod's cgroup. It bounds a resource only if the pod
// as a whole is bounded: by a pod-level limit, or by one of each container. The
// pod's overhead is in all sums, and a memory request is no more than a wish on
// cgroup v1.
func Limits(pod *corev1.Pod, cfg Config) Resources {
	qos := podspec.QoS(pod)
	requests := podspec.Requests(pod)
	r := Resources{CPUShares: new(leastShares), Hugepages: hugepages(requests)}
	if cfg.PodPidsLimit > 0 {
		r.Pids = new(cfg.PodPidsLimit)
	}
	if qos == corev1.PodQOSBestEffort {
		return r
	}
	limits := podspec.Limits(pod)
	r.CPUShares = new(podspec.CPUShares(podspec.Milli(*requests.Cpu())))
	if podspec.AllLimited(pod, corev1.ResourceCPU) {
		if cfg.CPUCFSQuota {
			period := cfg.cpuPeriod()
			r.CPUPeriod = new(period)
			r.CPUQuota = new(podspec.CPUQuota(podspec.Milli(*limits.Cpu()), period))
		} else {
			r.CPUQuota = new(Unlimited)
		}
	}
	if podspec.AllLimited(pod, corev1.ResourceMemory) {
		r.Memory = new(value(*limits.Memory()))
	}
	request := value(*requests.Memory())
	if cfg.MemoryQoS.Tiered && request > 0 {
		if qos == corev1.PodQOSGuaranteed {
			r.MemoryMin = new(request)
		} else {
			r.MemoryLow = new(request)
		}
	}
	if high := throttleAt(pod, request, cfg.MemoryQoS.ThrottlingFactor); high > request {
		r.MemoryHigh = new(high)
	}
	return r
}

// throttleAt is where the pod's allocations slow down; 0 is nowhere. Only a
// pod-level limit makes this the pod's affair, else it is each container's.
func throttleAt(pod *corev1.Pod, request int64, factor float64) int64 {
	if pod.Spec.Resources == nil || factor == 0 {
		return 0
	}
	limit := value(*pod.Spec.Resources.Limits.Memory())
	if limit <= request {
		return 0
	}
	page := int64(os.Getpagesize())
	return (request + int64(factor*float64(limit-request))) / page * page
}

// Tiers are the values of the three tiers for the pods that are active: processor
// time is shared out between tiers as their pods ask for it, and BestEffort pods
// get what is left. The Guaranteed tier is kubepods itself, over all pods; with
// tiered reservation it must hold back as much memory as its tiers do, since the
// kernel protects a cgroup only within what is protected above it.
func Tiers(pods []*corev1.Pod, cfg Config) map[corev1.PodQOSClass]Resources {
	var cpu, guaranteed, burstable int64
	for _, pod := range pods {
		qos := podspec.QoS(pod)
		if qos == corev1.PodQOSBestEffort {
			continue
		}
		requests := podspec.Requests(pod)
		if qos == corev1.PodQOSGuaranteed {
			guaranteed = plus(guaranteed, value(*requests.Memory()))
			continue
		}
		cpu = plus(cpu, podspec.Milli(*requests.Cpu()))
		burstable = plus(burstable, value(*requests.Memory()))
	}
	all := map[corev1.PodQOSClass]Resources{
		corev1.PodQOSGuaranteed: {},
		corev1.PodQOSBurstable:  {CPUShares: new(podspec.CPUShares(cpu))},
		corev1.PodQOSBestEffort: {CPUShares: new(leastShares)},
	}
	if cfg.MemoryQoS.Tiered {
		all[corev1.PodQOSGuaranteed] = Resources{MemoryMin: new(guaranteed), MemoryLow: new(burstable)}
		all[corev1.PodQOSBurstable] = Resources{CPUShares: new(podspec.CPUShares(cpu)), MemoryLow: new(burstable)}
	}
	return all
}

func (cfg Config) cpuPeriod() int64 {
	if cfg.CPUCFSPeriod == 0 {
		return 100_000
	}
	return cfg.CPUCFSPeriod.Microseconds()
}

// hugepages turns hugepages-2Mi and its kin into the kernel's words. A size that
// is none can't come past validation, and is left out.
func hugepages(list corev1.ResourceList) map[string]int64 {
	sizes := map[string]int64{}
	for name, q := range list {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		size, err := resource.ParseQuantity(text)
		if err != nil || value(size) <= 0 {
			continue
		}
		sizes[pageSize(value(size))] += value(q)
	}
	if len(sizes) == 0 {
		return nil
	}
	return sizes
}

// pageSize is how the kernel names a size in its files.
func pageSize(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%dGB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%dMB", bytes>>20)
	default:
		return fmt.Sprintf("%dKB", bytes>>10)
	}
}

// value is the quantity in whole units. Quantity.Value itself overflows on sums.
func value(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) > 0 {
		return math.MaxInt64
	}
	return q.Value()
}

func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

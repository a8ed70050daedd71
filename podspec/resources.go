package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
)

// Requests is what the scheduler counts for the pod: the largest moment of its
// life, with overhead. Pod-level requests (KEP-2837) go before the sum.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	return helper.PodRequests(pod, helper.PodResourcesOptions{})
}

// Limits is the same sum over limits. A resource that only some containers limit
// has a sum all the same; see [AllLimited].
func Limits(pod *corev1.Pod) corev1.ResourceList {
	return helper.PodLimits(pod, helper.PodResourcesOptions{})
}

// WithoutOverhead are the same sums without the overhead of the pod's sandbox.
func WithoutOverhead(pod *corev1.Pod) corev1.ResourceRequirements {
	o := helper.PodResourcesOptions{ExcludeOverhead: true}
	return corev1.ResourceRequirements{Requests: helper.PodRequests(pod, o), Limits: helper.PodLimits(pod, o)}
}

// AllLimited reports whether the pod as a whole is limited in the resource: it has
// a pod-level limit, or each regular and init container has its own.
func AllLimited(pod *corev1.Pod, name corev1.ResourceName) bool {
	if r := pod.Spec.Resources; r != nil {
		if q, ok := r.Limits[name]; ok && !q.IsZero() {
			return true
		}
	}
	any := false
	for c, kind := range All(pod) {
		if kind == Ephemeral {
			continue
		}
		if q, ok := c.Resources.Limits[name]; !ok || q.IsZero() {
			return false
		}
		any = true
	}
	return any
}

// The bounds of the kernel's processor shares, and of its quota in microseconds.
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000
)

// CPUShares turns thousandths of a processor into the kernel's relative weight of
// cgroup v1: 1024 for one processor, 2 to 262144.
func CPUShares(milli int64) int64 {
	return min(max(scaled(milli, 1024), minShares), maxShares)
}

// CPUQuota is how many microseconds of each period (also in microseconds) that
// many thousandths of a processor are. 0 is no quota; the kernel takes no less than
// a millisecond.
func CPUQuota(milli, period int64) int64 {
	if milli <= 0 {
		return 0
	}
	return max(scaled(milli, period), minQuota)
}

// Milli is the quantity in thousandths. Quantity.MilliValue itself overflows.
func Milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// scaled is milli × factor / 1000, without overflow on absurd quantities.
func scaled(milli, factor int64) int64 {
	if factor > 0 && milli > math.MaxInt64/factor {
		return math.MaxInt64 / 1000
	}
	return milli * factor / 1000
}

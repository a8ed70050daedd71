package admission

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// Resources refuses a pod that requests more than the others leave of what the node
// can give. Requests are the ones that the scheduler counts, [podspec.Requests]; the
// pods have to come with the resources that were given to them.
//
// A resource that allocatable does not name is not known to the node and is not
// counted, except for huge pages: of those it has none.
func Resources(allocatable corev1.ResourceList) Admitter {
	allocatable = maps.Clone(allocatable)
	return Func(func(a Attributes) Decision {
		wanted := podspec.Requests(a.Pod)
		names := counted(wanted, allocatable)
		if len(names) == 0 {
			return yes()
		}
		used := make(corev1.ResourceList, len(names))
		for other := range a.others {
			requests := podspec.Requests(other)
			for _, name := range names {
				sum := used[name]
				sum.Add(requests[name])
				used[name] = sum
			}
		}
		for _, name := range names {
			sum := used[name].DeepCopy()
			sum.Add(wanted[name])
			if sum.Cmp(allocatable[name]) > 0 {
				return no(outOf+string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
					name, amount(name, wanted[name]), amount(name, used[name]), amount(name, allocatable[name])))
			}
		}
		return yes()
	})
}

// counted are the resources of which the pod wants some and the node can say
// whether there is enough, in the order in which they are reported.
func counted(wanted, allocatable corev1.ResourceList) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	names := slices.Clone(first)
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if !slices.Contains(first, name) {
			names = append(names, name)
		}
	}
	return slices.DeleteFunc(names, func(name corev1.ResourceName) bool {
		q := wanted[name]
		_, known := allocatable[name]
		return q.Sign() <= 0 || !known && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	})
}

// amount is in thousandths of a processor, or in the resource's own unit.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return podspec.Milli(q)
	}
	if q.CmpInt64(math.MaxInt64) > 0 {
		return math.MaxInt64
	}
	return q.Value()
}

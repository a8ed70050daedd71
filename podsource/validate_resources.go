package podsource

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) resources(r *corev1.ResourceRequirements, at *field.Path) {
	c.quantities(r.Limits, at.Child("limits"))
	// A request that came from its limit would repeat the limit's faults.
	own := maps.Clone(r.Requests)
	maps.DeleteFunc(own, func(name corev1.ResourceName, q resource.Quantity) bool {
		limit, limited := r.Limits[name]
		return limited && limit.Cmp(q) == 0
	})
	c.quantities(own, at.Child("requests"))
	for _, name := range namesOf(r.Requests) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		at := at.Child("requests").Key(string(name))
		switch {
		case limited && request.Cmp(limit) > 0:
			c.add(field.Invalid(at, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !canOvercommit(name) && !limited:
			c.add(field.Required(at, "limit must be set for non overcommitable resources"))
		case !canOvercommit(name) && request.Cmp(limit) != 0:
			c.add(field.Invalid(at, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		}
	}
	c.hugePages(r.Limits, at.Child("limits"))
	c.hugePages(own, at.Child("requests"))
	all := slices.Concat(namesOf(r.Limits), namesOf(r.Requests))
	if whole := c.spec.Resources; whole != nil && r != whole {
		all = slices.Concat(all, namesOf(whole.Limits), namesOf(whole.Requests))
	}
	c.forbid(slices.ContainsFunc(namesOf(r.Requests), isHugePages) && !slices.Contains(all, corev1.ResourceCPU) && !slices.Contains(all, corev1.ResourceMemory),
		at, "HugePages require cpu or memory")
}

// hugePages checks that there are whole pages of a size that can be.
func (c *checker) hugePages(list corev1.ResourceList, at *field.Path) {
	for _, name := range namesOf(list) {
		if !isHugePages(name) {
			continue
		}
		q, at := list[name], at.Key(string(name))
		size, ok := pageSize(name)
		c.invalid(!ok, at, string(name), "must name a page size, such as hugepages-2Mi")
		c.invalid(ok && q.Value()%size != 0, at, q.String(), "must be a multiple of the page size")
	}
}

// pageSize is the number of bytes in the name of a huge page resource.
func pageSize(name corev1.ResourceName) (bytes int64, ok bool) {
	text, isPages := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	size, err := resource.ParseQuantity(text)
	return size.Value(), isPages && err == nil && size.Value() > 0
}

// podResources checks the resources of the pod as a whole (KEP-2837).
func (c *checker) podResources(r *corev1.ResourceRequirements, at *field.Path) {
	c.resources(r, at)
	c.forbid(len(r.Claims) > 0, at.Child("claims"), "may only be set for containers")
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range namesOf(part.list) {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !isHugePages(name) {
				c.add(field.NotSupported(at.Child(part.name).Key(string(name)), name, []corev1.ResourceName{"cpu", "memory", "hugepages-*"}))
			}
		}
	}
	sums := requestsOfContainers(c.spec)
	for _, name := range namesOf(sums) {
		sum := sums[name]
		if whole, ok := r.Requests[name]; ok && whole.Cmp(sum) < 0 {
			c.add(field.Invalid(at.Child("requests").Key(string(name)), whole.String(),
				"must be greater than or equal to aggregate container requests of "+sum.String()))
		}
	}
	eachContainer(c.spec, func(ctr *corev1.Container, at *field.Path) {
		for _, name := range namesOf(ctr.Resources.Limits) {
			limit := ctr.Resources.Limits[name]
			if whole, ok := r.Limits[name]; ok && limit.Cmp(whole) > 0 {
				c.add(field.Invalid(at.Child("resources", "limits").Key(string(name)), limit.String(),
					"must be less than or equal to pod limits of "+whole.String()))
			}
		}
	})
}

// quantities checks the names and that nothing is negative.
func (c *checker) quantities(list corev1.ResourceList, at *field.Path) {
	for _, name := range namesOf(list) {
		q, at := list[name], at.Key(string(name))
		c.invalid(q.Sign() < 0, at, q.String(), "must be greater than or equal to 0")
		if native(name) {
			continue
		}
		// Anything else is an extended resource, which is counted in pieces.
		domain, _, hasDomain := strings.Cut(string(name), "/")
		if !hasDomain || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(string(name), "requests.") {
			c.add(field.Invalid(at, string(name), "must be cpu, memory, ephemeral-storage, hugepages-<size> or an extended resource such as example.com/device"))
			continue
		}
		c.matches(at, string(name), validation.IsQualifiedName)
		c.invalid(q.CmpInt64(q.Value()) != 0, at, q.String(), "must be an integer") // Value rounds up
	}
}

func native(name corev1.ResourceName) bool { return canOvercommit(name) || isHugePages(name) }

func canOvercommit(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// namesOf is sorted, so that errors come in one order.
func namesOf(list corev1.ResourceList) []corev1.ResourceName { return sortedKeys(list) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

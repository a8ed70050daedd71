package podsource

import (
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
			c.add(field.Invalid(at, request.String(), "must be at most the limit of "+limit.String()))
		case !canOvercommit(name) && (!limited || request.Cmp(limit) != 0):
			c.add(field.Invalid(at, request.String(), "must equal the limit: it can't be overcommitted"))
		}
	}
	all := slices.Concat(namesOf(r.Limits), namesOf(r.Requests))
	if slices.ContainsFunc(all, isHugePages) && !slices.Contains(all, corev1.ResourceCPU) && !slices.Contains(all, corev1.ResourceMemory) {
		c.add(field.Forbidden(at, "huge pages need cpu or memory beside them"))
	}
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
	for name, sum := range requestsOfContainers(c.spec) {
		if whole, ok := r.Requests[name]; ok && whole.Cmp(sum) < 0 {
			c.add(field.Invalid(at.Child("requests").Key(string(name)), whole.String(),
				"must be at least what the containers request together, "+sum.String()))
		}
	}
}

// quantities checks the names and that nothing is negative.
func (c *checker) quantities(list corev1.ResourceList, at *field.Path) {
	for _, name := range namesOf(list) {
		q, at := list[name], at.Key(string(name))
		c.invalid(q.Sign() < 0, at, q.String(), "must not be negative")
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
		c.invalid(q.MilliValue()%1000 != 0, at, q.String(), "must be a whole number")
	}
}

func native(name corev1.ResourceName) bool { return canOvercommit(name) || isHugePages(name) }

func canOvercommit(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// namesOf is sorted, so that errors come in one order.
func namesOf(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *checker) security(sc *corev1.SecurityContext, at *field.Path) {
	if sc == nil {
		return
	}
	c.userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	c.profiles(sc.SeccompProfile, sc.AppArmorProfile, at)
	oneOf(c, at.Child("procMount"), sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	c.invalid(sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount && (c.spec.HostUsers == nil || *c.spec.HostUsers),
		at.Child("procMount"), corev1.UnmaskedProcMount, "needs spec.hostUsers false")
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		at := at.Child("allowPrivilegeEscalation")
		c.invalid(sc.Privileged != nil && *sc.Privileged, at, false, "can't be false when privileged is true")
		c.invalid(sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN"), at, false,
			"can't be false when CAP_SYS_ADMIN is added")
	}
}

func (c *checker) userAndGroup(user, group *int64, at *field.Path) {
	if user != nil {
		for _, why := range validation.IsValidUserID(*user) {
			c.add(field.Invalid(at.Child("runAsUser"), *user, why))
		}
	}
	if group != nil {
		for _, why := range validation.IsValidGroupID(*group) {
			c.add(field.Invalid(at.Child("runAsGroup"), *group, why))
		}
	}
}

// profiles checks that a localhost profile is named, and only then.
func (c *checker) profiles(seccomp *corev1.SeccompProfile, appArmor *corev1.AppArmorProfile, at *field.Path) {
	profile := func(at *field.Path, isLocal bool, name *string) {
		at = at.Child("localhostProfile")
		switch {
		case isLocal && (name == nil || *name == ""):
			c.add(field.Required(at, "type Localhost needs one"))
		case !isLocal:
			c.forbid(name != nil, at, "is for type Localhost only")
		}
	}
	if seccomp != nil {
		at := at.Child("seccompProfile")
		oneOf(c, at.Child("type"), &seccomp.Type, corev1.SeccompProfileTypeUnconfined,
			corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost)
		isLocal := seccomp.Type == corev1.SeccompProfileTypeLocalhost
		profile(at, isLocal, seccomp.LocalhostProfile)
		if isLocal && seccomp.LocalhostProfile != nil {
			c.relative(at.Child("localhostProfile"), *seccomp.LocalhostProfile)
		}
	}
	if appArmor != nil {
		at := at.Child("appArmorProfile")
		oneOf(c, at.Child("type"), &appArmor.Type, corev1.AppArmorProfileTypeUnconfined,
			corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost)
		profile(at, appArmor.Type == corev1.AppArmorProfileTypeLocalhost, appArmor.LocalhostProfile)
	}
}

package podsource

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podSecurity(spec *corev1.PodSpec, at *field.Path) {
	sc := spec.SecurityContext
	c.userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	for i, id := range sc.SupplementalGroups {
		for _, why := range validation.IsValidGroupID(id) {
			c.add(field.Invalid(at.Child("supplementalGroups").Index(i), id, why))
		}
	}
	if sc.FSGroup != nil {
		for _, why := range validation.IsValidGroupID(*sc.FSGroup) {
			c.add(field.Invalid(at.Child("fsGroup"), *sc.FSGroup, why))
		}
	}
	oneOf(c, at.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive, corev1.SELinuxChangePolicyMountOption)
	oneOf(c, at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	oneOf(c, at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	c.profiles(sc.SeccompProfile, sc.AppArmorProfile, at)
	c.sysctls(spec, at.Child("sysctls"))
}

// sysctlForm is a sysctl's name, with dots or slashes between its parts.
var sysctlForm = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *checker) sysctls(spec *corev1.PodSpec, at *field.Path) {
	names := sets.New[string]()
	for i, s := range spec.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		if !c.required(at, s.Name) {
			continue
		}
		c.invalid(!sysctlForm.MatchString(s.Name) || len(s.Name) > 253, at, s.Name, "want the name of a sysctl, such as net.core.somaxconn")
		name := strings.ReplaceAll(s.Name, "/", ".")
		twice(c, names, at, name)
		// What is the host's is not the pod's to set.
		c.invalid(spec.HostNetwork && strings.HasPrefix(name, "net."), at, s.Name, "may not be set with 'hostNetwork' enabled")
		c.invalid(spec.HostIPC && ofIPC(name), at, s.Name, "may not be set with 'hostIPC' enabled")
	}
}

// ofIPC reports whether a sysctl belongs to the IPC namespace (ipc_namespaces(7)).
func ofIPC(sysctl string) bool {
	return sysctl == "kernel.sem" || strings.HasPrefix(sysctl, "kernel.shm") ||
		strings.HasPrefix(sysctl, "kernel.msg") || strings.HasPrefix(sysctl, "fs.mqueue.")
}

func (c *checker) security(sc *corev1.SecurityContext, at *field.Path) {
	if sc == nil {
		return
	}
	c.userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	c.profiles(sc.SeccompProfile, sc.AppArmorProfile, at)
	oneOf(c, at.Child("procMount"), sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
	c.invalid(sc.ProcMount != nil && *sc.ProcMount == corev1.UnmaskedProcMount && (c.spec.HostUsers == nil || *c.spec.HostUsers),
		at.Child("procMount"), corev1.UnmaskedProcMount, "`hostUsers` must be false to use `Unmasked`")
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		at := at.Child("allowPrivilegeEscalation")
		c.invalid(sc.Privileged != nil && *sc.Privileged, at, false, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
		c.invalid(sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN"), at, false,
			"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
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
	profile := func(at *field.Path, kind string, isLocal bool, name *string) {
		at = at.Child("localhostProfile")
		switch {
		case isLocal && (name == nil || *name == ""):
			c.add(field.Required(at, "must be set when "+kind+" type is Localhost"))
		case !isLocal:
			c.invalid(name != nil, at, name, "can only be set when "+kind+" type is Localhost")
		}
	}
	if seccomp != nil {
		at := at.Child("seccompProfile")
		oneOf(c, at.Child("type"), &seccomp.Type, corev1.SeccompProfileTypeUnconfined,
			corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeLocalhost)
		isLocal := seccomp.Type == corev1.SeccompProfileTypeLocalhost
		profile(at, "seccomp", isLocal, seccomp.LocalhostProfile)
		if isLocal && seccomp.LocalhostProfile != nil && *seccomp.LocalhostProfile != "" {
			c.relative(at.Child("localhostProfile"), *seccomp.LocalhostProfile)
		}
	}
	if appArmor != nil {
		at := at.Child("appArmorProfile")
		oneOf(c, at.Child("type"), &appArmor.Type, corev1.AppArmorProfileTypeUnconfined,
			corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeLocalhost)
		profile(at, "AppArmor", appArmor.Type == corev1.AppArmorProfileTypeLocalhost, appArmor.LocalhostProfile)
		if name := appArmor.LocalhostProfile; name != nil {
			at := at.Child("localhostProfile")
			c.invalid(strings.TrimSpace(*name) != *name, at, *name, "must not be padded with whitespace")
			if len(*name) > 4095 { // the kernel's longest path
				c.add(field.TooLong(at, "", 4095))
			}
		}
	}
}

// userID checks who is to own a file.
func (c *checker) userID(id *int64, at *field.Path) {
	if id == nil {
		return
	}
	for _, why := range validation.IsValidUserID(*id) {
		c.add(field.Invalid(at, *id, why))
	}
}

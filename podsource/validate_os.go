package podsource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// os checks that a pod that names its system asks for nothing of another. The
// list is that of spec.os in the API's documentation.
func (c *checker) os(spec *corev1.PodSpec, at *field.Path) {
	if spec.OS == nil {
		return
	}
	oneOf(c, at.Child("os", "name"), &spec.OS.Name, corev1.Linux, corev1.Windows)
	switch spec.OS.Name {
	case corev1.Linux:
		const why = "windows options cannot be set for a linux pod"
		c.forbid(spec.SecurityContext.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"), why)
		eachContainer(spec, func(ctr *corev1.Container, at *field.Path) {
			sc := ctr.SecurityContext
			c.forbid(sc != nil && sc.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"), why)
		})
	case corev1.Windows:
		c.noLinux(spec, at)
	}
}

func (c *checker) noLinux(spec *corev1.PodSpec, at *field.Path) {
	check := func(at *field.Path, set map[string]bool) {
		for _, name := range sortedKeys(set) {
			c.forbid(set[name], at.Child(name), "cannot be set for a windows pod")
		}
	}
	check(at, map[string]bool{
		"hostPID":               spec.HostPID,
		"hostIPC":               spec.HostIPC,
		"hostUsers":             spec.HostUsers != nil,
		"resources":             spec.Resources != nil,
		"shareProcessNamespace": spec.ShareProcessNamespace != nil,
	})
	sc := spec.SecurityContext
	check(at.Child("securityContext"), map[string]bool{
		"appArmorProfile":          sc.AppArmorProfile != nil,
		"seLinuxOptions":           sc.SELinuxOptions != nil,
		"seLinuxChangePolicy":      sc.SELinuxChangePolicy != nil,
		"seccompProfile":           sc.SeccompProfile != nil,
		"fsGroup":                  sc.FSGroup != nil,
		"fsGroupChangePolicy":      sc.FSGroupChangePolicy != nil,
		"sysctls":                  len(sc.Sysctls) > 0,
		"runAsUser":                sc.RunAsUser != nil,
		"runAsGroup":               sc.RunAsGroup != nil,
		"supplementalGroups":       sc.SupplementalGroups != nil,
		"supplementalGroupsPolicy": sc.SupplementalGroupsPolicy != nil,
	})
	eachContainer(spec, func(ctr *corev1.Container, at *field.Path) {
		sc := ctr.SecurityContext
		if sc == nil {
			return
		}
		check(at.Child("securityContext"), map[string]bool{
			"appArmorProfile":          sc.AppArmorProfile != nil,
			"seLinuxOptions":           sc.SELinuxOptions != nil,
			"seccompProfile":           sc.SeccompProfile != nil,
			"capabilities":             sc.Capabilities != nil,
			"readOnlyRootFilesystem":   sc.ReadOnlyRootFilesystem != nil,
			"privileged":               sc.Privileged != nil,
			"allowPrivilegeEscalation": sc.AllowPrivilegeEscalation != nil,
			"procMount":                sc.ProcMount != nil,
			"runAsUser":                sc.RunAsUser != nil,
			"runAsGroup":               sc.RunAsGroup != nil,
		})
	})
}

// appArmorAnnotation, with a container's name after it, is how AppArmor profiles
// were given before there were fields for them.
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// annotations checks those that a node still obeys.
func (c *checker) annotations(all map[string]string, at *field.Path) {
	for _, key := range sortedKeys(all) {
		name, ok := strings.CutPrefix(key, appArmorAnnotation)
		if !ok {
			continue
		}
		at := at.Key(key)
		c.invalid(!c.containers.Has(name), at, name, "container not found")
		switch profile := all[key]; profile {
		case "", "runtime/default", "unconfined":
		default:
			local, isLocal := strings.CutPrefix(profile, "localhost/")
			c.invalid(!isLocal || local == "", at, profile, "invalid AppArmor profile name")
		}
	}
}

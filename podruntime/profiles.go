package podruntime

import (
	"cmp"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccomp finds the profile of system calls. A container of which nobody says
// anything has none, unless the node is set up otherwise.
func (r *Runtime) seccomp(s security) (*runtimeapi.SecurityProfile, error) {
	profile := cmp.Or(s.own.SeccompProfile, s.all.SeccompProfile)
	if profile == nil {
		if r.cfg.SeccompDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	path := func(child string) *field.Path {
		return s.path(s.own.SeccompProfile != nil, "seccompProfile").Child(child)
	}
	switch profile.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case corev1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case corev1.SeccompProfileTypeLocalhost:
		// Without a name no container would be confined (kubernetes issue 118690),
		// and one that leads out of the directory is not the node owner's.
		name := profile.LocalhostProfile
		if name == nil || *name == "" {
			return nil, field.Required(path("localhostProfile"), "must be set when seccomp type is Localhost")
		}
		if !filepath.IsLocal(*name) {
			return nil, field.Invalid(path("localhostProfile"), *name, "must be a relative path without '..'")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(r.cfg.SeccompRoot, *name),
		}, nil
	}
	return nil, field.NotSupported(path("type"), profile.Type, []corev1.SeccompProfileType{
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined})
}

// The legacy names of AppArmor profiles, in annotations and in CRI.
const (
	apparmorDefault    = corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	apparmorUnconfined = corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	apparmorLocalhost  = corev1.DeprecatedAppArmorBetaProfileNamePrefix
)

// apparmor finds the profile in the container's field, in the annotation about the
// container, which a static pod may have instead, or in the pod's field. Nil leaves
// it to the runtime.
func apparmor(s security) (*runtimeapi.SecurityProfile, error) {
	if s.own.AppArmorProfile != nil {
		return apparmorField(s.own.AppArmorProfile, s, true)
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + s.c.Name
	value := s.pod.Annotations[key]
	name, isLocal := strings.CutPrefix(value, apparmorLocalhost)
	switch {
	case value == apparmorDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case value == apparmorUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case isLocal && name != "":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name}, nil
	case value != "":
		return nil, field.Invalid(field.NewPath("metadata", "annotations").Key(key), value, "invalid AppArmor profile name")
	case s.all.AppArmorProfile != nil:
		return apparmorField(s.all.AppArmorProfile, s, false)
	}
	return nil, nil
}

func apparmorField(profile *corev1.AppArmorProfile, s security, own bool) (*runtimeapi.SecurityProfile, error) {
	path := func(child string) *field.Path { return s.path(own, "appArmorProfile").Child(child) }
	switch profile.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "" {
			return nil, field.Required(path("localhostProfile"), "must be set when AppArmor type is Localhost")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *profile.LocalhostProfile}, nil
	}
	return nil, field.NotSupported(path("type"), profile.Type, []corev1.AppArmorProfileType{
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined})
}

// apparmorName is the profile as runtimes knew it before it had a structure.
func apparmorName(p *runtimeapi.SecurityProfile) string {
	switch {
	case p == nil:
		return ""
	case p.ProfileType == runtimeapi.SecurityProfile_Localhost:
		return apparmorLocalhost + p.LocalhostRef
	case p.ProfileType == runtimeapi.SecurityProfile_Unconfined:
		return apparmorUnconfined
	default:
		return apparmorDefault
	}
}

// hiddenPaths are the kernel's interfaces that the container does not see, and
// those that it sees but cannot write. Whoever asks for all of them needs users of
// its own: root of the node could do harm there (KEP-4265).
func (r *Runtime) hiddenPaths(s security) (masked, readonly []string, err error) {
	if s.own.ProcMount == nil {
		return r.maskedPaths, readonlyPaths(), nil
	}
	switch *s.own.ProcMount {
	case corev1.DefaultProcMount, "":
		return r.maskedPaths, readonlyPaths(), nil
	case corev1.UnmaskedProcMount:
		if ownUsers(s.pod) {
			return []string{}, []string{}, nil
		}
		return nil, nil, field.Invalid(s.path(true, "procMount"), *s.own.ProcMount, "`hostUsers` must be false to use `Unmasked`")
	}
	return nil, nil, field.NotSupported(s.path(true, "procMount"), *s.own.ProcMount,
		[]corev1.ProcMountType{corev1.DefaultProcMount, corev1.UnmaskedProcMount})
}

// maskedPaths hides kernel interfaces from containers. The list is the API's
// default procMount; the throttle counters of each CPU joined it after they were
// found to leak the load of neighbours.
func maskedPaths() []string {
	paths := []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	// The pattern is well formed, which is all that Glob reports on.
	throttle, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	return append(paths, throttle...)
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

package admission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// AppArmor refuses a pod with a profile that can't be enforced: on a host that has
// no AppArmor, or because it has no name. A pod that is beyond Pending was admitted
// before and is left alone.
func AppArmor(enabled func() bool) Admitter {
	return Func(func(a Attributes) Decision {
		if phase := a.Pod.Status.Phase; phase != "" && phase != corev1.PodPending {
			return yes()
		}
		wanted := ""
		for c, kind := range podspec.All(a.Pod) {
			profile, ok := appArmorProfile(a.Pod, c)
			if !ok || profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
				continue
			}
			if profile == corev1.DeprecatedAppArmorBetaProfileNamePrefix {
				return no(ReasonAppArmor, fmt.Sprintf("Cannot enforce AppArmor: invalid empty AppArmor profile name: %q of %s %s", profile, strings.ReplaceAll(kind.String(), "_", " "), c.Name))
			}
			if wanted == "" {
				wanted = fmt.Sprintf("%s %s has profile %s", strings.ReplaceAll(kind.String(), "_", " "), c.Name, profile)
			}
		}
		if wanted != "" && !enabled() {
			return no(ReasonAppArmor, "Cannot enforce AppArmor: AppArmor is not enabled on the host: "+wanted)
		}
		return yes()
	})
}

// appArmorProfile is the container's profile in the words of the annotation that was
// there before the fields. Its own field goes before the annotation, and that before
// the pod's field: nobody turns the annotation of a static pod into a field.
func appArmorProfile(pod *corev1.Pod, c *corev1.Container) (profile string, ok bool) {
	var p *corev1.AppArmorProfile
	if pod.Spec.SecurityContext != nil {
		p = pod.Spec.SecurityContext.AppArmorProfile
	}
	if profile = pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; profile != "" {
		p = nil
	}
	if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
		p = c.SecurityContext.AppArmorProfile
	}
	if p == nil {
		return profile, profile != ""
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined, true
	case corev1.AppArmorProfileTypeLocalhost:
		profile = corev1.DeprecatedAppArmorBetaProfileNamePrefix
		if p.LocalhostProfile != nil {
			profile += strings.TrimSpace(*p.LocalhostProfile)
		}
		return profile, true
	default:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, true
	}
}

// SupplementalGroups refuses a pod whose policy for groups the runtime can't carry
// out: with Strict, the groups of the image's user must not come in (KEP-3619).
func SupplementalGroups(strict func() bool) Admitter {
	return Func(func(a Attributes) Decision {
		sc := a.Pod.Spec.SecurityContext
		if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyStrict || strict() {
			return yes()
		}
		return no(ReasonGroups, "SupplementalGroupsPolicy=Strict is not supported in this node")
	})
}

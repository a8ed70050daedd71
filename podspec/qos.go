package podspec

import corev1 "k8s.io/api/core/v1"

// QoS returns the pod's quality of service class: the one in its status if there
// is one, since it never changes during the pod's life, else the computed one.
// Ephemeral containers do not count, and zero quantities are as good as none.
func QoS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && (has(r.Requests) || has(r.Limits)) {
		all = append(all, *r) // pod-level resources decide alone (KEP-2837)
	} else {
		for c, kind := range All(pod) {
			if kind != Ephemeral {
				all = append(all, c.Resources)
			}
		}
	}
	guaranteed, any := len(all) > 0, false
	for _, r := range all {
		any = any || has(r.Requests) || has(r.Limits)
		guaranteed = guaranteed && pinned(r, corev1.ResourceCPU) && pinned(r, corev1.ResourceMemory)
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

func has(list corev1.ResourceList) bool {
	return !list.Cpu().IsZero() || !list.Memory().IsZero()
}

// pinned reports whether the resource has a limit and a request equal to it. A
// request that is not given is the limit, as the API's defaulting has it.
func pinned(r corev1.ResourceRequirements, name corev1.ResourceName) bool {
	limit, ok := r.Limits[name]
	if !ok || limit.IsZero() {
		return false
	}
	request, ok := r.Requests[name]
	return !ok || request.Cmp(limit) == 0
}

package podspec

import corev1 "k8s.io/api/core/v1"

// QoS returns the pod's quality of service class: the one in its status if there
// is one, since it never changes during the pod's life, else the computed one.
// Ephemeral containers do not count, and zero quantities are as good as none.
func QoS(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	guaranteed, any := true, false
	judge := func(r *corev1.ResourceRequirements) {
		any = any || has(r)
		guaranteed = guaranteed && pinned(r, corev1.ResourceCPU) && pinned(r, corev1.ResourceMemory)
	}
	if r := pod.Spec.Resources; r != nil && has(r) {
		judge(r) // pod-level resources decide alone (KEP-2837)
	} else {
		for c, kind := range All(pod) {
			if kind != Ephemeral {
				judge(&c.Resources)
			}
		}
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

// has reports whether any of the amounts that make the class is asked for.
func has(r *corev1.ResourceRequirements) bool {
	asked := func(list corev1.ResourceList, name corev1.ResourceName) bool {
		q := list[name]
		return !q.IsZero()
	}
	return asked(r.Requests, corev1.ResourceCPU) || asked(r.Requests, corev1.ResourceMemory) ||
		asked(r.Limits, corev1.ResourceCPU) || asked(r.Limits, corev1.ResourceMemory)
}

// pinned reports whether the resource has a limit and a request equal to it. A
// request that is not given is the limit, as the API's defaulting has it.
func pinned(r *corev1.ResourceRequirements, name corev1.ResourceName) bool {
	limit, ok := r.Limits[name]
	if !ok || limit.IsZero() {
		return false
	}
	request, ok := r.Requests[name]
	return !ok || request.Cmp(limit) == 0
}

package allocation

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// record is what one pod has. The names in JSON are the kubelet's.
type record struct {
	Containers map[string]corev1.ResourceRequirements `json:"ContainerResources"`
	Pod        *corev1.ResourceRequirements           `json:"PodLevelResources"`
	// Volumes is another agent's. It is kept as it was found.
	Volumes json.RawMessage `json:"EmptyDirVolumeLimits,omitempty"`
}

type records map[observed.UID]record

func (r record) empty() bool { return len(r.Containers) == 0 && r.Pod == nil }

// of is what the pod's spec asks for.
func of(pod *corev1.Pod) record {
	r := record{Containers: make(map[string]corev1.ResourceRequirements)}
	for c, kind := range podspec.All(pod) {
		if kind != podspec.Ephemeral { // those have none
			r.Containers[c.Name] = *c.Resources.DeepCopy()
		}
	}
	if pod.Spec.Resources != nil {
		r.Pod = pod.Spec.Resources.DeepCopy()
	}
	return r
}

func (r record) get(container string) (corev1.ResourceRequirements, bool) {
	if container != PodItself {
		got, ok := r.Containers[container]
		return got, ok
	}
	if r.Pod == nil {
		return corev1.ResourceRequirements{}, false
	}
	return *r.Pod, true
}

// with is r with one entry changed. Records are never changed in place.
func (r record) with(container string, given corev1.ResourceRequirements) record {
	given = *given.DeepCopy()
	if container == PodItself {
		r.Pod = &given
		return r
	}
	r.Containers = maps.Clone(r.Containers)
	if r.Containers == nil {
		r.Containers = make(map[string]corev1.ResourceRequirements)
	}
	r.Containers[container] = given
	return r
}

// completed is r with what it lacks taken from asked: a manifest may get another
// container under its old UID.
func (r record) completed(asked record) (next record, changed bool) {
	for name, resources := range asked.Containers {
		if _, ok := r.Containers[name]; !ok {
			r, changed = r.with(name, resources), true
		}
	}
	if r.Pod == nil && asked.Pod != nil {
		r, changed = r.with(PodItself, *asked.Pod), true
	}
	return r, changed
}

// apply returns a copy of the pod with the resources of the record.
func apply(pod *corev1.Pod, r record) *corev1.Pod {
	out := pod.DeepCopy()
	for c, kind := range podspec.All(out) {
		if got, ok := r.Containers[c.Name]; ok && kind != podspec.Ephemeral {
			c.Resources = merged(c.Resources, got)
		}
	}
	if out.Spec.Resources != nil && r.Pod != nil {
		*out.Spec.Resources = merged(*out.Spec.Resources, *r.Pod)
	}
	return out
}

// merged is what is desired, with the resizable amounts as they were granted.
func merged(desired, granted corev1.ResourceRequirements) corev1.ResourceRequirements {
	take := func(list *corev1.ResourceList, from corev1.ResourceList) {
		for _, name := range resizable {
			q, ok := from[name]
			switch {
			case !ok:
				delete(*list, name)
			case *list == nil:
				*list = corev1.ResourceList{name: q.DeepCopy()}
			default:
				(*list)[name] = q.DeepCopy()
			}
		}
	}
	take(&desired.Requests, granted.Requests)
	take(&desired.Limits, granted.Limits)
	return desired
}

// resizable are the resources that a resize may change.
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// same reports whether the pod's spec asks for what is in the record. What the
// record does not have is no difference.
func same(pod *corev1.Pod, r record) bool {
	for c, kind := range podspec.All(pod) {
		if got, ok := r.Containers[c.Name]; ok && kind != podspec.Ephemeral && !equal(c.Resources, got) {
			return false
		}
	}
	return pod.Spec.Resources == nil || r.Pod == nil || equal(*pod.Spec.Resources, *r.Pod)
}

// equal compares the amounts that can be resized. None is zero.
func equal(a, b corev1.ResourceRequirements) bool {
	for _, name := range resizable {
		if compare(a.Requests, b.Requests, name) != 0 || compare(a.Limits, b.Limits, name) != 0 {
			return false
		}
	}
	return true
}

func compare(a, b corev1.ResourceList, name corev1.ResourceName) int {
	q := a[name]
	return q.Cmp(b[name])
}

// change names what happens to an amount; empty if nothing does.
func change(old, next corev1.ResourceList, name corev1.ResourceName) string {
	was, is := old[name], next[name]
	switch c := is.Cmp(was); {
	case c == 0:
		return ""
	case was.IsZero():
		return "add"
	case is.IsZero():
		return "remove"
	case c > 0:
		return "increase"
	default:
		return "decrease"
	}
}

// requested counts what a new resize of the pod would change.
func (a *Allocations) requested(pod *corev1.Pod, allocated record) {
	count := func(old, next corev1.ResourceRequirements) {
		for _, name := range resizable {
			if op := change(old.Requests, next.Requests, name); op != "" {
				a.cfg.Hooks.Requested(pod, string(name), "requests", op)
			}
			if op := change(old.Limits, next.Limits, name); op != "" {
				a.cfg.Hooks.Requested(pod, string(name), "limits", op)
			}
		}
	}
	for c, kind := range podspec.All(pod) {
		if old, ok := allocated.Containers[c.Name]; ok && kind != podspec.Ephemeral {
			count(old, c.Resources)
		}
	}
	if pod.Spec.Resources != nil && allocated.Pod != nil {
		count(*allocated.Pod, *pod.Spec.Resources)
	}
}

// grows reports whether the pod as a whole would request more.
func grows(allocated, desired *corev1.Pod) bool {
	old, next := podspec.Requests(allocated), podspec.Requests(desired)
	for _, name := range resizable {
		if compare(next, old, name) > 0 {
			return true
		}
	}
	return false
}

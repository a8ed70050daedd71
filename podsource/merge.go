package podsource

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Merged is what one complete set of a source changes.
type Merged struct {
	// Updates stand in the order in which they have to be delivered: what is
	// gone leaves before what is new arrives. Their pods are copies.
	Updates []Update
	// Pods is the source's set from now on, never nil.
	Pods map[types.UID]*corev1.Pod
	// Dropped are the pods of the set that can't be taken.
	Dropped []Dropped
}

// Dropped is a pod that was left out of a set, and why.
type Dropped struct {
	Pod    *corev1.Pod
	Reason string
}

// Merge compares the pods that a source had with the complete set it has now.
// A nil old means that the source has not spoken before; then there is always
// exactly one update, an Add, which is empty for an empty set. Merge keeps no
// pod of the set and changes none, and leaves old alone.
//
// The pod's UID is its identity. What the API server books in metadata
// (resourceVersion, finalizers, managedFields, ownerReferences) is not a change.
func Merge(source string, old map[types.UID]*corev1.Pod, set []*corev1.Pod, now time.Time) Merged {
	m := Merged{Pods: make(map[types.UID]*corev1.Pod, len(set))}
	var add, update, remove, del, reconcile []*corev1.Pod
	names := make(map[types.NamespacedName]bool, len(set))
	for _, pod := range set {
		if pod == nil {
			continue
		}
		if reason := m.unfit(pod, names); reason != "" {
			m.Dropped = append(m.Dropped, Dropped{pod, reason})
			continue
		}
		stored, known := old[pod.UID]
		if !known {
			stored = arrived(pod, source, now)
			add = append(add, stored.DeepCopy())
			m.Pods[pod.UID] = stored
			continue
		}
		next := withLocalAnnotationsOf(stored, pod)
		switch {
		case !sameWish(stored, next) && pod.DeletionTimestamp != nil:
			del = append(del, next.DeepCopy())
		case !sameWish(stored, next):
			update = append(update, next.DeepCopy())
		case !same(&stored.Status, &next.Status):
			reconcile = append(reconcile, next.DeepCopy())
		default:
			m.Pods[pod.UID] = stored
			continue
		}
		m.Pods[pod.UID] = next.DeepCopy()
	}
	for uid, pod := range old {
		if m.Pods[uid] == nil {
			remove = append(remove, pod.DeepCopy())
		}
	}
	slices.SortFunc(remove, func(a, b *corev1.Pod) int { return cmp.Compare(FullName(a), FullName(b)) })

	for _, u := range []Update{{OpRemove, source, remove}, {OpAdd, source, add}, {OpUpdate, source, update},
		{OpDelete, source, del}, {OpReconcile, source, reconcile}} {
		if len(u.Pods) > 0 || u.Op == OpAdd && old == nil {
			m.Updates = append(m.Updates, u)
		}
	}
	return m
}

// unfit says why a pod can't be in the set, and books its name otherwise.
func (m Merged) unfit(pod *corev1.Pod, names map[types.NamespacedName]bool) string {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case pod.UID == "":
		return "it has no UID"
	case m.Pods[pod.UID] != nil:
		return "an earlier pod of the same source has its UID"
	case names[name]:
		return "an earlier pod of the same source has its name"
	}
	names[name] = true
	return ""
}

// arrived is the pod as it is stored when it is new.
func arrived(pod *corev1.Pod, source string, now time.Time) *corev1.Pod {
	pod = pod.DeepCopy()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationSource] = source
	pod.Annotations[AnnotationSeen] = now.Format(SeenLayout)
	return pod
}

// local reports whether the node owns an annotation: a source can't change it
// once the pod is known.
func local(annotation string) bool {
	return annotation == AnnotationSource || annotation == AnnotationSeen || annotation == AnnotationMirror
}

// withLocalAnnotationsOf is pod with the annotations that the node gave to
// stored. It shares everything else with pod, which must not be changed.
func withLocalAnnotationsOf(stored, pod *corev1.Pod) *corev1.Pod {
	annotations := maps.Clone(pod.Annotations)
	maps.DeleteFunc(annotations, func(k, _ string) bool { return local(k) })
	if annotations == nil {
		annotations = map[string]string{}
	}
	for k, v := range stored.Annotations {
		if local(k) {
			annotations[k] = v
		}
	}
	next := *pod
	next.Annotations = annotations
	return &next
}

// sameWish reports whether two versions of a pod ask for the same.
func sameWish(a, b *corev1.Pod) bool {
	return same(&a.Spec, &b.Spec) && same(a.Labels, b.Labels) && same(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		same(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// same reports whether two values mean the same: 1000m is 1, and an empty list
// is none. Nearly always they are the very same, which is found faster.
func same[T any](a, b T) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}

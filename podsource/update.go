package podsource

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Names of the sources of this room, and of the API server's, as they stand in
// [AnnotationSource]. An embedder's Source may have any other name.
const (
	SourceFile = "file"
	SourceHTTP = "http"
	SourceAPI  = "api"
)

// Annotations that the node owns on every pod it runs.
const (
	// AnnotationSource names the source a pod came from. [Mux] sets it.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationHash is the hash of a static pod's manifest; it equals the UID.
	AnnotationHash = "kubernetes.io/config.hash"
	// AnnotationSeen is when the Mux first met the pod, in [SeenLayout].
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationMirror marks an API pod that only mirrors a static pod; its
	// value is the static pod's hash.
	AnnotationMirror = "kubernetes.io/config.mirror"
)

// SeenLayout is the time layout of [AnnotationSeen]: RFC 3339 with nine digits
// after the point, so that values sort as text.
const SeenLayout = "2006-01-02T15:04:05.000000000Z07:00"

// systemCriticalPriority is the lowest priority of the built-in system-*
// priority classes.
const systemCriticalPriority = 2000000000

// Op says what happened to the pods of an [Update].
type Op uint8

// The operations. Delete and Remove differ: Delete asks for a graceful end
// (deletionTimestamp is set), Remove says that the source has no such pod any more.
const (
	OpAdd Op = iota + 1
	OpUpdate
	OpDelete
	OpRemove
	OpReconcile // only the status differs
)

func (o Op) String() string {
	switch o {
	case OpAdd:
		return "Add"
	case OpUpdate:
		return "Update"
	case OpDelete:
		return "Delete"
	case OpRemove:
		return "Remove"
	case OpReconcile:
		return "Reconcile"
	default:
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
}

// Update is one kind of change to pods of one source. Its pods belong to the
// receiver: they are copies that nothing else refers to.
//
// An Add without pods is a source's way to say that it has spoken and has none.
type Update struct {
	Op     Op
	Source string
	Pods   []*corev1.Pod
}

// IsMirror reports whether the pod is the API server's picture of a static pod.
func IsMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[AnnotationMirror]
	return ok
}

// IsStatic reports whether the pod came from another source than the API server.
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[AnnotationSource]
	return ok && source != SourceAPI
}

// IsCritical reports whether the node should part with the pod last: it is
// static, mirrors a static pod, or has a system-critical priority.
func IsCritical(pod *corev1.Pod) bool {
	return IsStatic(pod) || IsMirror(pod) ||
		pod.Spec.Priority != nil && *pod.Spec.Priority >= systemCriticalPriority
}

// FullName is name_namespace, by which a static pod and its mirror know each
// other: their UIDs differ.
func FullName(pod *corev1.Pod) string { return pod.Name + "_" + pod.Namespace }

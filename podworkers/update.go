package podworkers

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// UpdateType says why a pod is handed in.
type UpdateType int

const (
	// Create introduces a pod. For a pod that is ending it asks for another
	// life of the same UID, see [Workers.SyncKnownPods].
	Create UpdateType = iota
	// Change brings a changed pod, and introduces it where it is not known.
	Change
	// Sync asks for another look. It introduces nothing: a pod that was refused
	// or forgotten is not started by a late event.
	Sync
	// Kill ends the pod.
	Kill
)

// String returns the kubelet's word for the type, its metrics' operation_type.
func (t UpdateType) String() string {
	switch t {
	case Create:
		return "create"
	case Change:
		return "update"
	case Sync:
		return "sync"
	case Kill:
		return "kill"
	default:
		return fmt.Sprintf("UpdateType(%d)", int(t))
	}
}

// Update is one piece of news about one pod.
type Update struct {
	Type UpdateType
	// Pod is the desired pod. It is kept and handed to the [Syncer]: treat it as
	// read-only afterwards.
	Pod *corev1.Pod
	// Orphan is a pod that only the runtime knows. It is read when Pod is nil,
	// and always ends the pod.
	Orphan observed.Pod
	// Kill says how to end the pod; read for Type Kill and for an Orphan.
	Kill *KillOptions
	// Start is when the news came in. Of several updates served by one call the
	// oldest counts for [Round.Took].
	Start time.Time
}

// KillOptions say how a pod is ended.
type KillOptions struct {
	// Evict marks the pod as evicted: its content may go although its source
	// still wants it.
	Evict bool
	// Grace is the grace period in seconds, at least 1. It can only shorten one
	// that is already set. Nil: the pod's own.
	Grace *int64
	// Done, if not nil, is closed once nothing of the pod runs any more, or at
	// once when that is so already. It is not closed if Run ends first. Use a
	// channel for one update only.
	Done chan<- struct{}
}

func (u Update) uid() observed.UID {
	if u.Pod != nil {
		return observed.UID(u.Pod.UID)
	}
	return u.Orphan.UID
}

func (u Update) name() string {
	if u.Pod != nil {
		return u.Pod.Namespace + "/" + u.Pod.Name
	}
	return u.Orphan.Namespace + "/" + u.Orphan.Name
}

// ends reports whether the update asks for the end of the pod.
func (u Update) ends() bool {
	return u.Type == Kill || u.Pod == nil || u.Pod.DeletionTimestamp != nil ||
		u.Pod.Status.Phase == corev1.PodFailed || u.Pod.Status.Phase == corev1.PodSucceeded
}

// kill returns the options of an update that may carry them.
func (u Update) kill() KillOptions {
	if u.Kill == nil {
		return KillOptions{}
	}
	if u.Type != Kill && u.Pod != nil {
		return KillOptions{Done: u.Kill.Done}
	}
	return *u.Kill
}

package podworkers

import (
	"fmt"
	"time"
)

// Phase is where one pod is in its life on this node. One life only moves
// forward; phases are ordered, so questions are comparisons.
type Phase int

const (
	Unseen        Phase = iota // not known, and SyncKnownPods has not run: assume it may run
	Syncing                    // containers may start
	StopRequested              // someone asked; the worker may be mid-sync
	Stopping                   // the worker agreed; nothing new starts
	Stopped                    // nothing runs
	Finished                   // volumes and cgroups released
	Gone                       // forgotten; or not known, and SyncKnownPods has run
)

// MayHaveRunning reports whether a container of the pod may still be running.
func (p Phase) MayHaveRunning() bool { return p < Stopped }

func (p Phase) String() string {
	switch p {
	case Unseen:
		return "Unseen"
	case Syncing:
		return "Syncing"
	case StopRequested:
		return "StopRequested"
	case Stopping:
		return "Stopping"
	case Stopped:
		return "Stopped"
	case Finished:
		return "Finished"
	case Gone:
		return "Gone"
	default:
		return fmt.Sprintf("Phase(%d)", int(p))
	}
}

// State is what the workers know and have decided about one pod.
type State struct {
	Phase Phase
	Since time.Time // when Phase began

	Pod         string // namespace/name
	RuntimeOnly bool   // no source names it; it was found in the runtime
	Deleted     bool   // no longer wanted: deletion timestamp, or left its source
	Evicted     bool   // a kill with Evict
	Waiting     bool   // behind another pod of the same name
	Restart     bool   // the same UID came back; SyncKnownPods makes room for it
	Working     bool   // a worker is at it, or has an update to look at

	// Grace is the grace period in seconds of a pod that is asked to stop. With
	// OwnGrace the pod's own rules are followed and Grace is only their bound.
	Grace    int64
	OwnGrace bool

	StartedAt time.Time // the first SyncPod began; zero before
	SyncedAt  time.Time // the last SyncPod that had no error ended
	LastError string    // of the last call; empty after a good one
	RetryAt   time.Time // when its time comes again; zero if not planned
}

// ContentRemovable reports whether containers and logs of the pod may be
// removed. It is the kubelet's "should pod content be removed".
func (s State) ContentRemovable() bool {
	return s.Phase == Gone || s.Evicted || s.Deleted && s.Phase >= Stopped
}

package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/observed"
)

// EventType is what happened, in the kubelet's words.
type EventType string

// The kubelet's event types.
const (
	ContainerStarted EventType = "ContainerStarted"
	ContainerDied    EventType = "ContainerDied"
	ContainerRemoved EventType = "ContainerRemoved"
	// ContainerChanged is a step to or within a state that is neither running nor
	// exited. [Diff] reports it; [Generator.Watch], like the kubelet's, does not.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync says that a pod which could not be inspected for a while could be,
	// and had not changed meanwhile.
	PodSync EventType = "PodSync"
)

// PodLifecycleEvent says that something of a pod changed. What is true now is in
// the [Cache]. Sandboxes are reported like containers, as the kubelet does.
type PodLifecycleEvent struct {
	ID   observed.UID
	Type EventType
	// Data is the container's or sandbox's ID; empty for PodSync.
	Data observed.ContainerID
}

// Diff compares two observations of one pod. What was there comes first, then
// what is new, each from the oldest to the newest, containers before sandboxes.
func Diff(old, new observed.Pod) []PodLifecycleEvent {
	uid := new.UID
	if uid == "" {
		uid = old.UID
	}
	before, after := states(old), states(new)
	var events []PodLifecycleEvent
	add := func(id observed.ContainerID) {
		for _, t := range transition(before[id], after[id]) {
			events = append(events, PodLifecycleEvent{ID: uid, Type: t, Data: id})
		}
	}
	eachID(old, add)
	eachID(new, func(id observed.ContainerID) {
		if before[id] == absent {
			add(id)
		}
	})
	return events
}

// seen is the kubelet's view of a container's state; the zero value is "not there".
type seen uint8

const (
	absent seen = iota
	running
	exited
	unclear // created, or the runtime could not tell
)

func transition(from, to seen) []EventType {
	switch {
	case from == to:
		return nil
	case to == running:
		return []EventType{ContainerStarted}
	case to == exited:
		return []EventType{ContainerDied}
	case to == unclear:
		return []EventType{ContainerChanged}
	case from == exited:
		return []EventType{ContainerRemoved}
	default:
		return []EventType{ContainerDied, ContainerRemoved}
	}
}

func states(p observed.Pod) map[observed.ContainerID]seen {
	if !p.Exists() {
		return nil
	}
	m := make(map[observed.ContainerID]seen, len(p.Containers)+len(p.Sandboxes))
	for _, s := range p.Sandboxes {
		m[observed.ContainerID(s.ID)] = exited
		if s.Ready {
			m[observed.ContainerID(s.ID)] = running
		}
	}
	for _, c := range p.Containers {
		switch c.State {
		case observed.Running:
			m[c.ID] = running
		case observed.Exited:
			m[c.ID] = exited
		default:
			m[c.ID] = unclear
		}
	}
	return m
}

// eachID calls do for every container, oldest first, then for every sandbox.
func eachID(p observed.Pod, do func(observed.ContainerID)) {
	for _, c := range slices.Backward(p.Containers) {
		do(c.ID)
	}
	for _, s := range slices.Backward(p.Sandboxes) {
		do(observed.ContainerID(s.ID))
	}
}

// runningIDs are the IDs that a listing of the pod would show.
func runningIDs(p observed.Pod) []observed.ContainerID {
	var ids []observed.ContainerID
	for _, s := range p.Sandboxes {
		if s.Ready {
			ids = append(ids, observed.ContainerID(s.ID))
		}
	}
	for _, c := range p.Containers {
		if c.State == observed.Running {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// sameRunning reports whether the listing shows exactly the given IDs. It
// allocates nothing: a relist calls it for every running pod.
func sameRunning(ids []observed.ContainerID, listed observed.Pod) bool {
	n := 0
	for i := range listed.Sandboxes {
		if s := &listed.Sandboxes[i]; s.Ready {
			if !slices.Contains(ids, observed.ContainerID(s.ID)) {
				return false
			}
			n++
		}
	}
	for i := range listed.Containers {
		if c := &listed.Containers[i]; c.State == observed.Running {
			if !slices.Contains(ids, c.ID) {
				return false
			}
			n++
		}
	}
	return n == len(ids)
}

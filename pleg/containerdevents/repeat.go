package containerdevents

import (
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// pauses are the times between the mark of a task's end and its repetitions. The
// CRI plugin takes an exit in by deleting the task, which may take seconds, and
// then writing the new state to disk, which takes a few milliseconds.
var pauses = [...]time.Duration{
	10 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond,
	100 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second,
}

// Where in pauses the repetitions begin: no hurry while the task is there.
const (
	afterDelete = 0
	afterExit   = 3
)

// repeats holds marks to be made again. Each step has one pause, so its queue is
// in order of time.
type repeats struct {
	steps [len(pauses)][]repeat
}

type repeat struct {
	id observed.ContainerID
	at time.Time
}

// add replaces what is still to come of an earlier event of the same task.
func (r *repeats) add(id observed.ContainerID, step int, now time.Time) {
	r.drop(id)
	r.steps[step] = append(r.steps[step], repeat{id: id, at: now.Add(pauses[step])})
}

// drop ends the repetitions for a container.
func (r *repeats) drop(id observed.ContainerID) {
	for i := range r.steps {
		r.steps[i] = slices.DeleteFunc(r.steps[i], func(other repeat) bool { return other.id == id })
	}
}

// timer fires when the next repetition is due; it is nil when there is none.
func (r *repeats) timer() <-chan time.Time {
	var next time.Time
	for _, step := range r.steps {
		if len(step) > 0 && (next.IsZero() || step[0].at.Before(next)) {
			next = step[0].at
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// due takes out what is to be marked now and puts it in for its next time.
func (r *repeats) due(now time.Time) []observed.ContainerID {
	var ids []observed.ContainerID
	for i := range r.steps {
		for len(r.steps[i]) > 0 && !r.steps[i][0].at.After(now) {
			id := r.steps[i][0].id
			r.steps[i] = r.steps[i][1:]
			ids = append(ids, id)
			if i+1 < len(r.steps) {
				r.steps[i+1] = append(r.steps[i+1], repeat{id: id, at: now.Add(pauses[i+1])})
			}
		}
	}
	return ids
}

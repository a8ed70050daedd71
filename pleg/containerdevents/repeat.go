package containerdevents

import (
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// pauses are the times between an exit's mark and its repetitions. The CRI plugin
// may take seconds over an exit: it deletes the task first.
var pauses = [...]time.Duration{100 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second}

// repeats holds marks to be made again. Each step has one pause, so its queue is
// in order of time.
type repeats struct {
	steps [len(pauses)][]repeat
}

type repeat struct {
	id observed.ContainerID
	at time.Time
}

func (r *repeats) add(id observed.ContainerID, now time.Time) {
	r.steps[0] = append(r.steps[0], repeat{id: id, at: now.Add(pauses[0])})
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

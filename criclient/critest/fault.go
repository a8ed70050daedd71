package critest

import (
	"context"
	"slices"
	"time"
)

// Fault is something that goes wrong in calls on command. The first group of
// fields says which calls, the second what happens to them.
type Fault struct {
	Method    string // CRI method; empty for all
	Container string // name or ID of a container, or ID of a sandbox; empty for all
	PodUID    string // empty for all
	// Match, if set, has the last word. It must not call the Runtime.
	Match func(Call) bool
	// Times is how many calls are hit; 0 for all until the fault is cleared.
	Times int

	// Err is the answer. An error without a gRPC status arrives as Unknown.
	Err error
	// Delay holds the call up.
	Delay time.Duration
	// Hang holds the call up until its context ends or the runtime is stopped.
	Hang bool
	// Late lets the call take effect first and does Err, Delay and Hang to its
	// answer. This is the slow runtime whose caller has given up.
	Late bool
	// TooLarge replaces the answer by ResourceExhausted, as gRPC does with one
	// above 16 MiB. The call has taken effect.
	TooLarge bool
	// Empty removes everything from the answer: a list says that nothing is there.
	Empty bool
}

type fault struct{ Fault }

// Inject puts a fault in force behind those already there; the first that
// matches hits a call. The function it returns takes it away again.
func (r *Runtime) Inject(f Fault) (clear func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &fault{f}
	r.faults = append(r.faults, p)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.faults = slices.DeleteFunc(r.faults, func(q *fault) bool { return q == p })
	}
}

// FailNext makes the next call of the method fail with err, before it has any effect.
func (r *Runtime) FailNext(method string, err error) {
	r.Inject(Fault{Method: method, Err: err, Times: 1})
}

// ClearFaults takes away all faults of calls and events. Held events are sent.
func (r *Runtime) ClearFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults, r.eventFaults = nil, nil
	r.releaseHeld()
}

// takeFault finds the fault that hits a call and counts it. The lock is held.
func (r *Runtime) takeFault(c Call) Fault {
	for i, f := range r.faults {
		if !f.hits(c) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				r.faults = slices.Delete(r.faults, i, i+1)
			}
		}
		return f.Fault
	}
	return Fault{}
}

func (f Fault) hits(c Call) bool {
	return (f.Method == "" || f.Method == c.Method) &&
		(f.Container == "" || f.Container == c.Container || f.Container == c.ID) &&
		(f.PodUID == "" || f.PodUID == c.PodUID) &&
		(f.Match == nil || f.Match(c))
}

// suffer does what holds a call up or ends it.
func (r *Runtime) suffer(ctx context.Context, f Fault) error {
	if f.Hang {
		return r.wait(ctx, nil)
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		if err := r.wait(ctx, t.C); err != nil {
			return err
		}
	}
	return asStatus(f.Err)
}

// wait blocks until c delivers, the call's context ends, or the runtime goes
// down. A nil c never delivers.
func (r *Runtime) wait(ctx context.Context, c <-chan time.Time) error {
	r.mu.Lock()
	down := r.down
	r.mu.Unlock()
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return asStatus(ctx.Err())
	case <-down:
		return errDown()
	}
}

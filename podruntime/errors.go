package podruntime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// StartFailure says why a container does not run.
type StartFailure struct {
	// Reason is the container's waiting reason, such as CrashLoopBackOff.
	Reason string
	// Message is the waiting message.
	Message string
	// RetryAt is when another try makes sense.
	RetryAt time.Time
	// Err is the cause; nil when a back-off is the only reason.
	Err error
}

// Result is what [Runtime.Converge] achieved.
type Result struct {
	// Started names the containers that now run, in the order of their start.
	Started []string
	// Failures has an entry per container that was tried and did not start.
	Failures map[string]StartFailure

	pod     string
	stopped error
}

// Err is nil when everything of the plan was started. Otherwise it is a
// [*StartError], or the context's error when that ended the work first.
func (r Result) Err() error {
	var failed error
	if len(r.Failures) > 0 {
		failed = &StartError{Pod: r.pod, Failures: r.Failures}
	}
	return errors.Join(failed, r.stopped)
}

// StartError says which containers of a pod did not start. Its text is fit for a log:
// the output of a hook, which is in the failure's message, is not in it.
type StartError struct {
	Pod      string // namespace/name
	Failures map[string]StartFailure
}

func (e *StartError) Error() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(e.Failures)) {
		f := e.Failures[name]
		message := f.Message
		if f.Reason == ReasonPostStartError && f.Err != nil {
			message = f.Err.Error()
		}
		parts = append(parts, fmt.Sprintf("start container %s of pod %s: %s: %s", name, e.Pod, f.Reason, message))
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the causes, in the order of the container names.
func (e *StartError) Unwrap() []error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(e.Failures)) {
		if err := e.Failures[name].Err; err != nil {
			all = append(all, err)
		}
	}
	return all
}

// RetryAt is the earliest time at which one of the containers may be tried again.
func (e *StartError) RetryAt() time.Time {
	var first time.Time
	for _, f := range e.Failures {
		if first.IsZero() || f.RetryAt.Before(first) {
			first = f.RetryAt
		}
	}
	return first
}

package podruntime

import (
	"context"
	"time"
)

// finishWithin is how long a call that was begun may go on after its context has
// ended. An agent that is told to stop is not held up by a runtime that hangs.
const finishWithin = 10 * time.Second

// finishing is the context of one call that should not be interrupted: a runtime
// whose RunPodSandbox or StartContainer is cancelled half-way may leave parts
// behind that it does not know any more (containerd 1.6 leaves a shim). Whoever
// ends ctx still gets what he wants, since nothing is begun after the call.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	limit := time.NewTimer(finishWithin)
	limit.Stop()
	stop := context.AfterFunc(ctx, func() {
		limit.Reset(finishWithin)
		select {
		case <-limit.C:
			cancel()
		case <-call.Done():
		}
	})
	return call, func() {
		stop()
		cancel()
		limit.Stop()
	}
}

package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// permanent marks an error that [poll] shall not wait out.
func permanent(err error) error { return permanentError{err} }

// poll calls try until it returns nil or a permanent error, or ctx ends; then
// the last error is the answer.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if p := (permanentError{}); errors.As(err, &p) {
			return p.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

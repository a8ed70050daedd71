package pleg

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 30 * time.Second
	// livedAfter is how long a stream has to be up for its end to count as the
	// first of a row of failures.
	livedAfter = 10 * time.Second
)

// follow keeps the event stream open until ctx ends. It never gives up: a runtime
// that restarts often must not lose its events for good, as happens to the
// kubelet (https://github.com/kubernetes/kubernetes/issues/121003).
func (g *Generator) follow(ctx context.Context) {
	delay := reconnectMin
	quiet := false // the ends in a row after the first are not news
	for {
		err := g.cfg.Events.Stream(ctx, func() {
			g.in.connected()
			g.cfg.Log.V(1).Info("Event stream connected")
			g.cfg.Hooks.StreamConnected()
		}, g.in.event)
		if ctx.Err() != nil {
			return
		}
		lived := g.in.disconnected()
		g.cfg.Hooks.StreamEnded(err)
		switch {
		case errors.Is(err, ErrEventsUnsupported):
			delay = reconnectMax
		case lived >= livedAfter:
			delay, quiet = reconnectMin, false
		}
		if quiet {
			g.cfg.Log.V(1).Info("Event stream ended", "err", err, "retryIn", delay)
		} else {
			g.cfg.Log.Info("No event stream, relists find the changes", "err", err, "retryIn", delay)
			quiet = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay/2 + rand.N(delay/2+1)):
		}
		delay = min(2*delay, reconnectMax)
	}
}

// FirstSupported is a source that uses the first of the given ones that the
// runtime supports. Each time a stream has to be opened it starts anew with the
// first, because a runtime may be upgraded. If none is supported it returns
// [ErrEventsUnsupported].
func FirstSupported(sources ...EventSource) EventSource { return firstSupported(sources) }

type firstSupported []EventSource

// Stream implements [EventSource].
func (f firstSupported) Stream(ctx context.Context, connected func(), mark func(Mark)) error {
	for _, source := range f {
		if err := source.Stream(ctx, connected, mark); !errors.Is(err, ErrEventsUnsupported) {
			return err
		}
	}
	return ErrEventsUnsupported
}

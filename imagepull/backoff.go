package imagepull

import (
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// backoffKey: each pod waits for each of its images by itself.
type backoffKey struct {
	pod   observed.UID
	image string
}

// backoff is the delay after failed pulls. Success does not clear it; only time
// does, so an image that fails now and then stays slowed down.
type backoff struct {
	delay   time.Duration
	failed  time.Time // the last time
	reason  string
	message string
}

// expired: nothing failed for twice the longest delay.
func (b backoff) expired(now time.Time, limit time.Duration) bool {
	return now.Sub(b.failed) > 2*limit
}

// next is the state after one more failure.
func (b backoff) next(now time.Time, initial, limit time.Duration) backoff {
	if b.delay == 0 || b.expired(now, limit) {
		b.delay = initial
	} else {
		b.delay *= 2
	}
	b.delay = min(b.delay, limit)
	b.failed = now
	return b
}

// heldBack returns an error while the back-off of this pod and image runs.
func (a *ask) heldBack() error {
	now := time.Now()
	a.p.mu.Lock()
	b, ok := a.p.mu.backoff[a.backoffKey()]
	a.p.mu.Unlock()
	if !ok || b.expired(now, a.p.cfg.BackoffMax) || now.Sub(b.failed) >= b.delay {
		return nil
	}
	return &Error{
		Reason:  ReasonBackOff,
		Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", a.image, b.reason, b.message),
		Retry:   b.failed.Add(b.delay),
	}
}

// backOff records a failure and returns when the next try may begin.
func (p *Puller) backOff(key backoffKey, reason, message string, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit := p.cfg.BackoffMax; now.Sub(p.mu.swept) > limit {
		// What nobody forgot by name still goes in time.
		for k, b := range p.mu.backoff {
			if b.expired(now, limit) {
				delete(p.mu.backoff, k)
			}
		}
		p.mu.swept = now
	}
	b := p.mu.backoff[key].next(now, p.cfg.BackoffInitial, p.cfg.BackoffMax)
	b.reason, b.message = reason, message
	p.mu.backoff[key] = b
	return now.Add(b.delay)
}

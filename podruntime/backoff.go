package podruntime

import (
	"encoding/json"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// backoffReset is how long after its last change a delay is forgotten: a
// container that ran that long before it ended is not crash looping.
const backoffReset = 10 * time.Minute

// delay is the crash-loop back-off of one container of one pod. The zero value
// has never delayed anything.
type delay struct {
	// spec is the image and resources that the delay belongs to. A change of
	// either deserves a fresh try.
	spec    uint64
	delay   time.Duration
	updated time.Time // when delay last changed
	until   time.Time // the end of the wait decided last; zero when not waiting
	// removed is when an instance ended that was removed before its successor
	// started; zero when there is none.
	removed time.Time
}

// current returns d if it still counts for a container with this spec that ended
// at finished, else the zero delay.
func (d delay) current(spec uint64, finished time.Time) delay {
	if d.spec != spec || finished.Sub(d.updated) > backoffReset {
		return delay{spec: spec}
	}
	return d
}

// next decides about one start attempt at now, of a container that ended at
// finished. Either the attempt has to wait until d.until, or it may go on and
// the delay for the next one has grown. The first start after the first exit is
// immediate.
func (d delay) next(spec uint64, finished, now time.Time, initial, limit time.Duration) (delay, bool) {
	d = d.current(spec, finished)
	if d.delay > 0 && now.Sub(finished) < d.delay {
		d.until = finished.Add(d.delay)
		// A finish time in the future is another clock's; it must not stretch
		// the wait beyond one delay.
		if latest := now.Add(d.delay); d.until.After(latest) {
			d.until = latest
		}
		return d, false
	}
	if d.delay == 0 {
		d.delay = min(initial, limit)
	} else {
		d.delay = min(2*d.delay, limit)
	}
	d.updated, d.until = now, time.Time{}
	return d, true
}

// backoffs holds the delays of all pods of this node.
type backoffs struct {
	initial, limit time.Duration

	mu struct {
		sync.Mutex
		pods map[observed.UID]map[string]delay
	}
}

// try asks whether the container may start now. When not, the returned delay
// says until when.
func (b *backoffs) try(uid observed.UID, c *corev1.Container, finished, now time.Time) (delay, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, ok := b.of(uid)[c.Name].next(specKey(c), finished, now, b.initial, b.limit)
	b.of(uid)[c.Name] = d
	return d, ok
}

// removed notes the end of an instance that is being removed. The next start goes by
// it when there is nothing else to go by.
func (b *backoffs) removed(uid observed.UID, name string, finished time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.of(uid)[name]
	d.removed = finished
	b.of(uid)[name] = d
}

// of returns the delays of one pod. The lock is held.
func (b *backoffs) of(uid observed.UID) map[string]delay {
	if b.mu.pods == nil {
		b.mu.pods = make(map[observed.UID]map[string]delay)
	}
	if b.mu.pods[uid] == nil {
		b.mu.pods[uid] = make(map[string]delay)
	}
	return b.mu.pods[uid]
}

func (b *backoffs) get(uid observed.UID, name string) (delay, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, ok := b.mu.pods[uid][name]
	return d, ok
}

func (b *backoffs) forget(uid observed.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.pods, uid)
}

// specKey changes with the image and the resources of a container. It lives only
// as long as the process.
func specKey(c *corev1.Container) uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.Image))
	h.Write([]byte{0})
	// Quantities always encode, and map keys are sorted.
	data, _ := json.Marshal(c.Resources)
	h.Write(data)
	return h.Sum64()
}

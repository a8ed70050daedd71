package pleg

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Cache holds the newest observation of every pod that exists in the runtime.
// Only the [Generator] it comes from writes to it; anyone may read. The pods are
// shared: treat them as read-only.
type Cache struct {
	want func(observed.UID, observed.Seq) // asks for a look begun after the number
	done <-chan struct{}

	mu      sync.RWMutex
	entries map[observed.UID]entry
	waiters map[observed.UID][]*waiter
}

// entry keeps a failed look beside the last good one: the failure answers those
// who wait for something newer, and the pod is still what was known last.
type entry struct {
	pod    observed.Pod
	seq    observed.Seq // of pod; 0 when there is none yet
	err    error
	errSeq observed.Seq
}

// answer gives what satisfies a wait for something begun after the number.
func (e entry) answer(after observed.Seq) (observed.Pod, error, bool) {
	switch {
	case e.seq > after:
		return e.pod, nil, true
	case e.errSeq > after:
		return observed.Pod{}, e.err, true
	}
	return observed.Pod{}, nil, false
}

type waiter struct {
	after observed.Seq
	reply chan entry // room for the one answer
}

func newCache(want func(observed.UID, observed.Seq), done <-chan struct{}) *Cache {
	return &Cache{
		want:    want,
		done:    done,
		entries: map[observed.UID]entry{},
		waiters: map[observed.UID][]*waiter{},
	}
}

// Get returns the newest good observation. False means that there is none: the
// runtime holds nothing for the pod, or nobody has looked yet. Only Wait can tell.
func (c *Cache) Get(uid observed.UID) (observed.Pod, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	e := c.entries[uid]
	return e.pod, e.seq > 0
}

// Pods returns every pod that is known to exist in the runtime, in no order.
// Before the first [Generator.Relist] has returned that is not all of them.
func (c *Cache) Pods() []observed.Pod { return c.filter(func(observed.Pod) bool { return true }) }

// Running returns the pods of Pods with a ready sandbox or a container that runs
// or may run.
func (c *Cache) Running() []observed.Pod {
	return c.filter(func(p observed.Pod) bool { return p.HasReadySandbox() || p.HasRunning() })
}

func (c *Cache) filter(keep func(observed.Pod) bool) []observed.Pod {
	c.mu.RLock()
	defer c.mu.RUnlock()
	pods := make([]observed.Pod, 0, len(c.entries))
	for _, e := range c.entries {
		if e.seq > 0 && keep(e.pod) {
			pods = append(pods, e.pod)
		}
	}
	return pods
}

// GetNewerThan is [Generator.Wait].
func (c *Cache) GetNewerThan(ctx context.Context, uid observed.UID, after observed.Seq) (observed.Pod, error) {
	select {
	case <-c.done:
		return observed.Pod{}, fmt.Errorf("wait for pod %s: %w", uid, ErrStopped)
	default:
	}
	w := &waiter{after: after, reply: make(chan entry, 1)}
	c.mu.Lock()
	if pod, err, ok := c.entries[uid].answer(after); ok {
		c.mu.Unlock()
		return pod, err
	}
	c.waiters[uid] = append(c.waiters[uid], w)
	c.mu.Unlock()
	c.want(uid, after)
	select {
	case e := <-w.reply:
		pod, err, _ := e.answer(after)
		return pod, err
	case <-c.done:
		return observed.Pod{}, fmt.Errorf("wait for pod %s: %w", uid, ErrStopped)
	case <-ctx.Done():
		c.forget(uid, w)
		return observed.Pod{}, fmt.Errorf("wait for pod %s: %w", uid, ctx.Err())
	}
}

func (c *Cache) forget(uid observed.UID, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(uid, slices.DeleteFunc(c.waiters[uid], func(o *waiter) bool { return o == w }))
}

// set stores a good look. A pod of which nothing exists leaves the cache, so the
// cache does not grow with the pods that have been.
func (c *Cache) set(uid observed.UID, pod observed.Pod, seq observed.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := entry{pod: pod, seq: seq}
	if pod.Exists() {
		c.entries[uid] = e
	} else {
		delete(c.entries, uid)
	}
	c.wake(uid, e)
}

// fail stores a failed look beside the last good one.
func (c *Cache) fail(uid observed.UID, err error, seq observed.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[uid]
	e.err, e.errSeq = err, seq
	c.entries[uid] = e
	c.wake(uid, e)
}

func (c *Cache) wake(uid observed.UID, e entry) {
	waiting := c.waiters[uid]
	if len(waiting) == 0 {
		return
	}
	c.keep(uid, slices.DeleteFunc(waiting, func(w *waiter) bool {
		_, _, ok := e.answer(w.after)
		if ok {
			w.reply <- e
		}
		return ok
	}))
}

func (c *Cache) keep(uid observed.UID, waiting []*waiter) {
	if len(waiting) == 0 {
		delete(c.waiters, uid)
		return
	}
	c.waiters[uid] = waiting
}

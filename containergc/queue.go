package containergc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

const (
	// maxQueued bounds the pods with a request. Above it requests are dropped.
	maxQueued = 1000
	// A finished pod that cannot go yet is tried again this often, this many
	// times. After that it waits for the pass.
	retryAfter = time.Second
	maxTries   = 10
	// A try that took this long waits for the pass, too: something hangs.
	slowTry = 10 * time.Second
)

// request is what is to be done for one pod. A newer one takes the place of an
// older one that has not begun.
type request struct {
	extra []Container
	done  bool // remove everything
	tries int
	after time.Time
}

// queue has at most one request per pod. Its wake channel holds one token; who
// takes a request passes the token on if there is more to take.
type queue struct {
	mu    sync.Mutex
	pods  map[observed.UID]*request
	order []observed.UID
	wake  chan struct{}
}

// ContainerDied asks for the removal of the pod's exited containers that are
// surplus ([Extra]), or of all of them when all is set, now rather than at the
// next pass. It never blocks. Requests for one pod are merged.
func (c *Collector) ContainerDied(pod observed.Pod, all bool) {
	if extra := Extra(pod, c.cfg.Policy, all); len(extra) > 0 {
		c.ask(pod.UID, func(r *request) { r.extra = extra })
	}
}

// PodDone asks for the removal of everything that a released pod has left:
// containers, sandboxes and its log directory. It never blocks. Removable is asked
// when the removal begins, so a pod that has come back under its UID loses
// nothing.
func (c *Collector) PodDone(uid observed.UID) {
	c.ask(uid, func(r *request) { r.done, r.tries, r.after = true, 0, time.Time{} })
}

func (c *Collector) ask(uid observed.UID, change func(*request)) {
	q := &c.queue
	q.mu.Lock()
	r, ok := q.pods[uid]
	full := !ok && len(q.order) >= maxQueued
	if !ok && !full {
		if q.pods == nil {
			q.pods = map[observed.UID]*request{}
		}
		r = &request{}
		q.pods[uid] = r
		q.order = append(q.order, uid)
	}
	if !full {
		change(r)
	}
	q.mu.Unlock()
	if !full {
		q.ring()
		return
	}
	c.cfg.Log.V(1).Info("Too many removals asked for; the next pass does this one", "podUID", uid)
	if c.cfg.Hooks.Dropped != nil {
		c.cfg.Hooks.Dropped(uid)
	}
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the first request that is due. Without one, ok is false and next
// is how long it takes until one is, zero if there is none at all.
func (q *queue) take(now time.Time) (uid observed.UID, r request, ok bool, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, u := range q.order {
		p := q.pods[u]
		if wait := p.after.Sub(now); wait > 0 {
			if next == 0 || wait < next {
				next = wait
			}
			continue
		}
		delete(q.pods, u)
		q.order = slices.Delete(q.order, i, i+1)
		if len(q.order) > 0 {
			q.ring()
		}
		return u, *p, true, 0
	}
	return "", request{}, false, next
}

// serve works on requests until ctx ends. It holds a timer only while a request
// waits for its next try.
func (c *Collector) serve(ctx context.Context) {
	for {
		uid, r, ok, next := c.queue.take(time.Now())
		if ok {
			c.work(ctx, uid, r)
			continue
		}
		var later <-chan time.Time
		if next > 0 {
			later = time.After(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-c.queue.wake:
		case <-later:
		}
	}
}

func (c *Collector) work(ctx context.Context, uid observed.UID, r request) {
	if ctx.Err() != nil {
		return
	}
	var err error
	if r.done {
		begin := time.Now()
		err = c.clear(ctx, uid)
		if err != nil && r.tries+1 < maxTries && time.Since(begin) < slowTry {
			c.ask(uid, func(again *request) {
				if !again.done { // PodDone was not called anew
					again.done, again.tries, again.after = true, r.tries+1, time.Now().Add(retryAfter)
				}
			})
			return
		}
	} else {
		err = c.carryOut(ctx, Removal{Containers: r.extra}).err()
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Log.Info("Not everything was removed; the next pass tries again", "podUID", uid, "reason", err.Error())
	}
}

// errNotYet is why clear leaves a pod for later.
var errNotYet = errors.New("its pod is not done yet")

// clear removes all that is left of one pod.
func (c *Collector) clear(ctx context.Context, uid observed.UID) error {
	if c.cfg.Removable == nil || !c.sourcesReady() || !c.cfg.Removable(uid) {
		return errNotYet
	}
	pod, err := c.look(ctx, uid)
	if err != nil {
		return err
	}
	// Asked again: what was seen may be the first container of its next life.
	if !c.cfg.Removable(uid) {
		return errNotYet
	}
	plan := Plan(Input{
		Now:             time.Now(),
		Pods:            []observed.Pod{pod},
		Policy:          Policy{MaxPerPodContainer: 0, MaxContainers: -1},
		Removable:       func(observed.UID) bool { return true },
		AllSourcesReady: true,
	})
	if err := c.carryOut(ctx, plan).err(); err != nil {
		return err
	}
	if len(plan.Containers) < len(pod.Containers) || len(plan.Sandboxes) < len(pod.Sandboxes) {
		return fmt.Errorf("something of it is still up: %w", errNotYet)
	}
	if c.cfg.LogDir == "" {
		return nil
	}
	// And once more: the removals may have taken minutes.
	_, err = c.removeLogDirsIf(ctx, func(u observed.UID) bool { return u == uid && c.cfg.Removable(u) })
	return err
}

func (c *Collector) look(ctx context.Context, uid observed.UID) (observed.Pod, error) {
	if c.inspector != nil {
		return c.inspector.InspectPod(ctx, observed.Pod{UID: uid})
	}
	pods, err := c.cfg.Lister.AllPods(ctx)
	if err != nil {
		return observed.Pod{}, err
	}
	for _, pod := range pods {
		if pod.UID == uid {
			return pod, nil
		}
	}
	return observed.Pod{UID: uid}, nil
}

package pleg

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

const (
	// slowAfter is when a look gives its place to the next one. A few pods that
	// hang would otherwise take all places for a whole InspectTimeout
	// (https://github.com/kubernetes/kubernetes/issues/94829).
	slowAfter = time.Second
	// slowFactor bounds the looks in flight, slow ones included, to this many
	// times Config.Inspectors: a runtime that is slow for all must not be given
	// ever more to do.
	slowFactor = 4
	// lateAfter is how long after its deadline a look is given up.
	lateAfter = time.Second

	retryMin = time.Second
	retryMax = 30 * time.Second
)

// place is what a look in flight counts against.
type place uint8

const (
	fresh    place = iota // one of Config.Inspectors
	slow                  // longer than slowAfter
	retrying              // the look before failed
	places   = 3
)

// look is one inspection of one pod.
type look struct {
	rec    *record
	seq    observed.Seq
	began  time.Time
	place  place
	late   bool // given up; the owner's only
	cancel context.CancelFunc

	pod  observed.Pod
	err  error
	took time.Duration
}

// retriers is how many retries run at once, beside the Inspectors.
func (o *owner) retriers() int { return max(1, o.cfg.Inspectors/2) }

// record returns the pod's record, and makes one where there is none.
func (o *owner) record(uid observed.UID) *record {
	r := o.pods[uid]
	if r == nil {
		r = &record{uid: uid, pod: observed.Pod{UID: uid}, heapAt: -1}
		o.pods[uid] = r
	}
	return r
}

// mark has the pod looked at, unless a look that began after the mark was drawn
// has been or is on its way. A mark during an older look leads to one more.
func (o *owner) mark(uid observed.UID, m mark, now time.Time) {
	if m.event {
		delete(o.suspects, uid)
	}
	r := o.record(uid)
	if r.seq > m.seq || r.look != nil && !r.look.late && r.look.seq > m.seq {
		return
	}
	o.due(r, m.lane)
	if r.fails > 0 {
		r.retryAt = now
		if r.look == nil {
			o.retries.set(r)
		}
	}
}

// due notes that the pod has to be looked at.
func (o *owner) due(r *record, l lane) {
	if r.dirty && r.lane >= l {
		return
	}
	r.dirty, r.lane = true, l
	if r.look == nil && r.fails == 0 {
		o.queue.push(r)
	}
}

// startLooks starts what is due, as far as there are places.
func (o *owner) startLooks(now time.Time) {
	for o.held[fresh] < o.cfg.Inspectors && o.held[fresh]+o.held[slow] < slowFactor*o.cfg.Inspectors {
		r := o.queue.pop()
		if r == nil {
			break
		}
		o.startLook(r, fresh, now)
	}
	for o.held[retrying] < o.retriers() {
		at, ok := o.retries.next()
		if !ok || at.After(now) {
			break
		}
		o.startLook(heap.Pop(&o.retries).(*record), retrying, now)
	}
}

func (o *owner) startLook(r *record, p place, now time.Time) {
	ctx, cancel := context.WithTimeout(o.ctx, o.cfg.InspectTimeout)
	l := &look{rec: r, seq: o.g.in.draw(), began: now, place: p, cancel: cancel}
	r.look, r.dirty, r.listed = l, false, nil
	o.looks[l] = struct{}{}
	o.held[p]++
	last := r.pod
	go func() {
		l.pod, l.err = o.cfg.Runtime.InspectPod(ctx, last)
		l.took = time.Since(l.began)
		o.g.in.post(func() { o.g.in.mu.mail.looked = append(o.g.in.mu.mail.looked, l) })
	}()
}

// lookDue is when the look stops being fresh, or is given up.
func (o *owner) lookDue(l *look) time.Time {
	if l.place == fresh {
		return l.began.Add(slowAfter)
	}
	return l.began.Add(o.cfg.InspectTimeout + lateAfter)
}

// expire moves looks on that take long. One that ignores its deadline is given
// up: its pod counts as failed, and is not looked at again before it returns, so
// there is never more than one per pod.
func (o *owner) expire(now time.Time) {
	for l := range o.looks {
		if now.Before(o.lookDue(l)) {
			continue
		}
		if l.place == fresh {
			o.held[fresh]--
			o.held[slow]++
			l.place = slow
		}
		if now.Before(o.lookDue(l)) {
			continue
		}
		o.held[l.place]--
		delete(o.looks, l)
		l.late = true
		o.failed(l, now.Sub(l.began), fmt.Errorf("no answer within %v: %w", o.cfg.InspectTimeout, context.DeadlineExceeded), now)
	}
	o.expireSuspects(now)
}

// looked takes in what a look brought.
func (o *owner) looked(l *look, now time.Time) {
	l.cancel()
	l.rec.look = nil
	if l.late { // its failure has been told; what it brings now is too old to use
		l.rec.retryAt = now
		o.retries.set(l.rec)
		return
	}
	delete(o.looks, l)
	o.held[l.place]--
	switch {
	case o.ctx.Err() != nil: // the end of Run is not a failure of the pod
	case l.err != nil:
		o.failed(l, l.took, l.err, now)
	default:
		o.cfg.Hooks.Inspected(l.rec.uid, l.took, nil)
		o.observe(l)
	}
}

// failed leaves the record as it is, so the events that the pod is owed come with
// the next look that succeeds.
func (o *owner) failed(l *look, took time.Duration, err error, now time.Time) {
	r := l.rec
	err = fmt.Errorf("inspect pod %s: %w", r.name(), err)
	o.cfg.Hooks.Inspected(r.uid, took, err)
	r.fails++
	if r.fails == 1 {
		o.cfg.Log.Info("Inspection failed, the pod will be retried", "pod", r.name(), "podUID", r.uid, "err", err)
	} else {
		o.cfg.Log.V(1).Info("Inspection failed again", "pod", r.name(), "podUID", r.uid, "fails", r.fails, "err", err)
	}
	r.retryAt = now.Add(backoff(r.fails))
	if r.dirty { // marked during the look
		r.retryAt = now
	}
	r.dirty = true
	if !l.late {
		o.retries.set(r)
	}
	o.g.cache.fail(r.uid, err, l.seq)
	o.lookDone(l, err)
}

func backoff(fails int) time.Duration {
	return min(retryMin<<min(fails-1, 10), retryMax)
}

// observe stores the look in the cache, and only then lets its events out.
func (o *owner) observe(l *look) {
	r, pod := l.rec, l.pod
	pod.UID = r.uid
	recovered, listed := r.fails > 0, r.listed
	r.fails = 0
	events := Diff(r.pod, pod)
	o.reindex(r.pod, pod)
	r.pod, r.seq, r.running = pod, l.seq, runningIDs(pod)
	if len(r.running) > 0 {
		o.live[r.uid] = r
	} else {
		delete(o.live, r.uid)
	}
	o.g.cache.set(r.uid, pod, l.seq)

	events = slices.DeleteFunc(events, func(e PodLifecycleEvent) bool { return e.Type == ContainerChanged })
	if recovered && len(events) == 0 && pod.Exists() {
		events = append(events, PodLifecycleEvent{ID: r.uid, Type: PodSync})
	}
	for _, e := range events {
		o.out.add(e)
	}

	switch {
	case r.dirty:
		o.queue.push(r)
	case listed != nil && !sameRunning(r.running, *listed):
		o.due(r, found)
	case !pod.Exists():
		delete(o.pods, r.uid)
	}
	o.lookDone(l, nil)
}

// reindex keeps the way from a container's ID to its pod.
func (o *owner) reindex(old, new observed.Pod) {
	eachID(old, func(id observed.ContainerID) { delete(o.ids, id) })
	eachID(new, func(id observed.ContainerID) { o.ids[id] = new.UID })
}

func (r *record) name() string {
	if r.pod.Name == "" {
		return string(r.uid)
	}
	return r.pod.Namespace + "/" + r.pod.Name
}

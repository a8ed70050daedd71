package pleg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

const (
	// eventGrace is how long the event of a change that a relist found may still
	// be on its way.
	eventGrace = time.Second
	// cleanRelists is how many relists in a row have to find nothing unannounced
	// before the stream is relied on again.
	cleanRelists = 60
)

// relist is the owner's state about lists.
type relist struct {
	listing bool
	failing bool
	lists   uint64
	begun   observed.Seq // of the list started last
	good    observed.Seq // of the last list that succeeded
	ended   time.Time    // of the last list
	// need is drawn when something happened that only a list can tell: the stream
	// connected, or an event came that leads to no pod. A good list with a higher
	// number has closed that gap.
	need   observed.Seq
	stream stream
	// distrust counts down the clean relists that the stream still owes.
	distrust int
	// suspects are pods that a relist found changed and no event has announced.
	suspects    map[observed.UID]struct{}
	suspectsDue time.Time

	asked    []chan error // for a list that has not begun
	requests []*request
}

// listing is one list of what runs.
type listing struct {
	seq   observed.Seq
	at    time.Time
	asked []chan error

	pods []observed.Pod
	err  error
	took time.Duration
}

// request is a Relist whose list is done, but not the looks that followed.
type request struct {
	seq     observed.Seq // of the list
	replies []chan error
	pending map[observed.UID]struct{}
	errs    []error
}

// streamIs takes in the state of the event stream.
func (o *owner) streamIs(s stream) {
	if s == o.stream {
		return
	}
	o.stream = s
	clear(o.suspects)
	o.need = max(o.need, s.seq)
}

// unclear notes an event that leads to no pod.
func (o *owner) unclear(seq observed.Seq) {
	o.need = max(o.need, seq)
	clear(o.suspects)
}

// listDue is when the next list starts, if none is running.
func (o *owner) listDue() time.Time {
	switch {
	case len(o.asked) > 0 || o.stream.up && o.stream.seq > o.begun:
		return time.Time{}
	case o.stream.up && o.good > o.need && o.distrust == 0:
		return o.ended.Add(o.cfg.SlowRelistEvery)
	default:
		return o.ended.Add(o.cfg.RelistEvery)
	}
}

func (o *owner) startList(now time.Time) {
	if o.listing || now.Before(o.listDue()) {
		return
	}
	o.lists++
	l := &listing{seq: o.g.in.draw(), at: now, asked: o.asked}
	o.listing, o.begun, o.asked = true, l.seq, nil
	go func() {
		ctx, cancel := context.WithTimeout(o.ctx, o.cfg.RelistThreshold)
		defer cancel()
		l.pods, l.err = o.cfg.Runtime.RunningPods(ctx)
		l.took = time.Since(l.at)
		o.g.in.post(func() { o.g.in.mu.mail.listed = l })
	}()
}

// listed takes in what a list brought. A list that failed changes nothing but
// the health, which ages from the last good one.
func (o *owner) listed(l *listing, now time.Time) {
	o.listing, o.ended = false, now
	if o.ctx.Err() != nil {
		return
	}
	if l.err != nil {
		l.err = fmt.Errorf("list running pods: %w", l.err)
		o.cfg.Hooks.Relisted(l.took, 0, l.err)
		o.listFailed(l)
		return
	}
	o.cfg.Hooks.Relisted(l.took, len(l.pods), nil)
	o.g.in.sawRuntime(l.at)
	if o.failing { // what failed with the runtime may succeed with it
		o.failing = false
		o.cfg.Log.Info("Relist works again")
		o.retries.allDue(now)
	}
	// Only between two lists that the stream covers as a whole can a change be
	// called unannounced.
	covered := o.stream.up && o.good > o.need
	o.good = l.seq
	suspects := len(o.suspects)
	o.compare(l, covered)
	if len(o.suspects) > suspects {
		o.suspectsDue = now.Add(eventGrace)
	} else if covered && o.distrust > 0 {
		o.distrust--
	}
	if len(l.asked) > 0 {
		o.serve(l, now)
	}
}

func (o *owner) listFailed(l *listing) {
	if o.failing {
		o.cfg.Log.V(1).Info("Relist failed again", "err", l.err)
	} else {
		o.failing = true
		o.cfg.Log.Error(l.err, "Relist failed; what was known before is kept, check that the runtime answers")
	}
	for _, reply := range l.asked {
		reply <- l.err
	}
}

// compare finds the pods whose records differ from the list.
func (o *owner) compare(l *listing, covered bool) {
	pods, containers := 0, 0
	for i := range l.pods {
		p := &l.pods[i]
		for j := range p.Containers {
			if p.Containers[j].State == observed.Running {
				containers++
			}
		}
		if p.HasReadySandbox() {
			pods++
		}
		r := o.pods[p.UID]
		if r == nil {
			if p.UID == "" || sameRunning(nil, *p) {
				continue
			}
			r = o.record(p.UID)
			r.pod.Namespace, r.pod.Name = p.Namespace, p.Name
		}
		r.list = o.lists
		if !sameRunning(r.running, *p) {
			o.differs(r, p, covered && r.seq < l.seq)
		}
	}
	for _, r := range o.live {
		if r.list != o.lists {
			o.differs(r, &observed.Pod{UID: r.uid}, covered && r.seq < l.seq)
		}
	}
	o.cfg.Hooks.Running(pods, containers)
}

// differs has the pod looked at. While a look is on its way the list is kept: if
// the look agrees with it, one is enough.
func (o *owner) differs(r *record, listed *observed.Pod, suspect bool) {
	switch {
	case r.look != nil:
		p := *listed
		r.listed = &p
	case !r.dirty:
		if suspect {
			o.suspects[r.uid] = struct{}{}
		}
		o.due(r, found)
	}
}

// expireSuspects ends the wait for events. The stream has lost something, so
// relists are close together until it has shown to be whole.
func (o *owner) expireSuspects(now time.Time) {
	if len(o.suspects) == 0 || now.Before(o.suspectsDue) {
		return
	}
	o.distrust = cleanRelists
	o.cfg.Log.Info("A relist found changes that no event announced", "pods", len(o.suspects), "relistEvery", o.cfg.RelistEvery)
	for uid := range o.suspects {
		o.cfg.Hooks.Unannounced(uid)
	}
	clear(o.suspects)
}

// serve answers those who asked for a relist, once the looks are done. It does
// not wait for a look that was given up.
func (o *owner) serve(l *listing, now time.Time) {
	q := &request{seq: l.seq, replies: l.asked, pending: map[observed.UID]struct{}{}}
	for uid, r := range o.pods {
		switch {
		case r.look != nil && r.look.late:
			q.errs = append(q.errs, fmt.Errorf("inspect pod %s: the runtime still has not answered", r.name()))
		case r.dirty || r.look != nil:
			q.pending[uid] = struct{}{}
		}
	}
	o.retries.allDue(now)
	o.requests = append(o.requests, q)
	o.finish()
}

// lookDone tells the requests what came of a look. One that began before the
// list, and did not see what the list saw, is followed by another.
func (o *owner) lookDone(l *look, err error) {
	for _, q := range o.requests {
		if _, ok := q.pending[l.rec.uid]; !ok {
			continue
		}
		if err == nil && l.rec.dirty && l.seq < q.seq {
			continue
		}
		if err != nil {
			q.errs = append(q.errs, err)
		}
		delete(q.pending, l.rec.uid)
	}
	o.finish()
}

// finish replies to the requests that wait for nothing more.
func (o *owner) finish() {
	waiting := o.requests[:0]
	for _, q := range o.requests {
		if len(q.pending) > 0 {
			waiting = append(waiting, q)
			continue
		}
		for _, reply := range q.replies {
			reply <- errors.Join(q.errs...)
		}
	}
	clear(o.requests[len(waiting):])
	o.requests = waiting
}

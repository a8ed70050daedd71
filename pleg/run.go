package pleg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// stopGrace is how long Run waits, after ctx has ended, for calls to a Runtime
// that do not return on that.
const stopGrace = time.Second

// Run looks at the runtime until ctx ends, and returns nil then. It may be called
// once. It returns when all it started has ended; a call to Runtime that ignores
// its ctx is left behind after a second, and what it brings is thrown away.
func (g *Generator) Run(ctx context.Context) error {
	if !g.in.start() {
		return errors.New("pleg: Run was called before")
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if g.cfg.Events != nil {
		wg.Go(func() { g.follow(ctx) })
	}
	o := &owner{
		g:      g,
		cfg:    g.cfg,
		ctx:    ctx,
		pods:   map[observed.UID]*record{},
		live:   map[observed.UID]*record{},
		ids:    map[observed.ContainerID]observed.UID{},
		looks:  map[*look]struct{}{},
		out:    outbox{byPod: map[observed.UID][]PodLifecycleEvent{}},
		relist: relist{suspects: map[observed.UID]struct{}{}},
	}
	o.run()
	cancel()
	wg.Wait()
	o.settle()
	g.in.stop()
	close(g.done)
	close(g.out)
	return nil
}

// owner is the one goroutine that holds all records. Calls to the runtime are
// made by others; what they bring comes back through the inbox.
type owner struct {
	g   *Generator
	cfg Config
	ctx context.Context

	pods map[observed.UID]*record
	live map[observed.UID]*record // those with something running: what lists are about
	ids  map[observed.ContainerID]observed.UID

	queue   queue
	retries retries
	looks   map[*look]struct{} // in flight and within their time
	held    [places]int        // how many of them hold each kind of place
	out     outbox

	relist
}

func (o *owner) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		o.receive(now)
		o.expire(now)
		o.startList(now)
		o.startLooks(now)

		timer.Reset(time.Until(o.nextTurn(now)))
		var out chan<- PodLifecycleEvent
		event, ok := o.out.next()
		if ok {
			out = o.g.out
		}
		select {
		case <-o.ctx.Done():
			return
		case <-o.g.in.wake:
		case <-timer.C:
		case out <- event:
			o.out.sent()
			o.cfg.Hooks.EventSent(event)
		}
	}
}

// settle waits for the calls that are still out, and throws away what they bring.
func (o *owner) settle() {
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for len(o.looks) > 0 || o.listing {
		select {
		case <-o.g.in.wake:
		case <-grace.C:
			o.cfg.Log.Info("Left calls to the runtime behind that do not end", "inspections", len(o.looks), "list", o.listing)
			return
		}
		m, _ := o.g.in.take()
		for _, l := range m.looked {
			l.cancel()
			delete(o.looks, l)
		}
		if m.listed != nil {
			o.listing = false
		}
	}
}

// receive takes in what came, results first: a mark may be served by them.
func (o *owner) receive(now time.Time) {
	m, s := o.g.in.take()
	o.streamIs(s)
	for _, l := range m.looked {
		o.looked(l, now)
	}
	if m.listed != nil {
		o.listed(m.listed, now)
	}
	for uid, k := range m.dirty {
		o.mark(uid, k, now)
	}
	for id, seq := range m.ids {
		if uid, ok := o.ids[id]; ok {
			o.mark(uid, mark{seq: seq, lane: marked, event: true}, now)
		} else {
			o.unclear(seq)
		}
	}
	if m.nameless > 0 {
		o.unclear(m.nameless)
	}
	o.asked = append(o.asked, m.relists...)
}

// nextTurn is when the owner has something to do though nothing comes in.
func (o *owner) nextTurn(now time.Time) time.Time {
	next := now.Add(time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if !o.listing {
		sooner(o.listDue())
	}
	if len(o.suspects) > 0 {
		sooner(o.suspectsDue)
	}
	for l := range o.looks {
		sooner(o.lookDue(l))
	}
	if at, ok := o.retries.next(); ok && o.held[retrying] < o.retriers() {
		sooner(at)
	}
	return next
}

package syncloop

import (
	"context"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podsource"
)

const (
	// pauseMin and pauseMax bound the wait before the runtime is asked again.
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
	// burst bounds what one turn takes from one channel, so that a flood there
	// does not keep the others waiting.
	burst = 1000
	// slowHousekeeping is worth a line in the log: nothing else is handled
	// meanwhile.
	slowHousekeeping = time.Second
)

// Run turns until ctx ends and returns nil then. It returns [ErrConfigEnded] when
// the config channel is closed: without desired pods there is nothing to keep.
func (l *Loop) Run(ctx context.Context) error {
	l.housekeeping = time.NewTimer(l.cfg.HousekeepingEvery)
	defer l.housekeeping.Stop()
	l.next = time.Now().Add(l.cfg.HousekeepingEvery)
	wait := pauseMin
	for ctx.Err() == nil {
		now := time.Now() // with its monotonic part: a clock that is set makes no loop hang
		l.turned.Store(&now)
		if err := l.cfg.RuntimeErrors(); err != nil {
			l.pause(ctx, err, wait)
			wait = min(2*wait, pauseMax)
			continue
		}
		if l.paused != "" {
			l.cfg.Log.Info("Runtime is fine again, pods are synced")
			l.paused = ""
		}
		wait = pauseMin
		if err := l.turn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// turn waits for one kind of news and handles what is there of it.
func (l *Loop) turn(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case u, open := <-l.cfg.ConfigCh:
		if !open {
			if ctx.Err() != nil {
				return nil
			}
			return ErrConfigEnded
		}
		l.dispatch(ctx, u)
		l.stir()
	case e, open := <-l.cfg.PlegCh:
		if !open {
			l.cfg.PlegCh = nil
			return nil
		}
		l.happened(ctx, ready(e, l.cfg.PlegCh))
		l.stir()
	case uids, open := <-l.cfg.SyncCh:
		if !open {
			l.cfg.SyncCh = nil
			return nil
		}
		l.sync(ctx, "sync", uids)
		l.stir()
	case uid, open := <-l.cfg.ProbeCh:
		if !open {
			l.cfg.ProbeCh = nil
			return nil
		}
		l.sync(ctx, "probe", unique(ready(uid, l.cfg.ProbeCh)))
		l.stir()
	case <-l.housekeeping.C:
		l.housekeep(ctx)
	}
	return nil
}

func (l *Loop) dispatch(ctx context.Context, u podsource.Update) {
	h := l.cfg.Handler
	if len(u.Pods) > 0 { // a source without pods only says that it has spoken
		switch u.Op {
		case podsource.OpAdd:
			h.HandlePodAdditions(ctx, u.Pods)
		case podsource.OpUpdate, podsource.OpDelete:
			h.HandlePodUpdates(ctx, u.Pods)
		case podsource.OpRemove:
			h.HandlePodRemoves(ctx, u.Pods)
		case podsource.OpReconcile:
			h.HandlePodReconcile(ctx, u.Pods)
		default:
			l.cfg.Log.Error(nil, "Update with an unknown operation ignored", "op", u.Op.String(), "source", u.Source)
		}
	}
	l.cfg.Hooks.Dispatched(u.Op, u.Source, len(u.Pods))
	l.cfg.Seen(u.Source)
}

// happened handles lifecycle events. A removed container changes nothing that a
// sync could act on: it had died before.
func (l *Loop) happened(ctx context.Context, events []pleg.PodLifecycleEvent) {
	uids := make([]observed.UID, 0, len(events))
	for _, e := range events {
		if e.Type != pleg.ContainerRemoved {
			uids = append(uids, e.ID)
		}
	}
	l.sync(ctx, "pleg", unique(uids))
	if l.exits == nil {
		return
	}
	for _, e := range events {
		if e.Type == pleg.ContainerDied {
			l.exits.HandleContainerDied(ctx, e.ID, e.Data)
		}
	}
}

func (l *Loop) sync(ctx context.Context, cause string, uids []observed.UID) {
	if len(uids) == 0 {
		return
	}
	l.cfg.Handler.HandlePodSyncs(ctx, uids)
	l.cfg.Hooks.Synced(cause, len(uids))
}

// stir brings housekeeping near. What it has to put right follows from news: a
// pod that left, a worker that finished, a container nobody knows. Without news
// it finds what it found the last time, so a quiet node looks only now and then,
// for what came without any (a directory, a cgroup), and sleeps in between. News
// does not put it off either: under steady news it runs once per HousekeepingEvery.
func (l *Loop) stir() {
	if near := time.Now().Add(l.cfg.HousekeepingEvery); near.Before(l.next) {
		l.rest(near)
	}
}

func (l *Loop) rest(until time.Time) {
	l.next = until
	l.housekeeping.Reset(time.Until(until))
}

// housekeep cleans up, if nothing is missing that it could take for gone. After a
// clean-up that could not finish the next one is near.
func (l *Loop) housekeep(ctx context.Context) {
	next := l.cfg.QuietHousekeepingEvery
	if l.cfg.SourcesReady() {
		began := time.Now()
		err := l.cfg.Handler.HandlePodCleanups(ctx)
		took := time.Since(began)
		l.cfg.Hooks.Housekept(took, err)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Error(err, "Housekeeping is retried")
			next = l.cfg.HousekeepingEvery
		}
		if took > slowHousekeeping {
			l.cfg.Log.Info("Housekeeping took long, pods waited meanwhile", "took", took.String())
		}
	} else {
		l.cfg.Log.V(1).Info("Housekeeping skipped, not every source has been heard")
	}
	l.rest(time.Now().Add(next))
}

// pause waits before the runtime is asked again. It reads no channel: news stays
// where it is, and is merged there.
func (l *Loop) pause(ctx context.Context, err error, wait time.Duration) {
	if msg := err.Error(); msg != l.paused {
		l.cfg.Log.Error(err, "Pods are not synced while the runtime is in trouble")
		l.paused = msg
	}
	l.cfg.Hooks.Paused(err, wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ready returns first and what else can be had from c without waiting.
func ready[T any](first T, c <-chan T) []T {
	all := []T{first}
	for len(all) < burst {
		select {
		case next, open := <-c:
			if !open {
				return all // the next turn notices
			}
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

// unique drops repeated UIDs and keeps the order.
func unique(uids []observed.UID) []observed.UID {
	seen := make(map[observed.UID]struct{}, len(uids))
	out := uids[:0]
	for _, uid := range uids {
		if _, dup := seen[uid]; !dup {
			seen[uid] = struct{}{}
			out = append(out, uid)
		}
	}
	return out
}

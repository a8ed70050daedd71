package podworkers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// errStillRuns is a StopPod that said nothing runs, and a look that saw otherwise.
var errStillRuns = errors.New("containers still run after they were stopped")

// job is what one round needs; a copy, so that it is read without the lock.
type job struct {
	ctx     context.Context
	uid     observed.UID
	name    string
	phase   Phase // Syncing, Stopping or Stopped: which call to make
	op      string
	start   time.Time
	pod     *corev1.Pod
	orphan  *observed.Pod
	grace   *int64
	touched bool
	seq     observed.Seq
}

// outcome is what came of a job.
type outcome struct {
	done bool
	err  error
	seq  observed.Seq
}

// drive serves the clock until ctx ends.
func (w *Workers) drive(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, next := w.turn(time.Now())
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		var out chan<- []observed.UID
		if len(batch) > 0 {
			out = w.due
		}
		gift := slices.Clone(batch) // the receiver's own, to sort or to keep
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		case out <- gift:
			w.mu.Lock()
			for _, uid := range batch {
				delete(w.mu.ready, uid)
			}
			w.unlock()
		}
	}
}

// turn serves what is due. It returns what has to go out of Due, and the next time.
func (w *Workers) turn(now time.Time) (batch []observed.UID, next time.Time) {
	w.mu.Lock()
	defer w.unlock()
	for _, r := range w.mu.clock.expired(now) {
		if r.life.phase == Syncing && !w.cfg.AutoResync {
			w.mu.ready[r.uid] = struct{}{}
			continue
		}
		r.pending, r.op, r.start = true, Sync, now
		w.spawn(r)
	}
	for uid := range w.mu.ready {
		batch = append(batch, uid)
	}
	if len(w.mu.clock) > 0 {
		next = w.mu.clock[0].due.by
	}
	return batch, next
}

// SyncAt asks for a sync of the pod at the given time, beside the regular ones;
// of several times the earliest counts. A SyncPod that begins before then answers
// it too: a Syncer that has a deadline to keep asks anew in each. For a pod that is
// not known or is ending it does nothing.
func (w *Workers) SyncAt(uid observed.UID, at time.Time) {
	w.mu.Lock()
	defer w.unlock()
	r, ok := w.mu.pods[uid]
	if !ok || r.life.phase != Syncing {
		return
	}
	if r.syncAt.IsZero() || at.Before(r.syncAt) {
		r.syncAt = at
	}
	if r.due.index > 0 {
		w.schedule(r, r.due.from, r.due.by)
	}
}

// schedule plans the next look at a pod that has nothing pending.
func (w *Workers) schedule(r *record, from, by time.Time) {
	if at := r.syncAt; !at.IsZero() && at.Before(by) {
		from, by = at, at
	}
	w.mu.clock.set(r, from, by)
	if w.mu.clock[0] == r {
		w.nudge()
	}
}

// announce puts the pod on Due now.
func (w *Workers) announce(uid observed.UID) {
	if w.cfg.AutoResync {
		return
	}
	w.mu.ready[uid] = struct{}{}
	w.nudge()
}

func (w *Workers) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// spawn starts the goroutine of a pod that has work and no goroutine.
func (w *Workers) spawn(r *record) {
	if !r.pending || r.working || r.waiting || w.mu.run == nil || w.mu.ended {
		return
	}
	r.working = true
	w.wg.Go(func() {
		for {
			j, ok := w.take(r)
			if !ok {
				return
			}
			out := w.do(r, j)
			if j.ctx.Err() == nil {
				w.cfg.Hooks.Synced(Round{UID: j.uid, Pod: j.pod, Op: j.op, Took: time.Since(j.start), Err: out.err})
			}
			w.settle(r, j, out)
		}
	})
}

// take picks up what is pending. Without anything the goroutine ends.
func (w *Workers) take(r *record) (job, bool) {
	w.mu.Lock()
	defer w.unlock()
	if !r.pending || r.waiting || r.life.phase >= Finished || w.mu.run.Err() != nil {
		r.working = false
		return job{}, false
	}
	was := r.life.phase
	r.life = r.life.agree()
	w.moved(r, was)
	r.pending, r.syncAt = false, time.Time{}
	w.mu.clock.drop(r)
	j := job{
		uid: r.uid, name: r.name, phase: r.life.phase, op: r.op.String(), start: r.start,
		pod: r.pod, orphan: r.orphan, touched: r.life.touched, seq: r.seq,
	}
	switch j.phase {
	case Stopping:
		j.op, j.grace = Kill.String(), r.life.handed()
	case Stopped:
		j.op = "terminated"
	}
	j.ctx, r.cancel = context.WithCancel(w.mu.run)
	r.doing = j.phase
	return j, true
}

// do looks at the pod and makes the one call that its phase asks for.
func (w *Workers) do(r *record, j job) outcome {
	if j.seq == 0 {
		// The first look of a life must be a new one: what was cached may be older
		// than the pod, or than an earlier life of the same UID.
		j.seq = w.cfg.Observer.MarkDirty(j.uid)
	}
	seen, err := w.look(j)
	if err != nil {
		return outcome{err: err, seq: j.seq}
	}
	switch j.phase {
	case Syncing:
		w.began(r, j)
		done, err := w.cfg.Syncer.SyncPod(j.ctx, j.pod, seen)
		if err != nil {
			err = fmt.Errorf("sync pod %s: %w", j.name, err)
		}
		return outcome{done: done && err == nil, err: err, seq: w.cfg.Observer.MarkDirty(j.uid)}
	case Stopping:
		return w.stop(j, seen)
	default:
		// A release does not touch the runtime, so no new look is asked for.
		err := w.cfg.Syncer.ReleasePod(j.ctx, j.pod, seen)
		if err != nil {
			err = fmt.Errorf("release pod %s: %w", j.name, err)
		}
		return outcome{err: err, seq: j.seq}
	}
}

// look waits for the pod as it is after the worker's own last call.
func (w *Workers) look(j job) (observed.Pod, error) {
	seen, err := w.cfg.Observer.Wait(j.ctx, j.uid, j.seq)
	if err == nil {
		return seen, nil
	}
	if j.orphan != nil && j.ctx.Err() == nil {
		// The listing that named the orphan knows enough to stop it.
		return *j.orphan, nil
	}
	return observed.Pod{}, &LookError{Pod: j.name, Err: err}
}

// began notes that the first SyncPod of a life is about to be called.
func (w *Workers) began(r *record, j job) {
	if j.touched {
		return
	}
	w.mu.Lock()
	r.life.touched = true
	r.startedAt = time.Now()
	w.unlock()
	w.cfg.Hooks.Started(j.pod, time.Since(j.start))
}

// stop stops the pod and looks whether that is so.
func (w *Workers) stop(j job, seen observed.Pod) outcome {
	if !j.touched && !seen.Exists() {
		return outcome{seq: j.seq} // never started, and nothing left of an earlier agent
	}
	err := w.cfg.Syncer.StopPod(j.ctx, j.pod, seen, j.grace)
	j.seq = w.cfg.Observer.MarkDirty(j.uid)
	if err == nil {
		// An orphan's listing is from before the stop and can't answer this.
		j.orphan = nil
		seen, err = w.look(j)
		if err == nil && (seen.HasRunning() || seen.HasReadySandbox()) {
			err = errStillRuns
		}
	}
	if err != nil {
		err = fmt.Errorf("stop pod %s: %w", j.name, err)
	}
	return outcome{err: err, seq: j.seq}
}

// settle takes in what came of a job and plans what follows.
func (w *Workers) settle(r *record, j job, out outcome) {
	w.mu.Lock()
	defer w.unlock()
	interrupted := j.ctx.Err() != nil
	r.cancel()
	r.cancel = nil
	r.seq = out.seq
	now := time.Now()
	if out.err != nil {
		if interrupted {
			return // the update that interrupted is pending, or Run ends
		}
		if msg := out.err.Error(); msg != r.lastErr {
			r.lastErr = msg
			w.cfg.Log.Error(out.err, "Pod work is retried", "pod", r.name, "podUID", r.uid, "op", j.op)
		}
		if !r.pending {
			at := retryTime(now, out.err, w.cfg.Backoff, rand.Float64())
			w.schedule(r, at, at)
		}
		return
	}
	r.lastErr = ""
	if j.phase == Syncing {
		r.syncedAt = now
	}
	was := r.life.phase
	r.life = r.life.settle(j.phase, out.done, r.pod)
	w.moved(r, was)
	switch {
	case r.life.phase == Finished:
		w.leaveName(r)
		w.announce(r.uid)
	case r.life.phase == Stopped && r.life.orphan:
		w.forget(r)
		w.announce(r.uid)
	case r.life.phase != was:
		if !r.pending {
			r.pending, r.start = true, now
		}
	case !r.pending && r.life.phase == Syncing:
		from, by := resyncTime(now, w.cfg.Resync, rand.Float64())
		w.schedule(r, from, by)
	}
}

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/containergc"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/status"
)

// sweeper clears away what is left on disk of pods that nobody wants and nobody
// runs. It has a goroutine of its own, so that a runtime which does not answer
// for one pod, or a large directory, does not hold up the hall.
type sweeper struct {
	pleg     *pleg.Generator
	statuses *status.Store
	workers  *podworkers.Workers
	syncer   *podsync.Syncer
	gc       *containergc.Collector
	remover  containergc.Remover
	unwanted func(observed.UID) bool
	listed   <-chan struct{} // closed once the runtime has been listed
	log      logr.Logger

	due     chan struct{}     // room for one; several wakes are one pass
	cleared chan observed.UID // pods that somebody waited for

	mu struct {
		sync.Mutex
		at    observed.UID            // being cleared away now
		waits bool                    // somebody waits for that
		wipes map[observed.UID]bool   // lives to wipe out; true when that is done
		told  map[observed.UID]string // errors that were logged already
	}
}

// filled makes what the zero sweeper lacks.
func (s *sweeper) filled() *sweeper {
	s.due, s.cleared = make(chan struct{}, 1), make(chan observed.UID)
	s.mu.wipes, s.mu.told = map[observed.UID]bool{}, map[observed.UID]string{}
	return s
}

// lookTimeout bounds how long the sweeper waits for the runtime's word on one
// pod. Nothing is removed without it; the next pass asks again.
const lookTimeout = 15 * time.Second

// wipeTimeout bounds the end of an earlier life. News, or the next clean-up,
// tries again.
const wipeTimeout = time.Minute

// looked reports whether the runtime has been listed once. Not every pod of that
// list has to have been looked at: one that hangs must not keep the others, and
// each is looked at before it is cleared away.
func (s *sweeper) looked() bool {
	select {
	case <-s.listed:
		return true
	default:
		return false
	}
}

// wake asks for a pass. It never blocks.
func (s *sweeper) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// busy reports whether the pod is being cleared away now. If it is, the end of
// that is told on cleared.
func (s *sweeper) busy(uid observed.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := s.mu.at == uid
	s.mu.waits = s.mu.waits || busy
	return busy
}

// wiped asks for the end of everything that an earlier life of the UID left, and
// reports whether that is done; then the next life may begin. Unlike what a sweep
// clears away, this pod is wanted.
func (s *sweeper) wiped(uid observed.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.wipes[uid] {
		delete(s.mu.wipes, uid)
		return true
	}
	s.mu.wipes[uid] = false
	s.wake()
	return false
}

// unwipe takes back what was asked of wiped.
func (s *sweeper) unwipe(uid observed.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.wipes, uid)
}

// againAfter is when a sweep is tried again that could not do all: the kubelet's
// pace. Clean-ups of a quiet node are much further apart.
const againAfter = 2 * time.Second

// Run sweeps when it is woken, until ctx ends.
func (s *sweeper) Run(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	again.Stop()
	for {
		select {
		case <-s.due:
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		again.Stop()
		if !s.sweep(ctx) {
			again.Reset(againAfter)
		}
	}
}

// sweep reports whether all could be done.
func (s *sweeper) sweep(ctx context.Context) bool {
	done := true
	for _, uid := range s.toWipe() {
		done = s.at(ctx, uid, s.wipe) && done
	}
	uids, err := s.syncer.Dirs()
	if err != nil {
		done = false
		s.log.Error(err, "pod directories are not cleared away")
	}
	for _, reported := range s.statuses.All() {
		uids = append(uids, reported.UID)
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		done = s.at(ctx, uid, s.sweepPod) && done
	}
	return done
}

func (s *sweeper) toWipe() []observed.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uids []observed.UID
	for uid, done := range s.mu.wipes {
		if !done {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// at does something about one pod, and tells on cleared if somebody waits for
// the end of it. It reports whether there is nothing to try again soon.
func (s *sweeper) at(ctx context.Context, uid observed.UID, do func(context.Context, observed.UID) error) bool {
	if ctx.Err() != nil {
		return true
	}
	s.mu.Lock()
	s.mu.at, s.mu.waits = uid, false
	s.mu.Unlock()
	err := do(ctx, uid)
	s.mu.Lock()
	waits := s.mu.waits
	s.mu.at = ""
	s.mu.Unlock()
	s.tell(uid, err)
	if waits {
		select {
		case s.cleared <- uid:
		case <-ctx.Done():
		}
	}
	return err == nil || errors.Is(err, podsync.ErrNotOurs)
}

// sweepPod clears away a pod that nobody wants.
func (s *sweeper) sweepPod(ctx context.Context, uid observed.UID) error {
	// From here on the handler does not start the pod anew, so the answers hold.
	if !s.unwanted(uid) || s.workers.Phase(uid) != podworkers.Gone {
		return nil
	}
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	pod, err := s.pleg.Wait(look, uid, s.pleg.MarkDirty(uid))
	if err != nil || pod.HasRunning() || pod.HasReadySandbox() {
		return err
	}
	s.gc.PodDone(uid)
	return s.syncer.Forget(ctx, uid)
}

// wipe removes everything of a life that is over.
func (s *sweeper) wipe(ctx context.Context, uid observed.UID) error {
	ctx, cancel := context.WithTimeout(ctx, wipeTimeout)
	defer cancel()
	pod, err := s.pleg.Wait(ctx, uid, s.pleg.MarkDirty(uid))
	if err != nil {
		return err
	}
	if err := s.syncer.StopPod(ctx, nil, pod, nil); err != nil {
		return err
	}
	for _, c := range pod.Containers {
		if err := s.remover.RemoveContainer(ctx, c); err != nil {
			return err
		}
	}
	for _, sandbox := range pod.Sandboxes {
		if err := s.remover.RemoveSandbox(ctx, sandbox.ID); err != nil {
			return err
		}
	}
	if err := s.syncer.Forget(ctx, uid); err != nil {
		return err
	}
	// The first look of the next life must not be one at this.
	if _, err := s.pleg.Wait(ctx, uid, s.pleg.MarkDirty(uid)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, asked := s.mu.wipes[uid]; asked {
		s.mu.wipes[uid], s.mu.waits = true, true
	}
	return nil
}

// tell logs an error once, not at every pass.
func (s *sweeper) tell(uid observed.UID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.mu.told, uid)
		return
	}
	if s.mu.told[uid] == err.Error() {
		return
	}
	s.mu.told[uid] = err.Error()
	s.log.Error(err, "what is left of a pod is not cleared away; it is tried again", "podUID", uid)
}

package podworkers

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// UpdatePod takes in news of a pod and returns without waiting for any work. Of
// several updates that a pod's worker did not look at yet only the last counts,
// but an end once asked for stays asked for.
func (w *Workers) UpdatePod(u Update) {
	uid := u.uid()
	done := u.kill().Done
	w.mu.Lock()
	defer w.unlock()
	r, known := w.mu.pods[uid]
	if uid == "" || !known && u.Type == Sync && u.Pod != nil {
		w.cfg.Log.V(1).Info("Update of an unknown pod ignored", "pod", u.name(), "podUID", uid, "type", u.Type.String())
		if done != nil {
			close(done)
		}
		return
	}
	if !known {
		r = w.introduce(uid, u)
	}
	was := r.life.phase
	if !known {
		was = w.unknown()
	}
	var e effect
	r.life, e = r.life.apply(u, r.pod)
	w.moved(r, was)
	if !known && r.life.phase == Syncing {
		w.queueForName(r, u.Pod)
	}
	switch {
	case done == nil:
	case e.moot:
		close(done)
	default:
		r.done = append(r.done, done)
	}
	if !e.work {
		return
	}
	if u.Pod != nil {
		r.pod, r.orphan = u.Pod, nil
	}
	if !r.pending {
		r.start = u.Start
		if r.start.IsZero() {
			r.start = time.Now()
		}
	}
	r.op = u.Type
	w.work(r, e)
}

// SyncKnownPods tells the workers all pods that any source wants, once every
// source has been heard: what is missing from desired is taken down, and what has
// ended and is not desired is forgotten. From the first call on an unknown pod is
// [Gone].
//
// The result is what remains known. A desired pod that is missing from it has no
// worker: hand it in again with [Create]. This is how a UID that came back while
// its life was ending gets its next one.
func (w *Workers) SyncKnownPods(desired []*corev1.Pod) map[observed.UID]State {
	want := make(map[observed.UID]struct{}, len(desired))
	for _, pod := range desired {
		want[observed.UID(pod.UID)] = struct{}{}
	}
	w.mu.Lock()
	defer w.unlock()
	w.mu.known = true
	for uid, r := range w.mu.pods {
		_, wanted := want[uid]
		if r.life.phase == Finished && (!wanted || r.life.restart) {
			w.forget(r)
			continue
		}
		if wanted || r.life.orphan {
			continue
		}
		was := r.life.phase
		var e effect
		r.life, e = r.life.abandon(r.pod)
		w.moved(r, was)
		if e.work {
			if !r.pending {
				r.start = time.Now()
			}
			r.op = Kill
			w.work(r, e)
		}
	}
	return w.states()
}

// Forget drops a pod whose life is over, and reports whether the pod is not known
// now. It is for a UID that is wanted again before every source has been heard,
// which [Workers.SyncKnownPods] would have to wait for.
func (w *Workers) Forget(uid observed.UID) bool {
	w.mu.Lock()
	defer w.unlock()
	r, known := w.mu.pods[uid]
	if known && r.life.phase == Finished {
		w.forget(r)
		return true
	}
	return !known
}

// introduce makes the record of a pod that is not known.
func (w *Workers) introduce(uid observed.UID, u Update) *record {
	r := &record{uid: uid, name: u.name(), life: born(u), pod: u.Pod, since: time.Now()}
	if u.Pod == nil {
		r.orphan = &u.Orphan
	}
	w.mu.pods[uid] = r
	return r
}

// queueForName makes a pod wait if another one has its name. A pod that is
// introduced with its end does not queue: it will not start.
func (w *Workers) queueForName(r *record, pod *corev1.Pod) {
	if name, ok := w.cfg.NameSlot(pod); ok {
		r.slot = name
		r.waiting = !w.mu.slots.join(name, r.uid)
	}
}

// leaveName takes the pod out of the queue for its name and starts the next.
func (w *Workers) leaveName(r *record) {
	if r.slot == "" {
		return
	}
	next, passed := w.mu.slots.leave(r.slot, r.uid)
	r.slot, r.waiting = "", false
	if passed {
		n := w.mu.pods[next]
		n.waiting = false
		w.spawn(n)
	}
}

// work leaves an update for the worker of the pod and sees that there is one.
func (w *Workers) work(r *record, e effect) {
	r.pending = true
	w.mu.clock.drop(r)
	if e.interrupt && r.cancel != nil && r.doing < Stopped {
		r.cancel()
	}
	if r.waiting && r.life.phase > Syncing {
		w.leaveName(r) // it will not start; it must not keep others from it
	}
	w.spawn(r)
}

// forget drops the record of a pod whose life is over.
func (w *Workers) forget(r *record) {
	r.pending = false
	w.leaveName(r)
	w.mu.clock.drop(r)
	delete(w.mu.ready, r.uid)
	delete(w.mu.pods, r.uid)
	w.tell(r, r.life.phase, Gone)
}

// moved notes a change of phase, if there was one.
func (w *Workers) moved(r *record, was Phase) {
	if r.life.phase == was {
		return
	}
	r.since = time.Now()
	w.tell(r, was, r.life.phase)
	if r.life.phase >= Stopped {
		for _, done := range r.done {
			close(done)
		}
		r.done = nil
	}
}

func (w *Workers) tell(r *record, from, to Phase) {
	w.mu.news = append(w.mu.news, news{r.name, r.uid, from, to})
}

// unlock lets go of mu and then tells the hook what happened meanwhile. One
// goroutine tells at a time, so that the order is kept without a lock held.
func (w *Workers) unlock() {
	if w.mu.telling || len(w.mu.news) == 0 {
		w.mu.Unlock()
		return
	}
	w.mu.telling = true
	for len(w.mu.news) > 0 {
		batch := w.mu.news
		w.mu.news = nil
		w.mu.Unlock()
		for _, n := range batch {
			w.cfg.Log.V(1).Info("Pod phase changed", "pod", n.pod, "podUID", n.uid, "from", n.from.String(), "to", n.to.String())
			w.cfg.Hooks.PhaseChanged(n.pod, n.uid, n.from, n.to)
		}
		w.mu.Lock()
	}
	w.mu.telling = false
	w.mu.Unlock()
}

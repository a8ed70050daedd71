package podworkers

import corev1 "k8s.io/api/core/v1"

// orphanGrace is the grace period, in seconds, of a pod that only the runtime
// knows. Nobody is left who could have wanted a longer one.
const orphanGrace = 1

// life is what is decided about one pod. It is a value; its methods are the whole
// state machine and return the next one. Clocks, locks and calls are elsewhere.
type life struct {
	phase Phase
	// orphan: only the runtime knows the pod.
	orphan bool
	// touched: a SyncPod has begun, so there may be more in the runtime than any
	// look has shown.
	touched                   bool
	deleted, evicted, restart bool
	// grace is 0 until an end is requested, then at least 1, and only shrinks.
	grace int64
	// explicit: grace was asked for from outside and is handed down. Otherwise
	// the pod's own rules apply (a probe may have its own period).
	explicit bool
}

// effect is what an update means for the worker of the pod.
type effect struct {
	work      bool // there is something to do
	interrupt bool // the running call serves a decision that is out of date
	moot      bool // nobody has to wait for Done
}

// born returns the life of a pod that u introduces; apply u to it next.
func born(u Update) life {
	return life{phase: Syncing, orphan: u.Pod == nil}
}

// apply folds u into the life. spec is the newest pod known before u; nil if none.
func (l life) apply(u Update, spec *corev1.Pod) (life, effect) {
	if u.Pod != nil {
		spec = u.Pod
		l.deleted = l.deleted || u.Pod.DeletionTimestamp != nil
	}
	switch {
	case l.phase > Syncing && u.Type == Create && !u.ends(),
		l.orphan && u.Pod != nil && !u.ends():
		// The UID is wanted again while its life ends. An end is not taken back;
		// the next life begins when this one is over.
		l.restart = true
		return l, effect{moot: true}
	case l.phase >= Stopped:
		return l, effect{moot: true}
	case l.phase == Syncing && !u.ends():
		return l, effect{work: true, moot: true}
	}
	was := l
	if u.Pod != nil {
		l.orphan = false // now there is a spec to stop it by, and things to release
	}
	kill := u.kill()
	l.deleted = l.deleted || u.Pod == nil
	l.evicted = l.evicted || kill.Evict
	l.explicit = l.explicit || u.ends()
	if u.Pod != nil && u.Pod.DeletionGracePeriodSeconds != nil {
		l = l.shorten(*u.Pod.DeletionGracePeriodSeconds)
	}
	if kill.Grace != nil {
		l = l.shorten(*kill.Grace)
	}
	if l.phase == Syncing {
		return l.request(spec), effect{work: true, interrupt: true}
	}
	return l, effect{work: true, interrupt: l.grace < was.grace}
}

// abandon ends a pod that left the desired set without an update.
func (l life) abandon(spec *corev1.Pod) (life, effect) {
	l.deleted = true
	if l.phase != Syncing {
		return l, effect{}
	}
	return l.request(spec), effect{work: true, interrupt: true}
}

// request asks the worker to stop the pod.
func (l life) request(spec *corev1.Pod) life {
	l.phase = StopRequested
	return l.bound(spec)
}

// bound gives a life without a grace period the pod's own.
func (l life) bound(spec *corev1.Pod) life {
	switch {
	case l.grace > 0:
		return l
	case l.orphan:
		return l.shorten(orphanGrace)
	case spec == nil || spec.Spec.TerminationGracePeriodSeconds == nil:
		return l.shorten(1)
	}
	return l.shorten(*spec.Spec.TerminationGracePeriodSeconds)
}

// shorten lowers the grace period to seconds, at least 1. It never raises it.
func (l life) shorten(seconds int64) life {
	seconds = max(seconds, 1)
	if l.grace == 0 || seconds < l.grace {
		l.grace = seconds
	}
	return l
}

// agree is the worker taking up a requested stop: no SyncPod can run any more.
func (l life) agree() life {
	if l.phase == StopRequested {
		l.phase = Stopping
	}
	return l
}

// settle moves on after a call that had no error. did is the phase the call
// served; done is what SyncPod said.
func (l life) settle(did Phase, done bool, spec *corev1.Pod) life {
	switch {
	case did == Syncing && l.phase == Syncing && done:
		l.phase = Stopping
		return l.bound(spec)
	case did == Stopping && l.phase == Stopping:
		l.phase = Stopped
	case did == Stopped && l.phase == Stopped:
		l.phase = Finished
	}
	return l
}

// handed returns the grace period that StopPod gets: nil for the pod's own rules.
func (l life) handed() *int64 {
	if !l.explicit {
		return nil
	}
	grace := l.grace
	return &grace
}

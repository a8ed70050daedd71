package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// tally counts what the containers of a pod are doing.
type tally struct {
	failedInit, pendingInit, pendingSidecar  int
	running, waiting, stopped, failed, again int
	reset                                    int // regular ones that wait to start again with all others
}

// phase follows from the container statuses alone. A static pod that is being
// stopped is judged like one that is not: the API server's copy of it goes on
// under the next UID. A pod whose containers all start again goes on being what
// it was, also while its init containers run once more.
func phase(in *Input, st *corev1.PodStatus) corev1.PodPhase {
	t := count(in, st)
	if restartingAll(in) {
		t.failedInit, t.again = 0, t.stopped
	}
	if t.reset > 0 {
		t.pendingInit, t.pendingSidecar = 0, 0
	}
	switch {
	case t.failedInit > 0:
		return corev1.PodFailed
	case t.pendingInit > 0, t.pendingSidecar > 0 && !regularActive(in), t.waiting > 0:
		return corev1.PodPending
	case t.running > 0:
		return corev1.PodRunning
	case t.stopped == 0:
		return corev1.PodPending
	case t.again > 0 && !(in.Terminal && !podspec.IsStatic(in.Pod)):
		return corev1.PodRunning
	case t.failed > 0:
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}

func count(in *Input, st *corev1.PodStatus) tally {
	var t tally
	for c, kind := range podspec.All(in.Pod) {
		if kind == podspec.Ephemeral {
			continue
		}
		cs := find(*statusesOf(st, kind), c.Name)
		switch {
		case kind == podspec.Regular:
			t.regular(in.Pod, c, cs)
		case podspec.IsSidecar(c):
			t.sidecar(cs)
		default:
			t.init(in.Pod, c, cs)
		}
	}
	return t
}

// regular counts a container as stopped when it has ended, be it that it waits
// for its next start.
func (t *tally) regular(pod *corev1.Pod, c *corev1.Container, cs *corev1.ContainerStatus) {
	end := ended(cs)
	switch {
	case cs.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if end.ExitCode != 0 {
			t.failed++
		}
		if mayRunAgain(pod, c, end) {
			t.again++
		}
		if end.Reason == ReasonRestartingAll {
			t.reset++
		}
	}
}

// sidecar ignores one that has ended: it does not decide over the pod's result. One
// that waits is pending, also for its next start: nothing behind it may start.
func (t *tally) sidecar(cs *corev1.ContainerStatus) {
	switch {
	case cs.State.Running != nil:
		t.running++
		if cs.Started == nil || !*cs.Started {
			t.pendingSidecar++
		}
	case cs.State.Waiting != nil:
		t.pendingSidecar++
		if ended(cs) == nil {
			t.waiting++
		}
	}
}

func (t *tally) init(pod *corev1.Pod, c *corev1.Container, cs *corev1.ContainerStatus) {
	end := ended(cs)
	switch {
	case end == nil:
		t.pendingInit++
	case end.ExitCode != 0 && !mayRunAgain(pod, c, end):
		t.failedInit++
	}
}

// regularActive reports whether a regular container exists in the sandbox that
// is in use.
func regularActive(in *Input) bool {
	for _, s := range in.Seen.Sandboxes {
		if !s.Ready {
			continue
		}
		for _, c := range in.Seen.Containers {
			if c.Sandbox != s.ID {
				continue
			}
			if _, kind, ok := podspec.Find(in.Pod, c.Name); ok && kind == podspec.Regular {
				return true
			}
		}
		return false
	}
	return false
}

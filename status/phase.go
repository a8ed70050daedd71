package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// tally counts what the containers of a pod are doing.
type tally struct {
	failedInit, pendingInit, pendingSidecar  int
	running, waiting, stopped, failed, again int
}

// phase follows from the container statuses alone. A static pod that is being
// stopped is judged like one that is not: the API server's copy of it goes on
// under the next UID.
func phase(in *Input, st *corev1.PodStatus) corev1.PodPhase {
	t := count(in, st)
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
		if podspec.MayRestart(pod, c, end.ExitCode) {
			t.again++
		}
	}
}

// sidecar ignores one that has ended: it does not decide over the pod's result.
func (t *tally) sidecar(cs *corev1.ContainerStatus) {
	switch {
	case cs.State.Running != nil:
		t.running++
		if cs.Started == nil || !*cs.Started {
			t.pendingSidecar++
		}
	case ended(cs) == nil:
		t.pendingSidecar++
		t.waiting++
	}
}

func (t *tally) init(pod *corev1.Pod, c *corev1.Container, cs *corev1.ContainerStatus) {
	end := ended(cs)
	switch {
	case end == nil:
		t.pendingInit++
	case end.ExitCode != 0 && !podspec.MayRestart(pod, c, end.ExitCode):
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

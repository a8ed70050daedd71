package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/admission"
	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// allocate records what an admitted pod is granted, or that a new version of it
// asks for other amounts. It reports whether a resize waits for an answer.
func (h *handler) allocate(pod *corev1.Pod, now time.Time) (waits bool) {
	waits, err := h.alloc.Set(h.withStatus(pod), now)
	if err != nil {
		h.log.Error(err, "the pod runs, but a restart of the agent may grant it other resources", "pod", podName(pod), "podUID", pod.UID)
	}
	return waits
}

// withStatus is the pod with what was last reported of it.
func (h *handler) withStatus(pod *corev1.Pod) *corev1.Pod {
	st, ok := h.statuses.Get(observed.UID(pod.UID))
	if !ok {
		return pod
	}
	shown := *pod
	shown.Status = st
	return &shown
}

// answerResizes asks about the resizes that wait, and brings the answers to their
// pods. Before every source has been heard pods may run here that nobody has met,
// and what they hold would be given away.
func (h *handler) answerResizes(now time.Time) {
	if !h.heard() {
		h.nextAnswer = now.Add(allocation.FirstRetry)
		return
	}
	h.nextAnswer = now.Add(allocation.RetryEvery)
	decisions, err := h.alloc.Evaluate(now, func(pod *corev1.Pod) allocation.Answer {
		d := h.admit.Admit(admission.Attributes{Pod: pod, Others: h.active(pod)})
		return allocation.Answer{OK: d.OK, Reason: d.Reason, Message: d.Message}
	})
	if err != nil {
		h.log.Error(err, "resizes wait")
	}
	for _, d := range decisions {
		if pod, ok := h.store.ByUID(d.Pod.UID); ok {
			h.workers.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: h.alloc.Apply(pod), Start: now})
		}
	}
}

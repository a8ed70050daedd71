package main

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// HandlePodCleanups compares the three worlds (desired, workers, runtime) and
// the disk, and ends what is in one of them only. Before every source has been
// heard "nobody wants this pod" can't be known, and it only sees to the pods that
// are wanted for sure.
func (h *handler) HandlePodCleanups(context.Context) error {
	h.introduceHeld()
	h.introduceAll(h.refused())
	if now := time.Now(); now.After(h.nextAnswer) {
		h.answerResizes(now)
	}
	if !h.heard() || !h.sweeper.looked() {
		return nil
	}
	desired := h.store.Pods()
	admitted := slices.DeleteFunc(slices.Clone(desired), func(pod *corev1.Pod) bool { return h.isRefused(observed.UID(pod.UID)) })
	known := h.workers.SyncKnownPods(admitted)
	h.hooks.counted(len(desired), len(admitted))
	h.introduceAll(slices.DeleteFunc(admitted, func(pod *corev1.Pod) bool {
		uid := observed.UID(pod.UID)
		_, ok := known[uid]
		if !ok && !h.held[uid] {
			h.hooks.restored(pod)
		}
		return ok || h.held[uid]
	}))
	h.endOrphans(known)
	h.forgetLeft()
	h.sweeper.wake()
	return nil
}

// endOrphans ends what runs in the runtime for nobody: pods that no source wants,
// and those that ran before and are refused now.
func (h *handler) endOrphans(known map[observed.UID]podworkers.State) {
	now := time.Now()
	for _, pod := range h.pleg.Cache().Running() {
		if _, ok := known[pod.UID]; ok || !h.unwanted(pod.UID) && !h.isRefused(pod.UID) {
			continue
		}
		h.hooks.orphaned(pod)
		h.workers.UpdatePod(podworkers.Update{Orphan: pod, Start: now})
	}
}

// unwanted reports whether it is sure that no source wants the pod. A manifest
// that can't be read may be that of a pod which no agent has been told of since
// the last start: its last good version goes on running, and its result stays.
func (h *handler) unwanted(uid observed.UID) bool {
	_, desired := h.store.ByUID(types.UID(uid))
	return !desired && (h.hasLeft(uid) || !h.unreadable())
}

// forgetLeft drops the memory of pods that left and of predecessors that were
// told to end, once they are gone for good and no longer listed.
func (h *handler) forgetLeft() {
	listed := map[observed.UID]bool{}
	for _, pod := range h.running() {
		listed[pod.UID] = true
	}
	maps.DeleteFunc(h.ended, func(uid observed.UID, _ bool) bool { return !listed[uid] })
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.mu.left, func(uid observed.UID, pod *corev1.Pod) bool {
		_, reported := h.statuses.Get(uid)
		_, desired := h.store.ByUID(pod.UID)
		return !listed[uid] && !reported && !desired && h.workers.Phase(uid) == podworkers.Gone
	})
}

// removable reports whether containers and logs of the pod may be removed.
func (h *handler) removable(uid observed.UID) bool {
	if state, ok := h.workers.State(uid); ok {
		// A pod that left its source counts as deleted only from the next
		// clean-up on; what it left need not wait for that.
		return state.ContentRemovable() || state.Phase >= podworkers.Stopped && h.unwanted(uid)
	}
	return h.workers.Phase(uid) == podworkers.Gone && h.unwanted(uid)
}

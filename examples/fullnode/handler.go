package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/admission"
	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/containergc"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podstore"
	"github.com/kubeletkit/kubeletkit/podworkers"
	"github.com/kubeletkit/kubeletkit/status"
)

// handler is the hall's clerk: it turns what the loop hands it into updates for
// the pod workers. It implements syncloop.SyncHandler.
type handler struct {
	store    *podstore.Store
	statuses *status.Store
	workers  *podworkers.Workers
	sweeper  *sweeper
	pleg     *pleg.Generator
	gc       *containergc.Collector
	admit    admission.Chain
	// alloc knows what pods were granted. Workers get pods with that.
	alloc *allocation.Allocations
	// heard reports whether every source has been heard.
	heard func() bool
	// unreadable reports whether some manifest can't be read now.
	unreadable func() bool
	// running is what ran at the last relist, in listing detail.
	running func() []observed.Pod
	// event is a Kubernetes Event of a pod.
	event func(pod *corev1.Pod, container, eventType, reason, message string)
	hooks handlerHooks
	log   logr.Logger

	mu struct {
		sync.Mutex
		// refused are desired pods that admission said no to, with its message.
		refused map[observed.UID]string
		// left are pods that were taken away from their source. One that comes
		// back under its UID is a new life, and results of the old one are void.
		left map[observed.UID]*corev1.Pod
	}
	// The rest is the loop's goroutine's only. ended are predecessors that were
	// told to end, held are desired pods that wait for something of before.
	ended, held map[observed.UID]bool
	// nextAnswer is when resizes that wait are asked about again.
	nextAnswer time.Time
}

type handlerHooks struct {
	admitted func(pod *corev1.Pod, d admission.Decision)
	orphaned func(pod observed.Pod)
	restored func(pod *corev1.Pod)
	counted  func(desired, active int)
}

// HandlePodAdditions admits new pods and hands them to workers: those that ran
// before the agent did first, then the oldest.
func (h *handler) HandlePodAdditions(_ context.Context, pods []*corev1.Pod) {
	for _, pod := range pods {
		h.store.Update(pod)
	}
	h.introduceAll(slices.Clone(pods))
}

func (h *handler) introduceAll(pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	running := map[observed.UID]bool{}
	for _, pod := range h.running() {
		running[pod.UID] = true
	}
	admission.Sort(pods, func(pod *corev1.Pod) bool { return running[observed.UID(pod.UID)] })
	if err := h.alloc.Batch(func() {
		for _, pod := range pods {
			h.introduce(pod, time.Now())
		}
	}); err != nil {
		h.log.Error(err, "pods run, but a restart of the agent may grant them other resources")
	}
}

// introduce starts the life of a pod on this node, or says why not.
func (h *handler) introduce(pod *corev1.Pod, now time.Time) {
	uid := observed.UID(pod.UID)
	if h.sweeper.busy(uid) || h.predecessorRuns(pod) || h.oldLifeStays(uid) {
		h.held[uid] = true // news comes when that is over
		return
	}
	delete(h.held, uid)
	pod = h.restore(pod)
	if ended(pod.Status.Phase) || pod.DeletionTimestamp != nil {
		// It ended before this agent started. It needs no room on the node,
		// only the rest of its way out.
		h.notRefused(uid)
		h.workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod, Start: now})
		return
	}
	decision := h.admit.Admit(admission.Attributes{Pod: h.alloc.Apply(pod), Others: h.active(pod)})
	if !decision.OK {
		h.refuse(pod, decision)
		return
	}
	h.hooks.admitted(pod, decision)
	h.notRefused(uid)
	if st, ok := h.statuses.Get(uid); ok && admission.IsRejected(st) {
		if err := h.statuses.Remove(uid); err != nil {
			h.log.Error(err, "status of an earlier refusal stays", "pod", podName(pod), "podUID", uid)
		}
	}
	if at := now.Add(allocation.FirstRetry); h.allocate(pod, now) && h.nextAnswer.After(at) {
		h.nextAnswer = at // it waits since before this agent; others may still have to be met
	}
	h.workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: h.alloc.Apply(pod), Start: now})
}

// predecessorRuns reports whether an earlier version of a static pod still runs:
// one whose manifest was edited while no agent ran. Workers keep two versions
// apart that they know both; this one they only learn of here. It is ended
// without waiting for other sources, since the source of the new version has
// spoken.
func (h *handler) predecessorRuns(pod *corev1.Pod) bool {
	if !podsource.IsStatic(pod) {
		return false
	}
	runs := false
	for _, old := range h.running() {
		if old.Name != pod.Name || old.Namespace != pod.Namespace || old.UID == observed.UID(pod.UID) {
			continue
		}
		if _, desired := h.store.ByUID(types.UID(old.UID)); desired || h.hasLeft(old.UID) && !h.ended[old.UID] {
			continue // a worker knows it, or has ended it since the list was made
		}
		state, known := h.workers.State(old.UID)
		if !known && !h.ended[old.UID] {
			h.ended[old.UID], known = true, true
			h.hooks.orphaned(old)
			h.workers.UpdatePod(podworkers.Update{Orphan: old, Start: time.Now()})
		}
		runs = runs || known && h.ended[old.UID] && state.Phase.MayHaveRunning()
	}
	return runs
}

// oldLifeStays reports whether an earlier life of the UID, which left its source,
// is not over yet or has left something behind. Its containers would be taken for
// those of the new life, and how they ended for its result.
func (h *handler) oldLifeStays(uid observed.UID) bool {
	if !h.hasLeft(uid) {
		return false
	}
	if !h.workers.Forget(uid) || !h.sweeper.wiped(uid) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.left, uid)
	return false
}

func (h *handler) hasLeft(uid observed.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.left[uid] != nil
}

// restore gives pod the status that an earlier agent left on disk.
func (h *handler) restore(pod *corev1.Pod) *corev1.Pod {
	st, ok, err := h.statuses.Load(observed.UID(pod.UID))
	if err != nil {
		h.log.Error(err, "the pod's result of before is lost; it is taken from the runtime", "pod", podName(pod), "podUID", pod.UID)
	}
	if !ok || admission.IsRejected(st) && podsource.IsStatic(pod) {
		return pod // a static pod that was refused may fit now
	}
	pod = pod.DeepCopy()
	pod.Status = st
	return pod
}

func (h *handler) refuse(pod *corev1.Pod, d admission.Decision) {
	uid := observed.UID(pod.UID)
	h.mu.Lock()
	told := h.mu.refused[uid]
	h.mu.refused[uid] = d.Message
	h.mu.Unlock()
	if told == d.Message {
		return
	}
	h.hooks.admitted(pod, d)
	h.event(pod, "", corev1.EventTypeWarning, d.Reason, d.Message)
	if _, err := h.statuses.Set(pod, admission.Rejected(pod, d)); err != nil {
		h.log.Error(err, "the refusal is not reported", "pod", podName(pod), "podUID", uid)
	}
}

// active are the pods that hold something of the node while asked about another,
// or all of them with nil:
// the workers have them, and their containers have not ended. A version of the
// same static pod that is on its way out is not in the way: its successor waits
// for the name, and needs no room before.
func (h *handler) active(asked *corev1.Pod) []*corev1.Pod {
	pods := h.store.Pods()
	h.mu.Lock()
	for _, pod := range h.mu.left {
		if asked == nil || !podsource.IsStatic(asked) || podsource.FullName(pod) != podsource.FullName(asked) {
			pods = append(pods, pod)
		}
	}
	h.mu.Unlock()
	for i, pod := range pods {
		pods[i] = h.alloc.Apply(pod)
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		state, known := h.workers.State(observed.UID(pod.UID))
		return asked != nil && pod.UID == asked.UID || !known || !state.Phase.MayHaveRunning()
	})
}

func (h *handler) notRefused(uid observed.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.refused, uid)
}

// refused are the pods that are asked about again: a static pod is a wish that
// stands.
func (h *handler) refused() []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pods []*corev1.Pod
	for uid := range h.mu.refused {
		if pod, ok := h.store.ByUID(types.UID(uid)); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (h *handler) isRefused(uid observed.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, refused := h.mu.refused[uid]
	return refused
}

// HandlePodUpdates passes on changes of pods that are already here.
func (h *handler) HandlePodUpdates(_ context.Context, pods []*corev1.Pod) {
	now := time.Now()
	resizes := false
	for _, pod := range pods {
		h.store.Update(pod)
		if uid := observed.UID(pod.UID); h.isRefused(uid) || h.held[uid] {
			h.introduce(pod, now)
			continue
		}
		resizes = h.allocate(pod, now) || resizes
		h.workers.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: h.alloc.Apply(pod), Start: now})
	}
	if resizes {
		h.answerResizes(now)
	}
}

// HandlePodRemoves ends pods that left their source. The source that took a pod
// away is the only one that has to have been heard: a static pod goes although
// another source is silent.
func (h *handler) HandlePodRemoves(_ context.Context, pods []*corev1.Pod) {
	for _, pod := range pods {
		uid := observed.UID(pod.UID)
		h.store.Remove(pod.UID)
		h.mu.Lock()
		if _, refused := h.mu.refused[uid]; refused {
			h.ended[uid] = true // it may run since an earlier agent, and has no name with the workers
		}
		delete(h.mu.refused, uid)
		h.mu.left[uid] = pod
		h.mu.Unlock()
		delete(h.held, uid)
		h.sweeper.unwipe(uid)
		h.alloc.End(uid, time.Now())
		h.workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: h.alloc.Apply(pod), Kill: &podworkers.KillOptions{}, Start: time.Now()})
	}
}

// HandlePodReconcile takes note of a status that changed at the source.
func (h *handler) HandlePodReconcile(_ context.Context, pods []*corev1.Pod) {
	for _, pod := range pods {
		h.store.Update(pod)
	}
}

// HandlePodSyncs asks for another look at pods that are here. It also comes when
// a life is over, or cleared away, and what was held back for that may begin.
func (h *handler) HandlePodSyncs(_ context.Context, uids []observed.UID) {
	now := time.Now()
	freed := false
	for _, uid := range uids {
		if pod, ok := h.store.ByUID(types.UID(uid)); ok && !h.isRefused(uid) && !h.held[uid] {
			h.workers.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: h.alloc.Apply(pod), Start: now})
			if state, known := h.workers.State(uid); known && !state.Phase.MayHaveRunning() {
				h.alloc.End(uid, now)
				freed = true
			}
			continue
		}
		freed = true
	}
	if freed { // somebody's end made room
		h.answerResizes(now)
	}
	h.introduceHeld()
}

// introduceHeld looks whether what pods wait for is over.
func (h *handler) introduceHeld() {
	var pods []*corev1.Pod
	for uid := range h.held {
		if pod, ok := h.store.ByUID(types.UID(uid)); ok {
			pods = append(pods, pod)
		}
	}
	h.introduceAll(pods)
}

// HandleContainerDied clears away older instances of a container that died.
func (h *handler) HandleContainerDied(_ context.Context, uid observed.UID, _ observed.ContainerID) {
	if pod, ok := h.pleg.Cache().Get(uid); ok {
		state, known := h.workers.State(uid)
		h.gc.ContainerDied(pod, known && state.ContentRemovable())
	}
}

// Pods returns the desired pods with their reported statuses, for /pods.
func (h *handler) Pods() []*corev1.Pod {
	pods := h.store.Pods()
	for i, pod := range pods {
		if st, ok := h.statuses.Get(observed.UID(pod.UID)); ok {
			shown := *pod
			shown.Status = st
			pods[i] = &shown
		}
	}
	return pods
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodFailed || phase == corev1.PodSucceeded
}

func podName(pod *corev1.Pod) string { return fmt.Sprintf("%s/%s", pod.Namespace, pod.Name) }

package allocation

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// progress is a resize that was granted and is not in force everywhere.
type progress struct {
	since  time.Time
	told   told // the reason is empty, or Error
	probed time.Time
}

// Progress takes the end of a pass over a pod: what is seen of it, and the error of
// its resize if there was one. The pod is as [Allocations.Apply] returned it. A
// resize is over when each container that runs, and the pod itself, was given what
// was granted.
func (a *Allocations) Progress(pod *corev1.Pod, seen observed.Pod, resizeErr error, now time.Time) {
	if tell := a.progress(pod, seen, resizeErr, now); tell != nil {
		tell()
	}
}

func (a *Allocations) progress(pod *corev1.Pod, seen observed.Pod, resizeErr error, now time.Time) (tell func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid := observed.UID(pod.UID)
	z := a.mu.resizes[uid]
	if z == nil {
		return nil
	}
	done := inForce(pod, seen, a.mu.allocated[uid], a.mu.actuated[uid])
	if z.progress == nil {
		if done {
			return nil
		}
		// It was granted by an agent that ended before it could say so.
		z.progress = &progress{since: now, told: told{generation: pod.Generation}}
	}
	took, p := now.Sub(z.progress.since), z.progress
	p.probed = now
	switch {
	case resizeErr != nil:
		said := told{reason: corev1.PodReasonError, message: resizeErr.Error(), generation: p.told.generation}
		if said == p.told {
			return nil
		}
		first := p.told.reason == ""
		p.told = said
		return func() {
			a.event(pod, "ResizeError", "Pod resize error", said.message)
			if first {
				a.cfg.Hooks.Ended(pod, took, resizeErr)
			}
		}
	case done:
		z.progress = nil
		return func() {
			a.event(pod, "ResizeCompleted", "Pod resize completed", "")
			a.cfg.Hooks.Ended(pod, took, nil)
		}
	default:
		p.told.reason, p.told.message = "", ""
		return nil
	}
}

// inForce compares what was granted with what was given. A container that does not
// run gets its amounts when it starts.
func inForce(pod *corev1.Pod, seen observed.Pod, allocated, actuated record) bool {
	for c, kind := range podspec.All(pod) {
		if kind == podspec.Ephemeral {
			continue
		}
		if got, ok := seen.Container(c.Name); !ok || got.State != observed.Running {
			continue
		}
		granted, ok := allocated.Containers[c.Name]
		if given := actuated.Containers[c.Name]; ok && !equal(granted, given) {
			return false
		}
	}
	return allocated.Pod == nil || actuated.Pod != nil && equal(*allocated.Pod, *actuated.Pod)
}

// Conditions returns the conditions of the pod that are about a resize; none for a
// pod that has what it asks for. Both may hold: one resize waits while another is
// under way. Their transition times are for the status room to fill in.
func (a *Allocations) Conditions(uid observed.UID) []corev1.PodCondition {
	a.mu.Lock()
	defer a.mu.Unlock()
	z := a.mu.resizes[uid]
	if z == nil {
		return nil
	}
	var list []corev1.PodCondition
	add := func(t corev1.PodConditionType, said told, probed time.Time) {
		list = append(list, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: said.reason, Message: said.message,
			ObservedGeneration: said.generation, LastProbeTime: metav1.NewTime(probed),
		})
	}
	if z.pending != nil && z.pending.told.reason != "" {
		add(corev1.PodResizePending, z.pending.told, z.pending.probed)
	}
	if z.progress != nil {
		add(corev1.PodResizeInProgress, z.progress.told, z.progress.probed)
	}
	return list
}

// Counts returns how many resizes wait, by the reason that was last given (empty:
// none yet), and how many are under way.
func (a *Allocations) Counts() (waiting map[Outcome]int, inProgress int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting = make(map[Outcome]int)
	for _, z := range a.mu.resizes {
		if z.pending != nil {
			waiting[Outcome(z.pending.told.reason)]++
		}
		if z.progress != nil {
			inProgress++
		}
	}
	return waiting, inProgress
}

// amounts is the text of an event.
type amounts struct {
	InitContainers []amount                     `json:"initContainers,omitempty"`
	Containers     []amount                     `json:"containers,omitempty"`
	PodResources   *corev1.ResourceRequirements `json:"podResources,omitempty"`
	Generation     int64                        `json:"generation"`
	Error          string                       `json:"error,omitempty"`
}

type amount struct {
	Name      string                      `json:"name"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

func (a *Allocations) event(pod *corev1.Pod, reason, words, wrong string) {
	text := amounts{PodResources: pod.Spec.Resources, Generation: pod.Generation, Error: wrong}
	for c, kind := range podspec.All(pod) {
		switch kind {
		case podspec.Init:
			text.InitContainers = append(text.InitContainers, amount{c.Name, c.Resources})
		case podspec.Regular:
			text.Containers = append(text.Containers, amount{c.Name, c.Resources})
		}
	}
	// Names and quantities always encode.
	data, _ := json.Marshal(text)
	eventType := corev1.EventTypeWarning
	if wrong == "" {
		eventType = corev1.EventTypeNormal
	}
	a.cfg.Hooks.Event(pod, eventType, reason, words+": "+string(data))
}

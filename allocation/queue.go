package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// When to call [Allocations.Evaluate] although nothing has happened, as the kubelet
// does: at first after FirstRetry, then RetryEvery after the last time.
const (
	FirstRetry = 30 * time.Second
	RetryEvery = 3 * time.Minute
)

// Outcome is what became of a resize that waited.
type Outcome string

// The outcomes. A Deferred resize waits on; an Infeasible one waits for another
// spec, or an agent that is configured otherwise.
const (
	Accepted   Outcome = "Accepted"
	Deferred   Outcome = corev1.PodReasonDeferred
	Infeasible Outcome = corev1.PodReasonInfeasible
	Reverted   Outcome = "Reverted"   // the pod asks for what it has again
	Terminated Outcome = "Terminated" // the pod is gone
)

// Answer says whether a resize may be granted.
type Answer struct {
	OK bool
	// Infeasible: it never can be on this node. Otherwise it may fit later.
	Infeasible bool
	// Reason is short, for metrics; Message is for people.
	Reason, Message string
}

// Decision is an answer that was given.
type Decision struct {
	Pod     *corev1.Pod // as desired
	Outcome Outcome
	Reason  string
	Message string
	// WasDeferred: an earlier answer was Deferred.
	WasDeferred bool
	// Waited is how long the resize has been in the queue.
	Waited time.Duration
}

// resize is all that is known of one pod's.
type resize struct {
	pod      *corev1.Pod // as desired
	desired  record
	pending  *waiting  // nil: it has what it asks for, or is about to get it
	progress *progress // nil: what was granted is in force
}

// waiting is a resize that is not granted.
type waiting struct {
	since  time.Time
	queued bool // false once it is Infeasible
	told   told
	probed time.Time
}

// told is what was last said about a resize, so that nothing is said twice.
type told struct {
	reason, message string
	generation      int64
}

func (z *resize) decision(o Outcome, answer Answer, now time.Time) Decision {
	return Decision{
		Pod: z.pod, Outcome: o, Reason: answer.Reason, Message: answer.Message,
		WasDeferred: z.pending.told.reason == string(Deferred), Waited: now.Sub(z.pending.since),
	}
}

// recall takes up what was reported of a pod before this agent started.
func recall(pod *corev1.Pod) *resize {
	z := &resize{pod: pod, desired: of(pod)}
	for _, c := range pod.Status.Conditions {
		said := told{reason: c.Reason, message: c.Message, generation: c.ObservedGeneration}
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			z.pending = &waiting{since: c.LastTransitionTime.Time, told: said, probed: c.LastProbeTime.Time}
		case c.Type == corev1.PodResizeInProgress:
			z.progress = &progress{since: c.LastTransitionTime.Time, told: said, probed: c.LastProbeTime.Time}
		}
	}
	return z
}

// Evaluate answers the resizes that wait, and grants those for which admit says
// yes: it is asked with the desired pod, and has to count every other pod as
// [Allocations.Apply] returns it. Resizes that ask for no more than before go first,
// so that others find what they give back; then the higher priority, the better QoS
// class, the longer wait.
//
// Call it when a resize has come ([Allocations.Set]), when room may have become
// free, and now and then. Sync the pods of Accepted decisions.
func (a *Allocations) Evaluate(now time.Time, admit func(desired *corev1.Pod) Answer) ([]Decision, error) {
	var all []Decision
	var errs []error
	for _, c := range a.queue() {
		answer, known := a.infeasible(c)
		if !known {
			answer = admit(c.pod)
		}
		d, answered, err := a.settle(c, answer, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("grant the resize of pod %s/%s: %w", c.pod.Namespace, c.pod.Name, err))
		}
		if answered {
			a.cfg.Hooks.Decided(d)
			all = append(all, d)
		}
	}
	return all, errors.Join(errs...)
}

// candidate is a resize in the queue.
type candidate struct {
	pod       *corev1.Pod
	allocated *corev1.Pod
	since     time.Time
}

func (a *Allocations) queue() []candidate {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []candidate
	for uid, z := range a.mu.resizes {
		if z.pending != nil && z.pending.queued {
			list = append(list, candidate{pod: z.pod, allocated: apply(z.pod, a.mu.allocated[uid]), since: z.pending.since})
		}
	}
	slices.SortFunc(list, before)
	return list
}

func before(a, b candidate) int {
	rank := func(c candidate) int {
		switch podspec.QoS(c.pod) {
		case corev1.PodQOSGuaranteed:
			return 0
		case corev1.PodQOSBurstable:
			return 1
		default:
			return 2
		}
	}
	growing := func(c candidate) int {
		if grows(c.allocated, c.pod) {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(growing(a), growing(b)),
		cmp.Compare(priority(b.pod), priority(a.pod)),
		cmp.Compare(rank(a), rank(b)),
		a.since.Compare(b.since),
		cmp.Compare(a.pod.UID, b.pod.UID),
	)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// settle carries out an answer, unless the pod has changed in the meantime.
func (a *Allocations) settle(c candidate, answer Answer, now time.Time) (d Decision, answered bool, err error) {
	var tell func()
	defer func() {
		if tell != nil {
			tell()
		}
	}()
	a.mu.Lock()
	defer a.mu.Unlock()
	uid := observed.UID(c.pod.UID)
	z := a.mu.resizes[uid]
	if z == nil || z.pod != c.pod || z.pending == nil {
		return Decision{}, false, nil
	}
	outcome := Deferred
	switch {
	case answer.OK:
		outcome = Accepted
	case answer.Infeasible:
		outcome = Infeasible
	}
	if outcome == Accepted {
		next := of(c.pod)
		next.Volumes = a.mu.allocated[uid].Volumes
		if err := a.save(allocatedFile, a.mu.allocated, uid, next); err != nil {
			return Decision{}, false, err // it waits on
		}
		d = z.decision(outcome, answer, now)
		z.pending = nil
		z.progress = &progress{since: now, probed: now, told: told{generation: c.pod.Generation}}
		tell = func() { a.event(c.pod, "ResizeStarted", "Pod resize started", "") }
		return d, true, nil
	}
	d = z.decision(outcome, answer, now)
	said := told{reason: string(outcome), message: answer.Message, generation: c.pod.Generation}
	if last := z.pending.told; last.reason != said.reason || last.generation != said.generation {
		tell = func() { a.event(c.pod, "Resize"+said.reason, "Pod resize "+said.reason, said.message) }
	}
	z.pending.told, z.pending.probed, z.pending.queued = said, now, outcome == Deferred
	return d, true, nil
}

// infeasible knows what no room on the node can change.
func (a *Allocations) infeasible(c candidate) (Answer, bool) {
	if old, next := class(c.allocated), class(c.pod); old != next {
		return Answer{
			Infeasible: true, Reason: "qos_class",
			Message: fmt.Sprintf("the pod is %s, and would be %s; the QoS class cannot change with a resize", old, next),
		}, true
	}
	if what := removed(c.allocated, c.pod); what != "" {
		return Answer{
			Infeasible: true, Reason: "removed",
			Message: what + " was taken away; a resize can only give another amount",
		}, true
	}
	return a.swapLimits(c)
}

// class is what the pod's spec makes it, whatever was reported of it.
func class(pod *corev1.Pod) corev1.PodQOSClass {
	return podspec.QoS(&corev1.Pod{Spec: pod.Spec})
}

// removed names an amount that the pod does not ask for any more. The API server
// refuses that, and another QoS class, but nobody has asked it about a manifest.
func removed(allocated, desired *corev1.Pod) string {
	find := func(whose string, old, next corev1.ResourceRequirements) string {
		for _, name := range resizable {
			switch {
			case change(old.Limits, next.Limits, name) == "remove":
				return fmt.Sprintf("the %s limit of %s", name, whose)
			case change(old.Requests, next.Requests, name) == "remove":
				return fmt.Sprintf("the %s request of %s", name, whose)
			}
		}
		return ""
	}
	for next, kind := range podspec.All(desired) {
		if old, _, ok := podspec.Find(allocated, next.Name); ok && kind != podspec.Ephemeral {
			if what := find("container "+next.Name, old.Resources, next.Resources); what != "" {
				return what
			}
		}
	}
	if old, next := allocated.Spec.Resources, desired.Spec.Resources; old != nil && next != nil {
		return find("the pod", *old, *next)
	}
	return ""
}

// swapLimits: the swap that a container may use follows from its memory request
// when it starts.
func (a *Allocations) swapLimits(c candidate) (Answer, bool) {
	if !a.cfg.LimitedSwap || podspec.QoS(c.pod) != corev1.PodQOSBurstable || podspec.IsCritical(c.pod) { // those never swap
		return Answer{}, false
	}
	for spec, kind := range podspec.All(c.pod) {
		old, _, ok := podspec.Find(c.allocated, spec.Name)
		if kind == podspec.Ephemeral || !ok || compare(old.Resources.Requests, spec.Resources.Requests, corev1.ResourceMemory) == 0 ||
			restarts(spec, corev1.ResourceMemory) || !swaps(old.Resources) && !swaps(spec.Resources) {
			continue
		}
		return Answer{
			Infeasible: true, Reason: "swap_limitation",
			Message: fmt.Sprintf("container %s has swap by its memory request, which cannot change without a restart; set resizePolicy RestartContainer for memory", spec.Name),
		}, true
	}
	return Answer{}, false
}

func restarts(c *corev1.Container, name corev1.ResourceName) bool {
	return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.ResourceName == name && p.RestartPolicy == corev1.RestartContainer
	})
}

// swaps reports whether a container of a Burstable pod gets a share of the swap.
func swaps(r corev1.ResourceRequirements) bool {
	request := r.Requests[corev1.ResourceMemory]
	return !request.IsZero() && request.Cmp(r.Limits[corev1.ResourceMemory]) != 0
}

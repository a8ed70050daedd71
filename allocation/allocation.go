package allocation

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// The kubelet's file names. An agent that takes its place goes on with its records.
const (
	allocatedFile = "allocated_pods_state"
	actuatedFile  = "actuated_pods_state"
)

// PodItself is the name under which a pod's own resources are kept beside those of
// its containers (KEP-2837). No container has it.
const PodItself = ""

// Config has a useful zero value, which remembers nothing across restarts.
type Config struct {
	// Dir is the kubelet's root directory. Empty: no files.
	Dir string
	// LimitedSwap is true where containers of Burstable pods may swap. How much
	// depends on the memory request, which cannot change then without a restart.
	LimitedSwap bool
	Log         logr.Logger // default discards
	Hooks       Hooks       // default no-ops
}

// Hooks report work as it happens. They are called without a lock, and must not
// block.
type Hooks struct {
	// Event is a Kubernetes Event of the pod. The words are the kubelet's.
	Event func(pod *corev1.Pod, eventType, reason, message string)
	// Requested is told about each amount that a new resize changes: cpu or memory,
	// requests or limits, and add, remove, increase or decrease.
	Requested func(pod *corev1.Pod, resource, requirement, operation string)
	// Decided is told about each answer to a resize, and about one taken back.
	Decided func(Decision)
	// Ended is told when a granted resize is in force, or for the first time why not.
	Ended func(pod *corev1.Pod, took time.Duration, err error)
}

func (h *Hooks) fill() {
	if h.Event == nil {
		h.Event = func(*corev1.Pod, string, string, string) {}
	}
	if h.Requested == nil {
		h.Requested = func(*corev1.Pod, string, string, string) {}
	}
	if h.Decided == nil {
		h.Decided = func(Decision) {}
	}
	if h.Ended == nil {
		h.Ended = func(*corev1.Pod, time.Duration, error) {}
	}
}

// Allocations are the records of all pods of one node. The methods may be called
// from many goroutines.
type Allocations struct {
	cfg Config

	mu struct {
		sync.Mutex
		allocated, actuated records
		resizes             map[observed.UID]*resize
		// batches run, and these files wait for the end of them.
		batches int
		unsaved map[string]records
	}
}

// New reads the records that an earlier agent has left. A file that cannot be
// relied on is an error: what its pods were granted is not known, and to guess
// would overcommit the node.
func New(cfg Config) (*Allocations, error) {
	cfg.Hooks.fill()
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	a := &Allocations{cfg: cfg}
	a.mu.allocated, a.mu.actuated = records{}, records{}
	a.mu.resizes, a.mu.unsaved = make(map[observed.UID]*resize), make(map[string]records)
	if cfg.Dir == "" {
		return a, nil
	}
	var err, also error
	a.mu.allocated, err = read(filepath.Join(cfg.Dir, allocatedFile))
	a.mu.actuated, also = read(filepath.Join(cfg.Dir, actuatedFile))
	if err := errors.Join(err, also); err != nil {
		return nil, err
	}
	return a, nil
}

// Set takes a pod that this node runs, or a new version of it, as it is desired:
// before [Allocations.Apply]. The conditions in its status are those last reported.
//
// A pod without a record is granted what it asks for: admission has let it in. For
// one that has a record, other amounts are a resize. It waits for
// [Allocations.Evaluate] if Set returns true.
func (a *Allocations) Set(pod *corev1.Pod, now time.Time) (waits bool, err error) {
	tell := a.set(pod, now, &waits, &err)
	for _, f := range tell {
		f()
	}
	return waits, err
}

func (a *Allocations) set(pod *corev1.Pod, now time.Time, waits *bool, err *error) (tell []func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid := observed.UID(pod.UID)
	if *err = a.introduce(uid, pod); *err != nil {
		return nil
	}
	allocated := a.mu.allocated[uid]
	z, known := a.mu.resizes[uid]
	if !known {
		z = recall(pod)
		a.mu.resizes[uid] = z
	}
	asked := !known || !same(pod, z.desired)
	z.pod, z.desired = pod, of(pod)
	switch {
	case same(pod, allocated) || ended(pod):
		if z.pending != nil && z.pending.queued {
			d := z.decision(Reverted, Answer{}, now)
			tell = append(tell, func() { a.cfg.Hooks.Decided(d) })
		}
		z.pending = nil
	case asked && z.pending != nil && !known: // goes on waiting after a restart
		z.pending.queued = true
	case asked:
		next := &waiting{since: now, queued: true}
		if z.pending != nil {
			next.told = z.pending.told
		}
		z.pending = next
		tell = append(tell, func() { a.requested(pod, allocated) })
	}
	*waits = z.pending != nil && z.pending.queued
	return tell
}

// ended: a pod that will not run again gets nothing any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// introduce makes the records of a pod that has none. What is actuated begins as
// what is allocated: that is what the first start of each container gets.
func (a *Allocations) introduce(uid observed.UID, pod *corev1.Pod) error {
	next, changed := a.mu.allocated[uid].completed(of(pod))
	if changed {
		if err := a.add(allocatedFile, a.mu.allocated, uid, next); err != nil {
			return fmt.Errorf("record what pod %s/%s was granted: %w", pod.Namespace, pod.Name, err)
		}
	}
	if next, changed = a.mu.actuated[uid].completed(next); changed {
		if err := a.add(actuatedFile, a.mu.actuated, uid, next); err != nil {
			return fmt.Errorf("record what pod %s/%s was given: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// Apply returns the pod as this node runs it: with the resources that it was
// granted, not those that it may be waiting for. The pod is not changed; if there
// is no difference it is returned itself.
func (a *Allocations) Apply(pod *corev1.Pod) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	record, ok := a.mu.allocated[observed.UID(pod.UID)]
	if !ok || same(pod, record) {
		return pod
	}
	return apply(pod, record)
}

// Actuated returns what the named container, or the pod as [PodItself], was given
// last.
func (a *Allocations) Actuated(uid observed.UID, container string) (corev1.ResourceRequirements, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.mu.actuated[uid].get(container)
	return *r.DeepCopy(), ok
}

// SetActuated records what a container, or the pod as [PodItself], is given. It is
// to be called before a container is created, and after each change that the
// runtime has accepted.
func (a *Allocations) SetActuated(uid observed.UID, container string, given corev1.ResourceRequirements) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.mu.actuated[uid].get(container); ok && equal(old, given) {
		return nil
	}
	if err := a.save(actuatedFile, a.mu.actuated, uid, a.mu.actuated[uid].with(container, given)); err != nil {
		return fmt.Errorf("record what container %q of pod %s was given: %w", container, uid, err)
	}
	return nil
}

// End is told that a pod ends, or has ended: what it waits for, and what is under
// way, is over. Its records stay. It can be called again.
func (a *Allocations) End(uid observed.UID, now time.Time) {
	var gone *Decision
	a.mu.Lock()
	if z := a.mu.resizes[uid]; z != nil {
		if z.pending != nil && z.pending.queued {
			d := z.decision(Terminated, Answer{}, now)
			gone = &d
		}
		z.pending, z.progress = nil, nil
	}
	a.mu.Unlock()
	if gone != nil {
		a.cfg.Hooks.Decided(*gone)
	}
}

// Forget drops a pod that this node no longer has. It can be called again after an
// error.
func (a *Allocations) Forget(uid observed.UID, now time.Time) error {
	a.End(uid, now)
	a.mu.Lock()
	delete(a.mu.resizes, uid)
	var errs []error
	for file, list := range map[string]records{allocatedFile: a.mu.allocated, actuatedFile: a.mu.actuated} {
		if _, ok := list[uid]; ok {
			errs = append(errs, a.save(file, list, uid, record{}))
		}
	}
	a.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("forget resources of pod %s: %w", uid, err)
	}
	return nil
}

// Pods are all that there is a record of, in no order. It is how pods are found that
// left while no agent ran.
func (a *Allocations) Pods() []observed.UID {
	a.mu.Lock()
	defer a.mu.Unlock()
	uids := slices.Collect(maps.Keys(a.mu.allocated))
	for uid := range a.mu.actuated {
		if _, ok := a.mu.allocated[uid]; !ok {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Batch makes one write of what many [Allocations.Set] in do record of new pods,
// instead of one each. Until it returns only what these pods ask for anyhow can be
// lost in a crash; everything else is written at once, as always.
func (a *Allocations) Batch(do func()) error {
	a.mu.Lock()
	a.mu.batches++
	a.mu.Unlock()
	do()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.batches--; a.mu.batches > 0 {
		return nil
	}
	var errs []error
	for file, list := range a.mu.unsaved {
		errs = append(errs, write(filepath.Join(a.cfg.Dir, file), list))
	}
	clear(a.mu.unsaved)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("record what new pods were granted: %w", err)
	}
	return nil
}

// add is save for a new pod, which a batch may put off.
func (a *Allocations) add(file string, list records, uid observed.UID, next record) error {
	if a.mu.batches == 0 || a.cfg.Dir == "" {
		return a.save(file, list, uid, next)
	}
	list[uid] = next
	a.mu.unsaved[file] = list
	return nil
}

// save writes a file with one record changed, and changes it in memory when that
// has succeeded. The empty record is none.
func (a *Allocations) save(file string, list records, uid observed.UID, next record) error {
	old, had := list[uid]
	set := func(r record, there bool) {
		delete(list, uid)
		if there {
			list[uid] = r
		}
	}
	set(next, !next.empty())
	if a.cfg.Dir == "" {
		return nil
	}
	err := write(filepath.Join(a.cfg.Dir, file), list)
	if err != nil {
		set(old, had)
	}
	return err
}

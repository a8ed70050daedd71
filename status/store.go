package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// ErrRejected is wrapped by the error for a status that would take back what was
// reported: the old status stands.
var ErrRejected = errors.New("status: contradicts what was reported")

// StoreConfig has a useful zero value: a Store in memory only.
type StoreConfig struct {
	// Dir is the kubelet's root directory; empty keeps everything in memory.
	Dir   string
	Log   logr.Logger // default discards
	Hooks Hooks       // default no-ops
}

// Hooks report changes as they happen, in the goroutine that made them.
type Hooks struct {
	// Changed is called after a status has been accepted.
	Changed func(pod *corev1.Pod, st corev1.PodStatus)
	// Terminated is called once per container that was seen to end.
	Terminated func(pod *corev1.Pod, container string, kind podspec.Kind, end corev1.ContainerStateTerminated)
	// SetAside is called when a damaged file was renamed to path.
	SetAside func(uid observed.UID, path string, reason error)
}

// Store has the reported status of every pod by UID. What can't be rebuilt from
// the runtime (results, restart counts of removed containers, the ends of
// containers that may not run again) is also in a file of the pod's directory.
// Statuses it returns are shared: treat them as read-only.
type Store struct {
	dir   string // <root>/pods, empty for memory only
	log   logr.Logger
	hooks Hooks

	mu struct {
		sync.Mutex
		pods    map[observed.UID]*entry
		version uint64
		changed chan struct{} // closed and replaced at every change
	}
}

// entry is one pod's. Its fields are guarded by Store.mu, except for those that
// belong to whoever holds turn.
type entry struct {
	turn    sync.Mutex // held over a whole Set, Load or Remove, disk included
	saved   string     // with turn: what the file holds, in the words of durable
	loaded  bool       // with turn: the file holds status itself, saved is not known
	removed bool       // with turn: the entry is no longer in the map

	known   bool
	status  corev1.PodStatus
	version uint64
}

// Reported is one pod's status. Versions of a Store only grow.
type Reported struct {
	UID     observed.UID
	Status  corev1.PodStatus
	Version uint64
}

// New checks cfg. It reads nothing: see [Store.Load].
func New(cfg StoreConfig) (*Store, error) {
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	s := &Store{log: cfg.Log, hooks: cfg.Hooks}
	if cfg.Dir != "" {
		if !filepath.IsAbs(cfg.Dir) {
			return nil, fmt.Errorf("status: StoreConfig.Dir is %q, want an absolute path", cfg.Dir)
		}
		s.dir = filepath.Join(cfg.Dir, "pods")
	}
	s.mu.pods = map[observed.UID]*entry{}
	s.mu.changed = make(chan struct{})
	return s, nil
}

// Set makes st the reported status of pod and returns whether that is news. When
// it returns nil, all of st that can't be rebuilt is on disk. An error that wraps
// [ErrRejected] leaves the old status in place. Any other error is the disk's:
// the status counts, but is lost in a crash; Set it again. Neither is a reason to
// keep containers running that have to stop.
func (s *Store) Set(pod *corev1.Pod, st corev1.PodStatus) (changed bool, err error) {
	uid := observed.UID(pod.UID)
	e := s.take(uid)
	defer e.turn.Unlock()
	old, known := s.read(e)
	st = Normalize(pod, st)
	if known {
		if old.StartTime != nil {
			st.StartTime = old.StartTime
		}
		if err := checkTransition(pod, &old, &st); err != nil {
			return false, fmt.Errorf("set status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if err = s.keep(e, pod, &old, st); err != nil {
		err = fmt.Errorf("set status of pod %s/%s: save it: %w", pod.Namespace, pod.Name, err)
	}
	if known && equality.Semantic.DeepEqual(old, st) {
		return false, err
	}
	s.publish(e, st)
	s.tell(pod, &old, st)
	return true, err
}

// Load reads what was saved for the pod before the agent was restarted and makes
// it the reported status, unless one is set already. A file that is damaged is
// renamed and counts as absent: the runtime and the API still know most of it.
func (s *Store) Load(uid observed.UID) (corev1.PodStatus, bool, error) {
	e := s.take(uid)
	defer e.turn.Unlock()
	if st, known := s.read(e); known {
		return st, true, nil
	}
	if s.dir == "" {
		return corev1.PodStatus{}, false, nil
	}
	saved, ok, err := s.load(uid)
	if err != nil || !ok {
		return corev1.PodStatus{}, false, err
	}
	e.loaded = true
	s.publish(e, saved)
	return saved, true, nil
}

// Get returns the reported status of the pod.
func (s *Store) Get(uid observed.UID) (corev1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.mu.pods[uid]
	if !ok || !e.known {
		return corev1.PodStatus{}, false
	}
	return e.status, true
}

// All returns the reported statuses of all pods, the one that changed last at
// the end.
func (s *Store) All() []Reported { return s.Since(0) }

// Since returns the statuses that changed after version, in order of change.
func (s *Store) Since(version uint64) []Reported {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Reported
	for uid, e := range s.mu.pods {
		if e.known && e.version > version {
			list = append(list, Reported{UID: uid, Status: e.status, Version: e.version})
		}
	}
	slices.SortFunc(list, func(a, b Reported) int { return cmp.Compare(a.Version, b.Version) })
	return list
}

// Wait blocks until some status has a version above since, or ctx ends, and
// returns the newest version. Changes in between are merged: a slow reader finds
// the last status of each pod, none missing and none stale.
func (s *Store) Wait(ctx context.Context, since uint64) (uint64, error) {
	for {
		s.mu.Lock()
		version, changed := s.mu.version, s.mu.changed
		s.mu.Unlock()
		if version > since {
			return version, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return version, ctx.Err()
		}
	}
}

// Remove forgets the pod, and its file. A pod that comes back under the same UID
// (a manifest that was taken away and put back) starts anew.
func (s *Store) Remove(uid observed.UID) error {
	e := s.take(uid)
	defer e.turn.Unlock()
	var err error
	if s.dir != "" {
		err = s.unlink(uid)
	}
	e.removed = true
	s.mu.Lock()
	delete(s.mu.pods, uid)
	s.mu.Unlock()
	return err
}

// take returns the pod's entry with its turn held.
func (s *Store) take(uid observed.UID) *entry {
	for {
		s.mu.Lock()
		e, ok := s.mu.pods[uid]
		if !ok {
			e = &entry{}
			s.mu.pods[uid] = e
		}
		s.mu.Unlock()
		e.turn.Lock()
		if !e.removed {
			return e
		}
		e.turn.Unlock()
	}
}

func (s *Store) read(e *entry) (corev1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.status, e.known
}

func (s *Store) publish(e *entry, st corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.version++
	e.status, e.known, e.version = st, true, s.mu.version
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

func (s *Store) tell(pod *corev1.Pod, old *corev1.PodStatus, st corev1.PodStatus) {
	if s.hooks.Changed != nil {
		s.hooks.Changed(pod, st)
	}
	if s.hooks.Terminated == nil {
		return
	}
	for c, kind := range podspec.All(pod) {
		was, is := find(*statusesOf(old, kind), c.Name), find(*statusesOf(&st, kind), c.Name)
		if is == nil || ended(is) == nil {
			continue
		}
		if was == nil || ended(was) == nil || ended(was).ContainerID != ended(is).ContainerID {
			s.hooks.Terminated(pod, c.Name, kind, *ended(is))
		}
	}
}

// checkTransition refuses a status that takes a result back.
func checkTransition(pod *corev1.Pod, old, st *corev1.PodStatus) error {
	if IsTerminal(old.Phase) && st.Phase != old.Phase {
		return fmt.Errorf("%w: phase %s is final, %q cannot follow", ErrRejected, old.Phase, st.Phase)
	}
	if isTrue(old.Conditions, corev1.AllContainersRestarting) {
		return nil // that is what it means
	}
	for c, kind := range podspec.All(pod) {
		was, is := find(*statusesOf(old, kind), c.Name), find(*statusesOf(st, kind), c.Name)
		if was == nil || was.State.Terminated == nil || is == nil || is.State.Terminated != nil {
			continue
		}
		if !mayComeBack(pod, c, kind, was.State.Terminated.ExitCode) {
			return fmt.Errorf("%w: container %s has ended with exit code %d and may not start again",
				ErrRejected, c.Name, was.State.Terminated.ExitCode)
		}
	}
	return nil
}

func mayComeBack(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, exitCode int32) bool {
	switch {
	case kind == podspec.Ephemeral:
		return false
	case kind == podspec.Init && exitCode == 0:
		return true // they run again in a new sandbox, whatever the policy
	default:
		return podspec.MayRestart(pod, c, exitCode)
	}
}

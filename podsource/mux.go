package podsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Source is one place that pods come from.
type Source interface {
	// Name is unique among the sources of a [Mux] and never changes.
	Name() string
	// Run calls set with the source's complete set of pods, at once when it
	// knows one (also an empty one) and after every change, until ctx ends.
	// Until the first call the source counts as unheard. The set's pods are
	// copied, not kept. Set returns when the change is delivered or ctx ended.
	Run(ctx context.Context, set func(pods []*corev1.Pod)) error
}

// Config says what a [Mux] merges. No sources is a node without pods.
type Config struct {
	Sources []Source
	Log     logr.Logger // default discards
	Hooks   Hooks       // default no-ops
}

// Hooks report work as it happens.
type Hooks struct {
	// Updated is called just before an update is delivered. The pods will be
	// the receiver's, so it must not keep them.
	Updated func(Update)
	// Dropped is called when a pod of a set can't be taken, once per set.
	Dropped func(source string, d Dropped)
}

// updateSlots is how many updates wait for a slow reader before sources do.
const updateSlots = 50

// Mux merges the sets of its sources into one stream of updates.
type Mux struct {
	cfg     Config
	updates chan Update
	// turn is held by the source whose set is being delivered, so that the
	// updates of two sets never mix. Run takes it for ever at its end.
	turn  chan struct{}
	heard struct {
		sync.Mutex
		spoken map[string]bool // by source: it has given a set
		seen   map[string]bool // by source: the reader has taken that set
	}
}

// New checks cfg and returns a Mux that has not started.
func New(cfg Config) (*Mux, error) {
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Updated == nil {
		cfg.Hooks.Updated = func(Update) {}
	}
	if cfg.Hooks.Dropped == nil {
		cfg.Hooks.Dropped = func(string, Dropped) {}
	}
	m := &Mux{cfg: cfg, updates: make(chan Update, updateSlots), turn: make(chan struct{}, 1)}
	m.heard.spoken = make(map[string]bool)
	m.heard.seen = make(map[string]bool)
	for _, s := range cfg.Sources {
		if s == nil || s.Name() == "" {
			return nil, errors.New("podsource: a source has no name")
		}
		if _, twice := m.heard.seen[s.Name()]; twice {
			return nil, fmt.Errorf("podsource: two sources are named %q", s.Name())
		}
		m.heard.seen[s.Name()] = false
	}
	return m, nil
}

// Updates delivers every change, in order per source. It holds 50 updates; then
// it blocks the source that has news. It is closed when [Mux.Run] returns.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Run runs the sources until ctx ends, and then returns nil. It is called once.
// A source that returns an error ends all; one that returns nil has said all it
// will say, and its last set stays.
func (m *Mux) Run(ctx context.Context) error {
	defer func() {
		m.turn <- struct{}{} // a set that comes too late finds no turn
		close(m.updates)
	}()
	g, gctx := errgroup.WithContext(ctx)
	for _, s := range m.cfg.Sources {
		g.Go(func() error { return m.runSource(gctx, s) })
	}
	g.Go(func() error {
		<-gctx.Done()
		return nil
	})
	return g.Wait()
}

func (m *Mux) runSource(ctx context.Context, s Source) error {
	held := &holding{source: s.Name()}
	err := s.Run(ctx, func(pods []*corev1.Pod) { m.take(ctx, held, pods) })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("run pod source %s: %w", s.Name(), err)
	}
	return nil
}

// holding is what one source has told so far. The turn guards it.
type holding struct {
	source  string
	pods    map[types.UID]*corev1.Pod
	dropped map[string]bool // what was logged for the last set
}

// take merges one complete set and delivers what it changes.
func (m *Mux) take(ctx context.Context, held *holding, pods []*corev1.Pod) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-m.turn }()
	merged := Merge(held.source, held.pods, pods, time.Now())
	m.reportDropped(held, merged.Dropped)
	m.heard.Lock()
	m.heard.spoken[held.source] = true
	m.heard.Unlock()
	for _, u := range merged.Updates {
		if u.Op == OpAdd {
			m.warnOfPriorities(u)
		}
		m.cfg.Hooks.Updated(u)
		select {
		case m.updates <- u:
		case <-ctx.Done():
			return
		}
	}
	held.pods = merged.Pods
}

// reportDropped logs each dropped pod once for as long as it stays in the set.
func (m *Mux) reportDropped(held *holding, all []Dropped) {
	logged := make(map[string]bool, len(all))
	for _, d := range all {
		m.cfg.Hooks.Dropped(held.source, d)
		key := FullName(d.Pod) + "/" + string(d.Pod.UID) + ": " + d.Reason
		logged[key] = true
		if !held.dropped[key] {
			m.cfg.Log.Error(errors.New(d.Reason), "pod ignored; rename it or remove one of the two", "source", held.source,
				"pod", d.Pod.Namespace+"/"+d.Pod.Name, "podUID", d.Pod.UID)
		}
	}
	held.dropped = logged
}

// warnOfPriorities tells about static pods whose priority class and priority do
// not fit: nobody resolves the class for them, only the number counts.
func (m *Mux) warnOfPriorities(u Update) {
	const class, number = "system-node-critical", 2000001000
	for _, pod := range u.Pods {
		isNumber := pod.Spec.Priority != nil && *pod.Spec.Priority == number
		if IsStatic(pod) && isNumber != (pod.Spec.PriorityClassName == class) {
			m.cfg.Log.Info("static pod's priorityClassName and priority do not fit; only the priority counts",
				"pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID,
				"priorityClassName", pod.Spec.PriorityClassName, "wantForBoth", fmt.Sprint(class, " ", number))
		}
	}
}

// MarkSeen says that the reader has acted on an update of the source. It is
// called after the update was dispatched, so that nobody mistakes a set that
// still waits in the channel for a set without the pod in question.
func (m *Mux) MarkSeen(source string) {
	m.heard.Lock()
	defer m.heard.Unlock()
	if m.heard.spoken[source] {
		m.heard.seen[source] = true
	}
}

// Seen reports whether the source has told a complete set and the reader has
// acted on it. A source that is not configured has nothing to tell: it is seen,
// else a node without an API server would wait for it for ever
// (kubernetes/kubernetes#59275). Ask per pod's own source before its removal: a
// static pod may go while the API server is silent (kubernetes/kubernetes#116880).
func (m *Mux) Seen(source string) bool {
	m.heard.Lock()
	defer m.heard.Unlock()
	seen, configured := m.heard.seen[source]
	return seen || !configured
}

// AllSeen reports whether every configured source is seen. Until then a pod
// that no source has named may still be wanted.
func (m *Mux) AllSeen() bool {
	m.heard.Lock()
	defer m.heard.Unlock()
	return !slices.Contains(slices.Collect(maps.Values(m.heard.seen)), false)
}

package pleg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Runtime is what pleg needs of the container runtime. Both methods are called
// from several goroutines, and have to return soon after their ctx ended.
type Runtime interface {
	// RunningPods returns every pod with a ready sandbox or a running container,
	// and of those pods nothing but the ready sandboxes and running containers.
	RunningPods(ctx context.Context) ([]observed.Pod, error)
	// InspectPod returns everything the runtime holds for last.UID, and an empty
	// Pod when that is nothing. last is the observation before, with at least its
	// UID; what can't have changed since need not be asked again.
	InspectPod(ctx context.Context, last observed.Pod) (observed.Pod, error)
}

// EventSource tells when something in the runtime may have changed.
type EventSource interface {
	// Stream blocks until ctx ends or the stream breaks; Run waits for it to
	// return. It calls connected once the stream is open, then mark for each
	// event, both from one goroutine; neither call blocks. It returns
	// [ErrEventsUnsupported] (wrapped or not) when the runtime has no such stream.
	Stream(ctx context.Context, connected func(), mark func(Mark)) error
}

// Mark says where to look. Without a Pod, the pod is looked up by Container,
// which may be a container's or a sandbox's ID. Where both are unknown the next
// relist comes within Config.RelistEvery.
type Mark struct {
	Pod       observed.UID
	Container observed.ContainerID
}

var (
	// ErrEventsUnsupported says that the runtime has no event stream. The
	// generator keeps trying, slowly: the runtime may be upgraded under it.
	ErrEventsUnsupported = errors.New("pleg: the runtime has no event stream")
	// ErrStopped says that Run has returned, so no observation will come.
	ErrStopped = errors.New("pleg: the generator has stopped")
)

// Config has a useful zero value except for Runtime.
type Config struct {
	Runtime Runtime     // required
	Events  EventSource // default none
	// RelistEvery is the pause between two relists when no event stream can be
	// relied on. Default 1s.
	RelistEvery time.Duration
	// SlowRelistEvery is that pause while the event stream is healthy. Default 30s.
	SlowRelistEvery time.Duration
	// RelistThreshold bounds the age of the last good relist in Healthy, and the
	// time one list call may take. Default 3m.
	RelistThreshold time.Duration
	// InspectTimeout bounds one inspection of one pod. Default 10s.
	InspectTimeout time.Duration
	// Inspectors bounds the inspections that run at once. Default 8. Pods that
	// failed are retried by half as many more, so they can't hold up the others.
	Inspectors int
	Log        logr.Logger // default discards
	Hooks      Hooks       // default no-ops
}

// Hooks report work as it happens. They are called inline, so they should be
// quick: the Stream hooks from the stream's goroutine, all others from Run's.
type Hooks struct {
	Relisted    func(took time.Duration, pods int, err error)
	Running     func(pods, containers int) // ready sandboxes' pods, running containers
	Inspected   func(uid observed.UID, took time.Duration, err error)
	EventSent   func(PodLifecycleEvent)
	Unannounced func(uid observed.UID) // a relist found a change, no event came

	StreamConnected func()
	StreamEnded     func(err error) // also for a stream that did not open
}

// Generator turns looks at the runtime into events and observations.
type Generator struct {
	cfg   Config
	out   chan PodLifecycleEvent
	cache *Cache
	in    inbox
	done  chan struct{} // closed when Run returns
}

// New checks cfg and returns a Generator that has not started.
func New(cfg Config) (*Generator, error) {
	if cfg.Runtime == nil {
		return nil, errors.New("pleg: Config.Runtime is required")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"RelistEvery", &cfg.RelistEvery, time.Second},
		{"SlowRelistEvery", &cfg.SlowRelistEvery, max(30*time.Second, cfg.RelistEvery)},
		{"RelistThreshold", &cfg.RelistThreshold, 3 * time.Minute},
		{"InspectTimeout", &cfg.InspectTimeout, 10 * time.Second},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("pleg: Config.%s is negative: %v", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if cfg.SlowRelistEvery < cfg.RelistEvery {
		return nil, fmt.Errorf("pleg: Config.SlowRelistEvery (%v) is shorter than RelistEvery (%v)", cfg.SlowRelistEvery, cfg.RelistEvery)
	}
	if cfg.RelistThreshold <= cfg.SlowRelistEvery {
		return nil, fmt.Errorf("pleg: Config.RelistThreshold (%v) has to be longer than SlowRelistEvery (%v)", cfg.RelistThreshold, cfg.SlowRelistEvery)
	}
	if cfg.Inspectors < 0 {
		return nil, fmt.Errorf("pleg: Config.Inspectors is negative: %d", cfg.Inspectors)
	}
	if cfg.Inspectors == 0 {
		cfg.Inspectors = 8
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	cfg.Hooks = cfg.Hooks.filled()
	g := &Generator{
		cfg:  cfg,
		out:  make(chan PodLifecycleEvent),
		done: make(chan struct{}),
	}
	g.in.init()
	g.cache = newCache(g.in.want, g.done)
	return g, nil
}

func (h Hooks) filled() Hooks {
	if h.Relisted == nil {
		h.Relisted = func(time.Duration, int, error) {}
	}
	if h.Running == nil {
		h.Running = func(int, int) {}
	}
	if h.Inspected == nil {
		h.Inspected = func(observed.UID, time.Duration, error) {}
	}
	if h.EventSent == nil {
		h.EventSent = func(PodLifecycleEvent) {}
	}
	if h.Unannounced == nil {
		h.Unannounced = func(observed.UID) {}
	}
	if h.StreamConnected == nil {
		h.StreamConnected = func() {}
	}
	if h.StreamEnded == nil {
		h.StreamEnded = func(error) {}
	}
	return h
}

// Watch is where the events come out. It is closed when Run returns; events that
// nobody has read by then are gone, and the next Run's first look replaces them.
func (g *Generator) Watch() <-chan PodLifecycleEvent { return g.out }

// Cache holds the newest observation of every pod.
func (g *Generator) Cache() *Cache { return g.cache }

// Healthy is nil while the last good relist is younger than
// Config.RelistThreshold. The texts are the kubelet's.
func (g *Generator) Healthy() error {
	seen := g.in.lastSeen()
	if seen.IsZero() {
		return errors.New("pleg has yet to be successful")
	}
	if ago := time.Since(seen); ago > g.cfg.RelistThreshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", ago, g.cfg.RelistThreshold)
	}
	return nil
}

// MarkDirty says that the pod may have changed, as it has when a caller's own
// calls to the runtime have returned. It never blocks. The pod is looked at at
// once; marks that come before that look begins are served by it together. The
// number is for Wait.
func (g *Generator) MarkDirty(uid observed.UID) observed.Seq { return g.in.markDirty(uid) }

// Wait returns the first observation of the pod that was begun after the number
// was drawn; an empty Pod when the runtime holds nothing for it. If there is none
// yet Wait has the pod looked at, ahead of all pods that nobody waits for. If
// that inspection fails, Wait returns its error. It blocks while there is neither,
// before Run too, until ctx ends. Once Run has returned it returns [ErrStopped].
func (g *Generator) Wait(ctx context.Context, uid observed.UID, after observed.Seq) (observed.Pod, error) {
	return g.cache.GetNewerThan(ctx, uid, after)
}

// Relist looks at everything now. It returns when the list, and the inspections
// of all that it found changed or that was marked before, are done. After a nil
// return the cache holds every pod that ran when Relist was called.
func (g *Generator) Relist(ctx context.Context) error {
	reply := g.in.askRelist()
	select {
	case err := <-reply:
		return err
	case <-g.done:
		return fmt.Errorf("relist: %w", ErrStopped)
	case <-ctx.Done():
		return fmt.Errorf("relist: %w", ctx.Err())
	}
}

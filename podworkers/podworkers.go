package podworkers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Observer is where a worker learns what the runtime holds. pleg's Generator
// satisfies it.
type Observer interface {
	// MarkDirty asks for a new look at the pod and returns a number drawn now. It
	// does not block.
	MarkDirty(observed.UID) observed.Seq
	// Wait returns the pod as seen by a look that began after the number was
	// drawn, or the error of that look.
	Wait(ctx context.Context, uid observed.UID, after observed.Seq) (observed.Pod, error)
}

// Syncer does the work on one pod. podsync's Syncer satisfies it; a virtual node
// or a simulator brings its own. Calls for one pod never overlap; calls for
// different pods do. ctx ends when the call serves a decision that is out of
// date, or when Run ends: return soon, another call follows if one is needed.
// An error with a method RetryAt() time.Time says when to try again.
type Syncer interface {
	// SyncPod brings the pod's containers up. done: the pod has ended for good,
	// as its restart policy or its deadline says, and is to be stopped.
	SyncPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod) (done bool, err error)
	// StopPod stops all containers and sandboxes of the pod and returns nil only
	// when nothing runs. It is called again if a look finds otherwise. pod is nil
	// for a pod that only the runtime knows. grace is in seconds; nil: the pod's
	// own rules.
	StopPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod, grace *int64) error
	// ReleasePod gives back volumes, cgroup and directories. It is not called for
	// a pod that only the runtime knows.
	ReleasePod(ctx context.Context, pod *corev1.Pod, seen observed.Pod) error
}

// Config has a useful zero value except for Syncer and Observer.
type Config struct {
	Syncer   Syncer   // required
	Observer Observer // required

	// Resync is the least time between a good sync and the next regular one; up
	// to half of it is added at random. Default 1m.
	Resync time.Duration
	// Backoff is the wait after an error that does not know its own time; up to
	// half of it is added at random. Default 10s.
	Backoff time.Duration
	// AutoResync makes the workers sync pods again by themselves. Without it
	// their UIDs come out of [Workers.Due] and somebody has to answer with an
	// update. Stops and releases are always retried by the workers themselves.
	AutoResync bool
	// NameSlot returns the name that only one pod at a time may run under, if the
	// pod is of that kind. Default: static pods, by namespace and name.
	NameSlot func(*corev1.Pod) (name string, ok bool)

	Log   logr.Logger // default discards
	Hooks Hooks       // default no-ops
}

// Hooks report work as it happens. They are called without a lock held, may ask
// the Workers back, and hold up the work while they run.
type Hooks struct {
	// PhaseChanged reports every change, in order. pod is namespace/name.
	PhaseChanged func(pod string, uid observed.UID, from, to Phase)
	// Started comes right before the first SyncPod of a life; waited is the time
	// since the update came in.
	Started func(pod *corev1.Pod, waited time.Duration)
	// Synced comes after every round, good or bad. Interrupted ones are left out.
	Synced func(Round)
}

// Round is one look and one call of the Syncer.
type Round struct {
	UID observed.UID
	Pod *corev1.Pod // nil for a pod that only the runtime knows
	// Op is create, update, sync, kill, or terminated for a release: the values of
	// operation_type in kubelet_pod_worker_duration_seconds.
	Op string
	// Took is the time since the oldest update that the round served came in.
	Took time.Duration
	Err  error // a *[LookError] if the Syncer was not called
}

// LookError says that a pod's state in the runtime could not be found out, so
// nothing was done for it.
type LookError struct {
	Pod string // namespace/name
	Err error
}

func (e *LookError) Error() string { return fmt.Sprintf("look at pod %s: %v", e.Pod, e.Err) }
func (e *LookError) Unwrap() error { return e.Err }

// Workers keeps one life per pod UID. Its methods may be called at any time, also
// before and after Run; work is done only while Run runs.
type Workers struct {
	cfg  Config
	due  chan []observed.UID
	wake chan struct{} // holds one; Run looks at the clock again
	wg   sync.WaitGroup

	mu struct {
		sync.Mutex
		run     context.Context // of Run; nil before
		ended   bool            // Run is over or ending: nothing new starts
		known   bool            // SyncKnownPods has run
		pods    map[observed.UID]*record
		slots   slots
		clock   clock
		ready   map[observed.UID]struct{} // due, not yet taken from Due
		news    []news                    // not yet told to Hooks.PhaseChanged
		telling bool                      // somebody tells them
	}
}

// record is one pod's life and what serves it. Workers.mu guards it.
type record struct {
	uid    observed.UID
	name   string // namespace/name
	slot   string // empty: the pod needs none
	life   life
	pod    *corev1.Pod   // newest; nil for a pod that only the runtime knows
	orphan *observed.Pod // set while pod is nil

	pending bool // an update was not looked at yet
	op      UpdateType
	start   time.Time // of the oldest such update
	waiting bool      // for slot
	working bool      // its goroutine runs
	cancel  context.CancelFunc
	doing   Phase        // what the call that cancel ends is for
	seq     observed.Seq // a look must be newer; 0: never asked for one
	done    []chan<- struct{}

	since, startedAt, syncedAt time.Time
	lastErr                    string
	due                        due
	syncAt                     time.Time // asked for by SyncAt; zero if not
}

type news struct {
	pod      string
	uid      observed.UID
	from, to Phase
}

// ErrRunTwice is what a second Run returns.
var ErrRunTwice = errors.New("podworkers: Run called twice")

// New checks cfg and returns Workers that have not started.
func New(cfg Config) (*Workers, error) {
	switch {
	case cfg.Syncer == nil:
		return nil, errors.New("podworkers: Config.Syncer is missing")
	case cfg.Observer == nil:
		return nil, errors.New("podworkers: Config.Observer is missing")
	case cfg.Resync < 0 || cfg.Backoff < 0:
		return nil, fmt.Errorf("podworkers: Resync %v and Backoff %v: want positive durations", cfg.Resync, cfg.Backoff)
	}
	if cfg.Resync == 0 {
		cfg.Resync = time.Minute
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 10 * time.Second
	}
	if cfg.NameSlot == nil {
		cfg.NameSlot = staticName
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.PhaseChanged == nil {
		cfg.Hooks.PhaseChanged = func(string, observed.UID, Phase, Phase) {}
	}
	if cfg.Hooks.Started == nil {
		cfg.Hooks.Started = func(*corev1.Pod, time.Duration) {}
	}
	if cfg.Hooks.Synced == nil {
		cfg.Hooks.Synced = func(Round) {}
	}
	w := &Workers{
		cfg:  cfg,
		due:  make(chan []observed.UID),
		wake: make(chan struct{}, 1),
	}
	w.mu.pods = make(map[observed.UID]*record)
	w.mu.slots = make(slots)
	w.mu.ready = make(map[observed.UID]struct{})
	return w, nil
}

// Run works until ctx ends. Then it interrupts the running calls, waits for them,
// and returns nil; pods are left as they are. It can be called once.
func (w *Workers) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	if w.mu.run != nil {
		w.mu.Unlock()
		return ErrRunTwice
	}
	w.mu.run = ctx
	for _, r := range w.mu.pods {
		w.spawn(r)
	}
	w.unlock()

	w.drive(ctx)

	w.mu.Lock()
	w.mu.ended = true
	w.unlock()
	w.wg.Wait()
	close(w.due)
	return nil
}

// Due gives the pods whose time for a sync or a retry has come, and those whose
// life has just ended, so that a reader wakes up to prune. A slow reader finds
// them merged: each UID once. What is received is the receiver's own. The channel
// is closed when Run returns, and empty with
// [Config.AutoResync].
func (w *Workers) Due() <-chan []observed.UID { return w.due }

// Phase returns where the pod is: [Unseen] or [Gone] for one that is not known.
func (w *Workers) Phase(uid observed.UID) Phase {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.mu.pods[uid]; ok {
		return r.life.phase
	}
	return w.unknown()
}

// State returns what is known and decided about the pod. For one that is not known
// ok is false, and the state has only its Phase.
func (w *Workers) State(uid observed.UID) (s State, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.mu.pods[uid]; ok {
		return r.state(), true
	}
	return State{Phase: w.unknown()}, false
}

// States returns the state of every known pod.
func (w *Workers) States() map[observed.UID]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states()
}

func (w *Workers) states() map[observed.UID]State {
	all := make(map[observed.UID]State, len(w.mu.pods))
	for uid, r := range w.mu.pods {
		all[uid] = r.state()
	}
	return all
}

func (w *Workers) unknown() Phase {
	if w.mu.known {
		return Gone
	}
	return Unseen
}

func (r *record) state() State {
	l := r.life
	return State{
		Phase: l.phase, Since: r.since,
		Pod: r.name, RuntimeOnly: l.orphan,
		Deleted: l.deleted, Evicted: l.evicted, Waiting: r.waiting, Restart: l.restart,
		Working: r.working || r.pending && !r.waiting,
		Grace:   l.grace, OwnGrace: l.grace > 0 && !l.explicit,
		StartedAt: r.startedAt, SyncedAt: r.syncedAt, LastError: r.lastErr, RetryAt: r.due.by,
	}
}

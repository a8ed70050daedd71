package syncloop

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podsource"
)

// SyncHandler is told what happened and decides what follows. The methods carry
// the kubelet's names. ctx ends when Run's does.
type SyncHandler interface {
	HandlePodAdditions(ctx context.Context, pods []*corev1.Pod)
	// HandlePodUpdates also brings graceful deletions: pods with a deletionTimestamp.
	HandlePodUpdates(ctx context.Context, pods []*corev1.Pod)
	HandlePodRemoves(ctx context.Context, pods []*corev1.Pod)
	// HandlePodReconcile brings pods of which only the status differs.
	HandlePodReconcile(ctx context.Context, pods []*corev1.Pod)
	// HandlePodSyncs names pods to look at again, each once. Some may not be
	// desired, or not be known at all.
	HandlePodSyncs(ctx context.Context, uids []observed.UID)
	// HandlePodCleanups compares everything with everything and puts right what
	// no news has told. It is called only while all sources have been heard.
	HandlePodCleanups(ctx context.Context) error
}

// ExitHandler is for a [SyncHandler] that also wants to know which container or
// sandbox ended. It is called after HandlePodSyncs for that pod.
type ExitHandler interface {
	HandleContainerDied(ctx context.Context, uid observed.UID, id observed.ContainerID)
}

// Config has a useful zero value except for Handler.
type Config struct {
	Handler SyncHandler // required; may be an [ExitHandler] too

	ConfigCh <-chan podsource.Update       // changes of desired pods; its end ends Run
	PlegCh   <-chan pleg.PodLifecycleEvent // what happened in the runtime
	SyncCh   <-chan []observed.UID         // pods whose time has come
	ProbeCh  <-chan observed.UID           // pods of which a probe result changed

	// Seen is called after each update of a source was handled; podsource's
	// MarkSeen.
	Seen func(source string)
	// SourcesReady reports whether every source has been heard. Default: yes.
	SourcesReady func() bool
	// RuntimeErrors says what is wrong with the runtime; nil: nothing. While it
	// says something the loop pauses.
	RuntimeErrors func() error

	// HousekeepingEvery is the pause between two clean-ups while there is news.
	// Default 2s.
	HousekeepingEvery time.Duration
	// QuietHousekeepingEvery is that pause while there is none. Default 30s.
	QuietHousekeepingEvery time.Duration
	// SyncFrequency is how often a pod is synced without news. The loop is
	// unhealthy when it did not turn for twice as long, or twice
	// QuietHousekeepingEvery if that is longer, at least 5m. Default 1m.
	SyncFrequency time.Duration

	Log   logr.Logger // default discards
	Hooks Hooks       // default no-ops
}

// Hooks report work as it happens, in the loop's goroutine.
type Hooks struct {
	Dispatched func(op podsource.Op, source string, pods int)
	Synced     func(cause string, pods int) // cause: pleg, sync or probe
	Housekept  func(took time.Duration, err error)
	Paused     func(err error, wait time.Duration)
}

// Loop is the hall.
type Loop struct {
	cfg   Config
	exits ExitHandler // nil if Handler is none

	turned atomic.Pointer[time.Time] // the last turn's start; nil before

	// The rest belongs to Run's goroutine.
	housekeeping *time.Timer
	next         time.Time // when housekeeping fires
	paused       string    // the runtime error that was logged last
}

// minHealthLimit is the least age of a turn that counts as trouble.
const minHealthLimit = 5 * time.Minute

// ErrConfigEnded is a Run that ended because its ConfigCh was closed.
var ErrConfigEnded = errors.New("syncloop: config channel closed")

// New checks cfg and returns a Loop that has not started.
func New(cfg Config) (*Loop, error) {
	if cfg.Handler == nil {
		return nil, errors.New("syncloop: Config.Handler is missing")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"HousekeepingEvery", &cfg.HousekeepingEvery, 2 * time.Second},
		{"QuietHousekeepingEvery", &cfg.QuietHousekeepingEvery, max(30*time.Second, cfg.HousekeepingEvery)},
		{"SyncFrequency", &cfg.SyncFrequency, time.Minute},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("syncloop: Config.%s is %v: want a positive duration", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if cfg.Seen == nil {
		cfg.Seen = func(string) {}
	}
	if cfg.SourcesReady == nil {
		cfg.SourcesReady = func() bool { return true }
	}
	if cfg.RuntimeErrors == nil {
		cfg.RuntimeErrors = func() error { return nil }
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	cfg.Hooks = cfg.Hooks.filled()
	l := &Loop{cfg: cfg}
	l.exits, _ = cfg.Handler.(ExitHandler)
	return l, nil
}

func (h Hooks) filled() Hooks {
	if h.Dispatched == nil {
		h.Dispatched = func(podsource.Op, string, int) {}
	}
	if h.Synced == nil {
		h.Synced = func(string, int) {}
	}
	if h.Housekept == nil {
		h.Housekept = func(time.Duration, error) {}
	}
	if h.Paused == nil {
		h.Paused = func(error, time.Duration) {}
	}
	return h
}

// Healthy returns an error when the loop did not turn for too long: a handler
// hangs, or Run is over. A pause counts as turning, and so does not having started.
func (l *Loop) Healthy() error {
	turned := l.turned.Load()
	if turned == nil {
		return nil
	}
	// A quiet loop turns for housekeeping alone.
	limit := max(2*l.cfg.SyncFrequency, 2*l.cfg.QuietHousekeepingEvery, minHealthLimit)
	if age := time.Since(*turned); age > limit {
		return fmt.Errorf("sync loop last turned %v ago; limit is %v", age.Round(time.Second), limit)
	}
	return nil
}

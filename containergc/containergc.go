package containergc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Lister tells what the runtime holds. Listing detail is enough.
type Lister interface {
	AllPods(ctx context.Context) ([]observed.Pod, error)
}

// Inspector is an optional ability of a [Lister]: to look at one pod without
// listing everything. Of last only the UID is needed.
type Inspector interface {
	InspectPod(ctx context.Context, last observed.Pod) (observed.Pod, error)
}

// Remover removes one thing from the runtime, with what belongs to it: a
// container with its log files, a sandbox after it was stopped. Removing what is
// gone already is success.
type Remover interface {
	RemoveContainer(ctx context.Context, c observed.Container) error
	RemoveSandbox(ctx context.Context, id observed.SandboxID) error
}

// Stopper is an optional ability of a [Remover]. A container in state Unknown may
// still run, so it is stopped first, and stays if that fails. Without a Stopper
// the removal is what stops it: CRI promises that a running container is killed.
type Stopper interface {
	StopContainer(ctx context.Context, c observed.Container) error
}

// Config needs a Lister and a Remover.
type Config struct {
	Lister  Lister
	Remover Remover
	// Removable is as in [Input]. It must be true for what its answer promises,
	// whenever it is asked.
	Removable func(observed.UID) bool
	// SourcesReady reports whether every source of pods has been heard. Nil:
	// yes, for agents whose Removable needs no sources.
	SourcesReady func() bool
	Policy       Policy        // zero: DefaultPolicy
	Every        time.Duration // between passes, default 1m
	// RemoveWithin is the deadline of one removal, default 2m.
	RemoveWithin time.Duration
	// Parallel is how many removals are under way at a time, default 2: the
	// runtime is there for the pods that run.
	Parallel int
	// LogDir has the pods' log directories, for example /var/log/pods. Empty:
	// none are removed.
	LogDir string
	// ContainerLogDir has the links to container logs, for example
	// /var/log/containers. Empty: none are removed.
	ContainerLogDir string
	Log             logr.Logger // default discards
	Hooks           Hooks       // default no-ops
}

// Hooks report work as it happens.
type Hooks struct {
	// Passed is called after each pass. An error is worth the node event
	// ContainerGCFailed.
	Passed func(Pass)
	// Removed is called for each pod of which something was removed, or may have
	// been by a call that failed. Who observes pods should look at it: without
	// events nothing else says that exited containers are gone.
	Removed func(observed.UID)
	// Dropped is called when there was no room for a request: the next pass
	// does its work.
	Dropped func(observed.UID)
}

// Pass is what one pass has removed.
type Pass struct {
	Took                                  time.Duration
	Containers, Sandboxes, LogDirs, Links int
	Err                                   error
}

// Collector removes what is left of containers and pods.
type Collector struct {
	cfg       Config
	inspector Inspector // nil if the Lister is none
	stopper   Stopper   // nil if the Remover is none

	pass  chan struct{} // has room for one token: who makes a pass puts it in
	queue queue
}

// New checks cfg and returns a Collector that has not started.
func New(cfg Config) (*Collector, error) {
	switch {
	case cfg.Lister == nil:
		return nil, errors.New("containergc: Config.Lister is missing")
	case cfg.Remover == nil:
		return nil, errors.New("containergc: Config.Remover is missing")
	case cfg.Policy.MinAge < 0:
		return nil, fmt.Errorf("containergc: Config.Policy.MinAge is %v, want zero or more", cfg.Policy.MinAge)
	case cfg.Every < 0 || cfg.RemoveWithin < 0 || cfg.Parallel < 0:
		return nil, errors.New("containergc: Config.Every, RemoveWithin and Parallel must not be negative")
	}
	for name, dir := range map[string]string{"LogDir": cfg.LogDir, "ContainerLogDir": cfg.ContainerLogDir} {
		if dir != "" && !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("containergc: Config.%s is %q, want an absolute path", name, dir)
		}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	cfg.Policy = cfg.Policy.orDefault()
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.RemoveWithin == 0 {
		cfg.RemoveWithin = 2 * time.Minute
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 2
	}
	c := &Collector{cfg: cfg, pass: make(chan struct{}, 1)}
	if c.cfg.Hooks.Removed == nil {
		c.cfg.Hooks.Removed = func(observed.UID) {}
	}
	c.inspector, _ = cfg.Lister.(Inspector)
	c.stopper, _ = cfg.Remover.(Stopper)
	c.queue.wake = make(chan struct{}, 1)
	return c, nil
}

// Run passes over the node once per Config.Every, the first time one period after
// the start: the list of everything is dear, and an agent that has just started
// has more urgent work. Requests are served at once. It returns nil when ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range c.cfg.Parallel {
		wg.Go(func() { c.serve(ctx) })
	}
	defer wg.Wait()
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := c.Collect(ctx); err != nil && ctx.Err() == nil {
				c.cfg.Log.Error(err, "Container garbage collection was not complete; it goes on at the next pass")
			}
		}
	}
}

// Collect makes one pass, after the one that is under way if there is one. Its
// steps are independent: the error joins what went wrong in each, shortened where
// it would be long.
func (c *Collector) Collect(ctx context.Context) error {
	select {
	case c.pass <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.pass }()
	start := time.Now()
	var p Pass
	p.Err = c.collect(ctx, &p)
	p.Took = time.Since(start)
	if c.cfg.Hooks.Passed != nil {
		c.cfg.Hooks.Passed(p)
	}
	return p.Err
}

func (c *Collector) collect(ctx context.Context, p *Pass) error {
	// Asked before the list: a source that is heard in between may bring the
	// pod whose containers the list shows.
	ready := c.sourcesReady()
	pods, err := c.cfg.Lister.AllPods(ctx)
	if err != nil {
		return fmt.Errorf("collect garbage: %w", err)
	}
	plan := Plan(Input{Now: time.Now(), Pods: pods, Policy: c.cfg.Policy, Removable: c.cfg.Removable, AllSourcesReady: ready})
	done := c.carryOut(ctx, plan)
	p.Containers, p.Sandboxes = done.containers, done.sandboxes
	errs := []error{done.err()}
	if ready {
		n, err := c.removeLogDirs(ctx, remaining(pods, done.gone))
		p.LogDirs = n
		errs = append(errs, err)
	}
	n, err := c.removeDeadLinks(pods)
	p.Links = n
	return errors.Join(append(errs, err)...)
}

func (c *Collector) sourcesReady() bool {
	return c.cfg.SourcesReady == nil || c.cfg.SourcesReady()
}

// remaining has the pods of which a container or a ready sandbox is left.
func remaining(pods []observed.Pod, gone map[observed.ContainerID]bool) map[observed.UID]bool {
	left := map[observed.UID]bool{}
	for _, pod := range pods {
		for _, ctr := range pod.Containers {
			if !gone[ctr.ID] {
				left[pod.UID] = true
			}
		}
		if pod.HasReadySandbox() {
			left[pod.UID] = true
		}
	}
	return left
}

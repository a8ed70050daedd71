package containergc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kubeletkit/kubeletkit/observed"
)

// maxErrors is how many errors of one step are spelled out. A runtime that is
// down fails twenty thousand removals in the same words.
const maxErrors = 8

// outcome is what became of a plan.
type outcome struct {
	mu         sync.Mutex
	containers int
	sandboxes  int
	gone       map[observed.ContainerID]bool
	stuck      map[observed.SandboxID]bool // a container in it could not be removed
	pods       map[observed.UID]bool       // those of which a removal was tried
	errs       []error
	failed     int
}

func (o *outcome) fail(err error) {
	if o.failed++; len(o.errs) < maxErrors {
		o.errs = append(o.errs, err)
	}
}

func (o *outcome) err() error {
	if more := o.failed - len(o.errs); more > 0 {
		return errors.Join(append(o.errs, fmt.Errorf("and %d more", more))...)
	}
	return errors.Join(o.errs...)
}

// carryOut removes containers, then sandboxes. A sandbox with a container that
// could not be removed stays: its removal would take the container along, logs
// and all.
func (c *Collector) carryOut(ctx context.Context, plan Removal) *outcome {
	o := &outcome{gone: map[observed.ContainerID]bool{}, stuck: map[observed.SandboxID]bool{}, pods: map[observed.UID]bool{}}
	inLanes(ctx, c.cfg.Parallel, plan.Containers, func(ctr Container) {
		err := c.removeContainer(ctx, ctr)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.pods[ctr.UID] = true
		if err != nil {
			o.stuck[ctr.Sandbox] = true
			o.fail(err)
			return
		}
		o.containers++
		o.gone[ctr.ID] = true
	})
	for _, ctr := range plan.Containers { // those that were not reached count too
		if !o.gone[ctr.ID] {
			o.stuck[ctr.Sandbox] = true
		}
	}
	inLanes(ctx, c.cfg.Parallel, plan.Sandboxes, func(s Sandbox) {
		o.mu.Lock()
		stuck := o.stuck[s.ID]
		o.mu.Unlock()
		if stuck {
			return
		}
		err := c.removeSandbox(ctx, s)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.pods[s.UID] = true
		if err != nil {
			o.fail(err)
			return
		}
		o.sandboxes++
	})
	for uid := range o.pods {
		c.cfg.Hooks.Removed(uid)
	}
	if err := ctx.Err(); err != nil {
		o.fail(err)
	}
	return o
}

// inLanes calls do for each item, n at a time, and returns when all calls have.
// No call is begun after ctx has ended.
func inLanes[T any](ctx context.Context, n int, items []T, do func(T)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := 0
	for range min(n, len(items)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(items) {
					return
				}
				do(items[i])
			}
		})
	}
	wg.Wait()
}

func (c *Collector) removeContainer(ctx context.Context, ctr Container) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RemoveWithin)
	defer cancel()
	if ctr.State == observed.Unknown && c.stopper != nil {
		if err := c.stopper.StopContainer(ctx, ctr.Container); err != nil {
			return fmt.Errorf("stop container %s of pod %s, which is in unknown state: %w", ctr.Name, ctr.Pod, err)
		}
	}
	if err := c.cfg.Remover.RemoveContainer(ctx, ctr.Container); err != nil {
		return fmt.Errorf("remove container %s of pod %s: %w", ctr.Name, ctr.Pod, err)
	}
	return nil
}

func (c *Collector) removeSandbox(ctx context.Context, s Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RemoveWithin)
	defer cancel()
	if err := c.cfg.Remover.RemoveSandbox(ctx, s.ID); err != nil {
		return fmt.Errorf("remove sandbox of pod %s: %w", s.Pod, err)
	}
	return nil
}

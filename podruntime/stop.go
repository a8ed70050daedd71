package podruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// leastGrace is what a container gets even when its grace period is used up, in
// seconds. It is the kubelet's floor.
const leastGrace = 2

// StopPod stops everything of the pod: its containers at the same time, then its
// sandboxes. It returns nil when nothing of what was seen runs any more. Sidecars
// (KEP-753) wait for the other containers and stop in reverse order, all within
// one grace period.
//
// pod may be nil for a pod that only the runtime knows; the containers carry
// their grace period themselves. grace, in seconds, replaces every other one.
// A preStop hook runs first, within the same grace period, and only once for each
// container: see preStop. The hooks of sidecars do not wait for their turn.
//
// When ctx ends, or the runtime goes away under a container's grace period, StopPod
// returns at once and leaves the sandboxes alone, since stopping those grants no
// grace; call it again, with a shorter grace if need be.
func (r *Runtime) StopPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod, grace *int64) error {
	if !seen.Exists() {
		return nil
	}
	var running []observed.Container
	for _, c := range seen.Containers {
		if c.State == observed.Running || c.State == observed.Unknown {
			running = append(running, c)
		}
	}
	turns := stopOrder(pod, running)
	errs := make([]error, len(running)+len(seen.Sandboxes))
	var wg sync.WaitGroup
	for i, c := range running {
		wg.Go(func() {
			defer close(turns[i].ended)
			errs[i] = r.stopContainer(ctx, pod, c, stop{seen: seen, grace: grace, after: turns[i].after})
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stop pod %s/%s: %w", seen.Namespace, seen.Name, err)
	}
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, criclient.ErrUnavailable) }) {
		return errors.Join(errs...)
	}
	for i, s := range seen.Sandboxes {
		wg.Go(func() {
			if err := r.cfg.CRI.StopPodSandbox(ctx, string(s.ID)); !gone(err) {
				errs[len(running)+i] = criclient.Wrap(fmt.Sprintf("stop sandbox %s of pod %s/%s", s.ID, seen.Namespace, seen.Name), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// turn is one container's place in the order of stopping.
type turn struct {
	after []<-chan struct{} // who has to end first
	ended chan struct{}
}

// stopOrder gives each running container its turn. Only sidecars wait. One that
// does not run holds nobody up (kubernetes issue 125880).
func stopOrder(pod *corev1.Pod, running []observed.Container) []turn {
	const first = -1
	place := make(map[string]int) // of the sidecars, in spec order
	if pod != nil {
		for i := range pod.Spec.InitContainers {
			if podspec.IsSidecar(&pod.Spec.InitContainers[i]) {
				place[pod.Spec.InitContainers[i].Name] = i
			}
		}
	}
	placeOf := func(name string) int {
		if i, ok := place[name]; ok {
			return i
		}
		return first
	}
	turns := make([]turn, len(running))
	for i := range turns {
		turns[i].ended = make(chan struct{})
	}
	for i, c := range running {
		mine := placeOf(c.Name)
		if mine == first {
			continue
		}
		for j, other := range running {
			theirs := placeOf(other.Name)
			if theirs > mine || theirs == first && waitedFor(pod, other.Name) {
				turns[i].after = append(turns[i].after, turns[j].ended)
			}
		}
	}
	return turns
}

// waitedFor reports whether sidecars serve the container: they outlive regular
// containers, but wait for no init container and no ephemeral one.
func waitedFor(pod *corev1.Pod, name string) bool {
	_, kind, ok := podspec.Find(pod, name)
	return ok && kind == podspec.Regular
}

// stop says how to stop one container.
type stop struct {
	seen    observed.Pod // whose container it is
	reason  KillReason
	message string // of the Killing event; empty is the usual one
	grace   *int64 // replaces the container's own
	after   []<-chan struct{}
}

func (r *Runtime) stopContainer(ctx context.Context, pod *corev1.Pod, c observed.Container, s stop) error {
	if s.message == "" {
		s.message = "Stopping container " + c.Name
	}
	r.event(pod, c.Name, corev1.EventTypeNormal, "Killing", s.message)
	grace := graceOf(pod, c, s.reason)
	if s.grace != nil {
		grace = *s.grace
	}
	if begin := time.Now(); grace > 0 {
		// One budget for the hook, the turn and the stop (kubernetes issue 115817).
		r.preStop(ctx, pod, c, s.seen, seconds(grace))
		wait(ctx, s.after, seconds(grace)-time.Since(begin))
		grace -= int64(time.Since(begin) / time.Second)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stop container %s: %w", c.Name, err)
	}
	err := r.cfg.CRI.StopContainer(ctx, string(c.ID), max(grace, leastGrace))
	if gone(err) {
		r.preStops.again(c.ID)
		return nil
	}
	return criclient.Wrap(fmt.Sprintf("stop container %s (%s)", c.Name, c.ID), err)
}

// wait waits for all of after, at most until the limit.
func wait(ctx context.Context, after []<-chan struct{}, limit time.Duration) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for _, ended := range after {
		select {
		case <-ended:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// seconds does not overflow, whatever a pod spec or an annotation says.
func seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(n, most)) * time.Second
}

// graceOf is how many seconds the container gets by itself. A probe's own grace
// counts only for a kill by that probe, and never against a deletion's.
func graceOf(pod *corev1.Pod, c observed.Container, reason KillReason) int64 {
	if pod == nil {
		for _, key := range []string{observed.AnnotationDeletionGracePeriod, observed.AnnotationTerminationGracePeriod} {
			if n, err := strconv.ParseInt(c.Annotations[key], 10, 64); err == nil {
				return max(n, 0)
			}
		}
		return leastGrace
	}
	grace := podspec.TerminationGrace(pod)
	spec, _, ok := podspec.Find(pod, c.Name)
	if !ok || pod.DeletionGracePeriodSeconds != nil || pod.Spec.TerminationGracePeriodSeconds == nil {
		return grace
	}
	probe := spec.LivenessProbe
	switch reason {
	case KillLivenessFailed:
	case KillStartupFailed:
		probe = spec.StartupProbe
	default:
		return grace
	}
	if probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return *probe.TerminationGracePeriodSeconds
	}
	return grace
}

// gone reports whether the call succeeded, or met something that no longer is.
func gone(err error) bool {
	return err == nil || errors.Is(criclient.Wrap("", err), criclient.ErrNotFound)
}

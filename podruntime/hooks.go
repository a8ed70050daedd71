package podruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// ReasonPostStartError is the waiting reason of a container that ran and was
// stopped, because its postStart hook did not succeed.
const ReasonPostStartError = "PostStartHookError"

// errNoHooks is what a hook comes to where nobody can run one.
var errNoHooks = errors.New("this agent runs no lifecycle hooks; set Config.Lifecycle")

func noHooks(context.Context, lifecycle.Call) (string, error) { return "", errNoHooks }

// postStart runs the hook of a container that has just started. It is synchronous,
// as the API has it: later containers wait. One that does not succeed stops the
// container.
//
// When ctx ends, so does the hook, and the container is left as it is: either the
// pod is stopped next, or this agent ends and the container goes on without it.
func (r *Runtime) postStart(ctx context.Context, s starting, id string) *StartFailure {
	if s.c.Lifecycle == nil || s.c.Lifecycle.PostStart == nil {
		return nil
	}
	output, err := r.cfg.Lifecycle(ctx, lifecycle.Call{
		Pod: s.pod, Container: s.c, ID: observed.ContainerID(id), PodIP: first(s.sandbox.IPs), Handler: s.c.Lifecycle.PostStart,
	})
	if err == nil {
		return nil
	}
	failure := &StartFailure{
		Reason: ReasonPostStartError, Message: hookMessage(err, output),
		RetryAt: time.Now().Add(retryAfter), Err: fmt.Errorf("postStart of container %s: %w", s.c.Name, err),
	}
	if ctx.Err() != nil {
		return failure
	}
	r.event(s.pod, s.c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
	r.cfg.Hooks.StartFailed(s.pod, s.kind, s.c.Name, failure.Reason)
	running := observed.Container{ID: observed.ContainerID(id), Name: s.c.Name, Sandbox: s.sandbox.ID, State: observed.Running}
	seen := s.seen
	seen.UID, seen.Sandboxes = observed.UID(s.pod.UID), []observed.Sandbox{{ID: s.sandbox.ID, Ready: true, IPs: s.sandbox.IPs}}
	if err := r.stopContainer(ctx, s.pod, running, stop{seen: seen, message: "FailedPostStartHook"}); err != nil {
		failure.Err = errors.Join(failure.Err, err)
	}
	return failure
}

// hookMessage shows the end of what a command wrote. It goes into the container's
// status, which only those may read who may run commands in the pod anyway.
func hookMessage(err error, output string) string {
	const most = 1 << 10
	output = strings.ToValidUTF8(output[max(0, len(output)-most):], "")
	if output = strings.TrimSpace(output); output == "" {
		return err.Error()
	}
	return err.Error() + ": " + output
}

// preStop runs the hook of a container that is about to be stopped, until the
// deadline at most. Whatever comes of it, the stop goes on.
//
// It is not begun twice for one container by this agent: a stop that is asked for
// again, since the first was cut short by a shorter grace period or has failed,
// goes on where the first one was. Only if the runtime was not there to run it, or
// after a restart of the agent, the hook is run again.
func (r *Runtime) preStop(ctx context.Context, pod *corev1.Pod, c observed.Container, seen observed.Pod, grace time.Duration) {
	spec := stoppedSpec(pod, c)
	if spec.Lifecycle == nil || spec.Lifecycle.PreStop == nil || !r.preStops.begin(seen.UID, c.ID) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_, err := r.cfg.Lifecycle(limited, lifecycle.Call{
		Pod: pod, Container: spec, ID: c.ID, PodIP: first(seen.IPs()), Handler: spec.Lifecycle.PreStop,
	})
	if err == nil {
		return
	}
	if errors.Is(err, criclient.ErrUnavailable) {
		r.preStops.again(c.ID)
	}
	r.cfg.Log.Info("preStop hook did not succeed", "pod", seen.Namespace+"/"+seen.Name, "podUID", string(seen.UID),
		"container", c.Name, "containerID", string(c.ID), "err", err.Error())
	switch {
	case ctx.Err() != nil: // who ended it knows
	case limited.Err() != nil, errors.Is(err, context.DeadlineExceeded): // the runtime's watch may be ahead
		r.event(pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook",
			fmt.Sprintf("PreStopHook failed: it had not ended after the grace period of %v", grace))
	default:
		r.event(pod, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// stoppedSpec is what is known of a container that is to be stopped: its spec, or
// without one what its annotations tell.
func stoppedSpec(pod *corev1.Pod, c observed.Container) *corev1.Container {
	if pod != nil {
		if spec, _, ok := podspec.Find(pod, c.Name); ok {
			return spec
		}
	}
	spec := &corev1.Container{Name: c.Name}
	// What cannot be read was written by somebody else and is as good as nothing.
	var handler *corev1.LifecycleHandler
	if json.Unmarshal([]byte(c.Annotations[observed.AnnotationPreStopHandler]), &handler) == nil && handler != nil {
		spec.Lifecycle = &corev1.Lifecycle{PreStop: handler}
	}
	if json.Unmarshal([]byte(c.Annotations[observed.AnnotationContainerPorts]), &spec.Ports) != nil {
		spec.Ports = nil
	}
	return spec
}

// preStops remembers for which containers the preStop hook has been begun.
type preStops struct {
	mu struct {
		sync.Mutex
		begun map[observed.ContainerID]observed.UID
	}
}

func (p *preStops) begin(uid observed.UID, id observed.ContainerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mu.begun[id]; ok {
		return false
	}
	if p.mu.begun == nil {
		p.mu.begun = make(map[observed.ContainerID]observed.UID)
	}
	p.mu.begun[id] = uid
	return true
}

// again lets the hook be run once more, or drops a container that has ended.
func (p *preStops) again(id observed.ContainerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.begun, id)
}

func (p *preStops) forget(uid observed.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, of := range p.mu.begun {
		if of == uid {
			delete(p.mu.begun, id)
		}
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// How often the runtime is asked how it does, and for how long its silence is
// overlooked. The last is the kubelet's. A runtime that is well is asked half as
// often as the kubelet does, since every question wakes two processes; one that is
// away is asked more often, so that pods go on soon after it is back.
const (
	statusEvery       = 10 * time.Second
	statusEveryWhenAt = 500 * time.Millisecond
	statusTimeout     = 10 * time.Second
	downAfter         = 30 * time.Second
)

// statusRuntime is what runtimeWatch asks.
type statusRuntime interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// runtimeWatch knows whether the runtime works.
type runtimeWatch struct {
	runtime statusRuntime
	ready   chan struct{} // closed once the runtime has said that it is ready
	once    sync.Once
	log     logr.Logger

	mu struct {
		sync.Mutex
		name    string
		last    time.Time // of the last good answer
		runtime error     // why it is not ready
		network error
		can     observed.RuntimeFeatures
		told    string // what the log has: a problem, or allWell
	}
}

func newRuntimeWatch(rt statusRuntime, log logr.Logger) *runtimeWatch {
	w := &runtimeWatch{runtime: rt, ready: make(chan struct{}), log: log}
	w.mu.runtime = errors.New("container runtime status check may not have completed yet")
	w.mu.network = errors.New("network state is not known yet")
	return w
}

// Run asks until ctx ends.
func (w *runtimeWatch) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		every := statusEvery
		if !w.ask(ctx) {
			every = statusEveryWhenAt
		}
		timer.Reset(every)
	}
}

const allWell = "ready"

// ask returns whether all is well.
func (w *runtimeWatch) ask(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	name, runtimeErr, networkErr, can, err := w.look(asking)
	if ctx.Err() != nil {
		return false
	}
	w.mu.Lock()
	if err == nil {
		w.mu.name, w.mu.last, w.mu.runtime, w.mu.network, w.mu.can = name, time.Now(), runtimeErr, networkErr, can
	}
	problem := allWell
	if p := errors.Join(err, runtimeErr, networkErr); p != nil {
		problem = p.Error()
	}
	news := problem != w.mu.told
	w.mu.told = problem
	w.mu.Unlock()
	switch {
	case news && problem == allWell:
		w.log.Info("container runtime is ready", "runtime", name)
	case news:
		w.log.Info("container runtime is not ready", "reason", problem)
	}
	if err == nil && runtimeErr == nil {
		w.once.Do(func() { close(w.ready) })
	}
	return problem == allWell
}

func (w *runtimeWatch) look(ctx context.Context) (name string, runtimeErr, networkErr error, can observed.RuntimeFeatures, err error) {
	if name = w.Name(); name == "" {
		v, err := w.runtime.Version(ctx, "0.1.0")
		if errors.Is(err, criclient.ErrUnimplemented) {
			err = fmt.Errorf("the runtime does not speak CRI v1 (containerd 1.6 or newer and CRI-O 1.20 or newer do; is its cri plugin disabled?): %w", err)
		}
		if err != nil {
			return "", nil, nil, can, err
		}
		name = v.GetRuntimeName()
	}
	resp, err := w.runtime.Status(ctx, false)
	if err != nil {
		return "", nil, nil, can, err
	}
	conditions := map[string]*runtimeapi.RuntimeCondition{}
	for _, c := range resp.GetStatus().GetConditions() {
		conditions[c.GetType()] = c
	}
	return name, conditionError(conditions, runtimeapi.RuntimeReady), conditionError(conditions, runtimeapi.NetworkReady), criclient.Features(resp), nil
}

func conditionError(all map[string]*runtimeapi.RuntimeCondition, kind string) error {
	c := all[kind]
	switch {
	case c == nil:
		return fmt.Errorf("container runtime did not report %s", kind)
	case !c.GetStatus():
		return fmt.Errorf("%s is false, reason %s: %s", kind, c.GetReason(), c.GetMessage())
	}
	return nil
}

// Err says why no pod can be worked on; nil when all is well. A missing network
// is no reason: pods on the host network do not need it.
func (w *runtimeWatch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.runtime == nil && time.Since(w.mu.last) > downAfter {
		return errors.New("container runtime is down")
	}
	return w.mu.runtime
}

// NetworkReady says why sandboxes can't get a network.
func (w *runtimeWatch) NetworkReady() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.network
}

// Name is what the runtime calls itself, and the scheme of container IDs. It is
// empty before the first answer.
func (w *runtimeWatch) Name() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.name
}

// Features are what the runtime said it can do; none before its first answer.
func (w *runtimeWatch) Features() observed.RuntimeFeatures {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.can
}

// Handler gives the handler of the pod's RuntimeClass, and what it can do. Without
// an API server there are no RuntimeClass objects: the class is the handler's name.
// A runtime that does not tell which handlers it has refuses an unknown one itself.
func (w *runtimeWatch) Handler(pod *corev1.Pod) (string, observed.HandlerFeatures, error) {
	name, all := "", w.Features()
	if class := pod.Spec.RuntimeClassName; class != nil {
		name = *class
	}
	if _, known := all.Handlers[name]; !known && name != "" && len(all.Handlers) > 0 {
		return "", observed.HandlerFeatures{}, fmt.Errorf("runtime class %q: the runtime has no handler of this name, only %s",
			name, strings.Trim(fmt.Sprintf("%q", slices.Sorted(maps.Keys(all.Handlers))), "[]"))
	}
	return name, all.Handler(name), nil
}

package criclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Runtime is what [Observer] needs from a CRI runtime. [Client] has it, and so has
// every RuntimeService of k8s.io/cri-api.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ContainerStatus(ctx context.Context, containerID string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// ObserverConfig has a useful zero value except for Runtime.
type ObserverConfig struct {
	Runtime Runtime     // required
	Log     logr.Logger // default discards
}

// Observer turns a runtime's answers into observed values. It keeps nothing and
// may be used by any number of goroutines.
//
// What belongs to a pod says so in its label io.kubernetes.pod.uid. Sandboxes and
// containers without that label are somebody else's and are left out, and so is
// what has no ID.
type Observer struct {
	rt  Runtime
	log logr.Logger
}

// NewObserver checks cfg and returns an Observer. It asks the runtime nothing.
func NewObserver(cfg ObserverConfig) (*Observer, error) {
	if cfg.Runtime == nil {
		return nil, errors.New("criclient: an observer needs a Runtime")
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	return &Observer{rt: cfg.Runtime, log: cfg.Log}, nil
}

// RunningPods returns the pods with a ready sandbox or a running container, and
// only these of their parts, in listing detail. The runtime is asked by state, so
// the cost does not grow with what has exited. Pods are ordered by UID. Where the
// ready sandboxes are too large for any list, those without a container are left
// out; see listState.
func (o *Observer) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	containers, err := o.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, Wrap("look for running containers", err)
	}
	sandboxes, err := o.listState(ctx, runtimeapi.PodSandboxState_SANDBOX_READY, containers)
	if err != nil {
		return nil, Wrap("look for ready sandboxes", err)
	}
	// A runtime that ignores the filter must not make exited ones run.
	containers = only(containers, func(c *runtimeapi.Container) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
	sandboxes = only(sandboxes, func(s *runtimeapi.PodSandbox) bool {
		return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	})
	return group(sandboxes, containers), nil
}

// AllPods returns all that the runtime holds for pods, in listing detail, ordered
// by UID. It costs what exists, and is for the slow pace of container GC.
func (o *Observer) AllPods(ctx context.Context) ([]observed.Pod, error) {
	containers, err := o.rt.ListContainers(ctx, nil)
	if err != nil {
		return nil, Wrap("look for all containers", err)
	}
	sandboxes, err := o.rt.ListPodSandbox(ctx, nil)
	if errors.Is(Wrap("", err), ErrResourceExhausted) {
		var parts merged[*runtimeapi.PodSandbox]
		for _, state := range sandboxStates {
			var part []*runtimeapi.PodSandbox
			if part, err = o.listState(ctx, state, containers); err != nil {
				break
			}
			parts.add(part)
		}
		sandboxes = parts.all
	}
	if err != nil {
		return nil, Wrap("look for all sandboxes", err)
	}
	return group(sandboxes, containers), nil
}

// listState returns the sandboxes in a state. CRI can't divide that list, and
// with large annotations on many pods it is too large for a message, for good:
// nothing could be looked at any more, nor be taken away to make it smaller
// (kubernetes/kubernetes#63858). Then those that have a container are asked for
// one by one. What is missed is a sandbox in which nothing is; whoever knows its
// pod finds it there, since [Observer.InspectPod] asks for one pod.
func (o *Observer) listState(ctx context.Context, state runtimeapi.PodSandboxState, containers []*runtimeapi.Container) ([]*runtimeapi.PodSandbox, error) {
	is := &runtimeapi.PodSandboxStateValue{State: state}
	all, err := o.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: is})
	if !errors.Is(Wrap("", err), ErrResourceExhausted) {
		return all, err
	}
	o.log.V(1).Info("list of pod sandboxes is too large for one message; asking for each by its ID", "state", state.String(), "err", err.Error())
	asked := map[string]bool{}
	for _, c := range containers {
		id := c.GetPodSandboxId()
		if id == "" || asked[id] {
			continue
		}
		asked[id] = true
		one, err := o.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{Id: id, State: is})
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// shownInstances is how many instances of a container the Kubernetes API has room
// for: its state and its last state.
const shownInstances = 2

// InspectPod returns one pod in full detail. last is what was known of it before;
// only its UID is needed. The rest saves calls and guards against forgetting:
//
//   - A container known to have exited is not asked again. One that has exited
//     before the last two of its name is not asked at all and stays in listing
//     detail, so that a first look does not cost what has piled up.
//   - What was in last and is in no list now is asked for by its ID, and only a
//     definite [ErrNotFound] makes it gone. An empty list is no proof: runtimes
//     have given one right after a restart (rancher/rke2#3723).
//   - The addresses of a pod whose sandboxes have all ended stay on them, so that
//     a finished pod keeps its IP in the API, as with the kubelet.
//
// A pod of which nothing is left comes back empty, without an error.
func (o *Observer) InspectPod(ctx context.Context, last observed.Pod) (observed.Pod, error) {
	if last.UID == "" {
		return observed.Pod{}, errors.New("inspect pod: it has no UID")
	}
	pod, err := o.listPod(ctx, last)
	if err == nil {
		pod.Sandboxes, err = o.inspectSandboxes(ctx, pod.Sandboxes, last.Sandboxes)
	}
	if err == nil {
		pod.Containers, err = o.inspectContainers(ctx, pod.Containers, last.Containers)
	}
	if err != nil {
		who := string(last.UID)
		if last.Name != "" {
			who = last.Namespace + "/" + last.Name + ", UID " + who
		}
		return observed.Pod{}, fmt.Errorf("inspect pod %s: %w", who, err)
	}
	keepAddresses(&pod, last)
	pod.Sort()
	return pod, nil
}

// listPod returns the pod in listing detail.
func (o *Observer) listPod(ctx context.Context, last observed.Pod) (observed.Pod, error) {
	own := map[string]string{observed.LabelPodUID: string(last.UID)}
	containers, err := o.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: own})
	if err != nil {
		return observed.Pod{}, Wrap("look for its containers", err)
	}
	sandboxes, err := o.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: own})
	if err != nil {
		return observed.Pod{}, Wrap("look for its sandboxes", err)
	}
	pod := observed.Pod{UID: last.UID, Namespace: last.Namespace, Name: last.Name}
	for _, found := range group(sandboxes, containers) {
		if found.UID == last.UID { // the runtime may not know label selectors
			pod = found
		}
	}
	return pod, nil
}

func (o *Observer) inspectSandboxes(ctx context.Context, listed, last []observed.Sandbox) ([]observed.Sandbox, error) {
	here, known := byID(listed, sandboxID), byID(last, sandboxID)
	var all []observed.Sandbox
	for _, s := range union(listed, here, last, sandboxID) {
		_, isHere := here[s.ID]
		was, isKnown := known[s.ID]
		// A sandbox that has ended does not change any more.
		if isHere && isKnown && !s.Ready && !was.Ready && was.NetworkReported {
			all = append(all, was)
			continue
		}
		resp, err := o.rt.PodSandboxStatus(ctx, string(s.ID), false)
		switch err = named("ask status of pod sandbox", string(s.ID), err); {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case resp.GetStatus() == nil:
			return nil, malformed("ask status of pod sandbox", string(s.ID), "no status")
		}
		all = append(all, sandboxFromStatus(s, resp.GetStatus(), o.log))
	}
	return all, nil
}

func (o *Observer) inspectContainers(ctx context.Context, listed, last []observed.Container) ([]observed.Container, error) {
	here, known := byID(listed, containerID), byID(last, containerID)
	newestFirst := observed.Pod{Containers: union(listed, here, last, containerID)}
	newestFirst.Sort()
	instances := map[string]int{}
	var all []observed.Container
	for _, c := range newestFirst.Containers {
		_, isHere := here[c.ID]
		was, isKnown := known[c.ID]
		instances[c.Name]++
		if c.State == observed.Exited {
			// A finish time comes from a status only, never from a listing.
			if isHere && isKnown && was.State == observed.Exited && !was.FinishedAt.IsZero() {
				all = append(all, was)
				continue
			}
			if instances[c.Name] > shownInstances {
				if isHere {
					all = append(all, c)
				}
				continue
			}
		}
		resp, err := o.rt.ContainerStatus(ctx, string(c.ID), false)
		switch err = named("ask status of container", string(c.ID), err); {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case resp.GetStatus() == nil:
			return nil, malformed("ask status of container", string(c.ID), "no status")
		}
		c = containerFromStatus(c, resp.GetStatus())
		if c.State == observed.Exited {
			c.Message = exitMessage(c, resp.GetStatus().GetMounts())
		}
		all = append(all, c)
	}
	return all, nil
}

// named turns an error and names what was asked, unless the runtime is a [Client],
// which has done both.
func named(verb, id string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	return wrap(verb, id, "", err)
}

// keepAddresses gives the pod's ended sandboxes the addresses they had, when no
// sandbox is ready and the runtime does not tell any address any more.
func keepAddresses(pod *observed.Pod, last observed.Pod) {
	for _, s := range pod.Sandboxes {
		if s.Ready || len(s.IPs) > 0 {
			return
		}
	}
	known := byID(last.Sandboxes, sandboxID)
	for i, s := range pod.Sandboxes {
		pod.Sandboxes[i].IPs = known[s.ID].IPs
	}
}

func sandboxID(s observed.Sandbox) observed.SandboxID       { return s.ID }
func containerID(c observed.Container) observed.ContainerID { return c.ID }

func byID[T any, ID comparable](items []T, id func(T) ID) map[ID]T {
	m := make(map[ID]T, len(items))
	for _, item := range items {
		m[id(item)] = item
	}
	return m
}

// union returns what is listed, then what only last has.
func union[T any, ID comparable](listed []T, here map[ID]T, last []T, id func(T) ID) []T {
	all := slices.Clone(listed)
	for _, item := range last {
		if _, ok := here[id(item)]; !ok {
			all = append(all, item)
		}
	}
	return all
}

// only copies: the slice may be the runtime's own.
func only[T any](items []T, keep func(T) bool) []T {
	var kept []T
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

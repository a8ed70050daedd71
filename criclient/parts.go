package criclient

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A list too large for one message is taken in parts, by what CRI's filters can
// tell apart. Without that a node with enough dead containers can neither be
// looked at nor cleaned up (kubernetes/kubernetes#63858). A part that fails fails
// the whole list.

// Parts are asked in the order in which a container or sandbox moves through its
// states. One that moves in between is met twice, and its later state counts; in
// another order it could be missed. A container the runtime lost track of can
// only become exited.
var (
	containerStates = [...]runtimeapi.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING,
		runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		runtimeapi.ContainerState_CONTAINER_EXITED,
	}
	sandboxStates = [...]runtimeapi.PodSandboxState{
		runtimeapi.PodSandboxState_SANDBOX_READY,
		runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	}
)

// ListPodSandbox lists the sandboxes that filter matches; nil matches all. A list
// that is too large comes by state; CRI's filters can't divide it further.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	all, err := c.fetchSandboxes(ctx, filter)
	if !errors.Is(err, ErrResourceExhausted) || filter.GetId() != "" || filter.GetState() != nil {
		return all, err
	}
	c.cfg.Log.V(1).Info("list of pod sandboxes is too large for one message; asking by state", "err", err.Error())
	parts := merged[*runtimeapi.PodSandbox]{}
	for _, state := range sandboxStates {
		part, err := c.fetchSandboxes(ctx, &runtimeapi.PodSandboxFilter{
			State:         &runtimeapi.PodSandboxStateValue{State: state},
			LabelSelector: filter.GetLabelSelector(),
		})
		if err != nil {
			return nil, fmt.Errorf("in parts, those %v: %w", state, err)
		}
		parts.add(part)
	}
	return parts.all, nil
}

// ListContainers lists the containers that filter matches; nil matches all. A
// list that is too large comes by state, and what is still too large by sandbox.
// That finds no container whose sandbox the runtime does not list; a CRI runtime
// has none, since RemovePodSandbox takes the containers along.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	all, err := c.fetchContainers(ctx, filter)
	switch {
	case !errors.Is(err, ErrResourceExhausted) || filter.GetId() != "":
		return all, err
	case filter.GetState() == nil:
		c.cfg.Log.V(1).Info("list of containers is too large for one message; asking by state", "err", err.Error())
		return c.containersByState(ctx, filter)
	case filter.GetPodSandboxId() == "":
		c.cfg.Log.V(1).Info("list of containers of one state is too large for one message; asking by sandbox",
			"state", filter.GetState().GetState().String(), "err", err.Error())
		return bySandbox(ctx, c, func(ctx context.Context, id string) ([]*runtimeapi.Container, error) {
			return c.fetchContainers(ctx, &runtimeapi.ContainerFilter{
				State: filter.GetState(), PodSandboxId: id, LabelSelector: filter.GetLabelSelector(),
			})
		})
	default:
		return nil, err
	}
}

func (c *Client) containersByState(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	parts := merged[*runtimeapi.Container]{}
	for _, state := range containerStates {
		part, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: state},
			PodSandboxId:  filter.GetPodSandboxId(),
			LabelSelector: filter.GetLabelSelector(),
		})
		if err != nil {
			return nil, fmt.Errorf("in parts, those %v: %w", state, err)
		}
		parts.add(part)
	}
	return parts.all, nil
}

// ListContainerStats returns the use of the running containers that filter
// matches; nil matches all. A list that is too large comes by sandbox.
func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	all, err := c.fetchContainerStats(ctx, filter)
	if !errors.Is(err, ErrResourceExhausted) || filter.GetId() != "" || filter.GetPodSandboxId() != "" {
		return all, err
	}
	return bySandbox(ctx, c, func(ctx context.Context, id string) ([]*runtimeapi.ContainerStats, error) {
		return c.fetchContainerStats(ctx, &runtimeapi.ContainerStatsFilter{PodSandboxId: id, LabelSelector: filter.GetLabelSelector()})
	})
}

// ListPodSandboxStats returns the use of the running pods that filter matches;
// nil matches all. A list that is too large comes one by one.
func (c *Client) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	all, err := c.fetchSandboxStats(ctx, filter)
	if !errors.Is(err, ErrResourceExhausted) || filter.GetId() != "" {
		return all, err
	}
	return bySandbox(ctx, c, func(ctx context.Context, id string) ([]*runtimeapi.PodSandboxStats, error) {
		return c.fetchSandboxStats(ctx, &runtimeapi.PodSandboxStatsFilter{Id: id, LabelSelector: filter.GetLabelSelector()})
	})
}

func bySandbox[T any](ctx context.Context, c *Client, part func(context.Context, string) ([]T, error)) ([]T, error) {
	sandboxes, err := c.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("find the sandboxes to ask one by one: %w", err)
	}
	var all []T
	for _, sandbox := range sandboxes {
		some, err := part(ctx, sandbox.GetId())
		if errors.Is(err, ErrNotFound) {
			continue // removed since, and its containers with it
		}
		if err != nil {
			return nil, fmt.Errorf("in parts, those of sandbox %s: %w", sandbox.GetId(), err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// merged is the union of parts in which one ID may come again; the last counts.
type merged[T interface{ GetId() string }] struct {
	all []T
	at  map[string]int
}

func (m *merged[T]) add(part []T) {
	if m.at == nil {
		m.at = make(map[string]int, len(part))
	}
	for _, item := range part {
		if i, again := m.at[item.GetId()]; again {
			m.all[i] = item
			continue
		}
		m.at[item.GetId()] = len(m.all)
		m.all = append(m.all, item)
	}
}

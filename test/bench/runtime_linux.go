package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// runtimeOf asks one containerd what is in it.
type runtimeOf struct{ cri.RuntimeServiceClient }

// running lists the containers that run, of one pod or with "" of all.
func (r runtimeOf) running(ctx context.Context, pod string) ([]*cri.Container, error) {
	filter := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	if pod != "" {
		filter.LabelSelector = map[string]string{observed.LabelPodUID: pod}
	}
	list, err := r.ListContainers(ctx, &cri.ListContainersRequest{Filter: filter})
	return list.GetContainers(), err
}

// startedAt is the runtime's own word on when a container had started.
func (r runtimeOf) startedAt(ctx context.Context, id string) (time.Time, error) {
	answer, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	return time.Unix(0, answer.GetStatus().GetStartedAt()), err
}

// waitRunning waits until n containers run, and returns when the last of them had
// started.
func (r runtimeOf) waitRunning(ctx context.Context, n int) (last time.Time, err error) {
	var found []*cri.Container
	err = wait(ctx, 10*time.Minute, 25*time.Millisecond, func() (bool, error) {
		found, err = r.running(ctx, "")
		return len(found) >= n, err
	})
	if err != nil {
		return last, fmt.Errorf("%d of %d containers run: %w", len(found), n, err)
	}
	newest := found[0]
	for _, c := range found { // the list has only the creation time
		if c.CreatedAt > newest.CreatedAt {
			newest = c
		}
	}
	// One created shortly before may have started last.
	for _, c := range found {
		if newest.CreatedAt-c.CreatedAt > int64(10*time.Second) {
			continue
		}
		at, err := r.startedAt(ctx, c.Id)
		if err != nil {
			return last, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

// sandboxes counts those that are ready, and all.
func (r runtimeOf) sandboxes(ctx context.Context) (ready, all int, err error) {
	list, err := r.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	for _, s := range list.GetItems() {
		if s.State == cri.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	return ready, len(list.GetItems()), err
}

// request is what containerd tells about how a container or sandbox was asked for.
type request[T any] struct {
	Pid    int `json:"pid"`
	Config *T  `json:"config"`
}

func (r runtimeOf) container(ctx context.Context, id string) (request[cri.ContainerConfig], error) {
	answer, err := r.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return request[cri.ContainerConfig]{}, err
	}
	return read[cri.ContainerConfig](answer.Info)
}

func (r runtimeOf) sandbox(ctx context.Context, id string) (request[cri.PodSandboxConfig], error) {
	answer, err := r.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return request[cri.PodSandboxConfig]{}, err
	}
	return read[cri.PodSandboxConfig](answer.Info)
}

func read[T any](info map[string]string) (request[T], error) {
	var q request[T]
	if err := json.Unmarshal([]byte(info["info"]), &q); err != nil {
		return q, fmt.Errorf("read what containerd tells of a request: %w", err)
	}
	if q.Config == nil {
		return q, fmt.Errorf("containerd does not tell how it was asked: %s", info["info"])
	}
	return q, nil
}

// wait tries until it is true, fails, or takes longer than within.
func wait(ctx context.Context, within, every time.Duration, try func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := try()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", within, ctx.Err())
		case <-tick.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

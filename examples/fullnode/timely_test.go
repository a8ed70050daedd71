package main

import (
	"context"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

// timely is the runtime in memory behind the time limits of a client: a call
// that hangs is given up, as criclient does it on a connection.
type timely struct {
	*critest.Runtime
	limit time.Duration
	// straggle, if not zero, makes the next RunPodSandbox or CreateContainer take
	// effect that much later, also when its caller has given up.
	straggle atomic.Int64
	// removing is told of a container before it is removed. Nil: nobody is.
	removing func(id string)
}

// in makes one call within the limit.
func in[T any](t *timely, ctx context.Context, more time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, t.limit+more)
	defer cancel()
	return call(ctx)
}

// do is in for a call that answers nothing.
func do(t *timely, ctx context.Context, more time.Duration, call func(context.Context) error) error {
	_, err := in(t, ctx, more, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) })
	return err
}

// late is in for a call that may straggle.
func late[T any](t *timely, ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	delay := time.Duration(t.straggle.Swap(0))
	if delay == 0 {
		return in(t, ctx, 0, call)
	}
	return in(t, ctx, 0, func(limited context.Context) (T, error) {
		type answer struct {
			value T
			err   error
		}
		answers := make(chan answer, 1)
		go func() {
			time.Sleep(delay)
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limit)
			defer cancel()
			value, err := call(own)
			answers <- answer{value, err}
		}()
		select {
		case a := <-answers:
			return a.value, a.err
		case <-limited.Done():
			var none T
			return none, limited.Err()
		}
	})
}

func (t *timely) Version(ctx context.Context, v string) (*runtimeapi.VersionResponse, error) {
	return in(t, ctx, 0, func(ctx context.Context) (*runtimeapi.VersionResponse, error) { return t.Runtime.Version(ctx, v) })
}

func (t *timely) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return in(t, ctx, 0, func(ctx context.Context) (*runtimeapi.StatusResponse, error) { return t.Runtime.Status(ctx, verbose) })
}

func (t *timely) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	return late(t, ctx, func(ctx context.Context) (string, error) { return t.Runtime.RunPodSandbox(ctx, config, handler) })
}

func (t *timely) StopPodSandbox(ctx context.Context, id string) error {
	return do(t, ctx, 0, func(ctx context.Context) error { return t.Runtime.StopPodSandbox(ctx, id) })
}

func (t *timely) RemovePodSandbox(ctx context.Context, id string) error {
	return do(t, ctx, 0, func(ctx context.Context) error { return t.Runtime.RemovePodSandbox(ctx, id) })
}

func (t *timely) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return in(t, ctx, 0, func(ctx context.Context) (*runtimeapi.PodSandboxStatusResponse, error) {
		return t.Runtime.PodSandboxStatus(ctx, id, verbose)
	})
}

func (t *timely) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return in(t, ctx, 0, func(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
		return t.Runtime.ListPodSandbox(ctx, filter)
	})
}

func (t *timely) CreateContainer(ctx context.Context, sandbox string, c *runtimeapi.ContainerConfig, s *runtimeapi.PodSandboxConfig) (string, error) {
	return late(t, ctx, func(ctx context.Context) (string, error) { return t.Runtime.CreateContainer(ctx, sandbox, c, s) })
}

func (t *timely) StartContainer(ctx context.Context, id string) error {
	return do(t, ctx, 0, func(ctx context.Context) error { return t.Runtime.StartContainer(ctx, id) })
}

// StopContainer may take its grace period on top of the limit.
func (t *timely) StopContainer(ctx context.Context, id string, grace int64) error {
	return do(t, ctx, time.Duration(grace)*time.Second, func(ctx context.Context) error { return t.Runtime.StopContainer(ctx, id, grace) })
}

func (t *timely) RemoveContainer(ctx context.Context, id string) error {
	if t.removing != nil {
		t.removing(id)
	}
	return do(t, ctx, 0, func(ctx context.Context) error { return t.Runtime.RemoveContainer(ctx, id) })
}

func (t *timely) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return in(t, ctx, 0, func(ctx context.Context) (*runtimeapi.ContainerStatusResponse, error) {
		return t.Runtime.ContainerStatus(ctx, id, verbose)
	})
}

func (t *timely) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return in(t, ctx, 0, func(ctx context.Context) ([]*runtimeapi.Container, error) {
		return t.Runtime.ListContainers(ctx, filter)
	})
}

// ImageStatus is bounded, a pull is not: nobody knows how large an image is.
func (t *timely) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return in(t, ctx, 0, func(ctx context.Context) (*runtimeapi.ImageStatusResponse, error) {
		return t.Runtime.ImageStatus(ctx, image, verbose)
	})
}

package criclient

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// list is one list call in its two forms: a stream (KEP 5825, CRIListStreaming),
// which knows no message limit, and a single message, which every runtime has.
type list[T, Resp any] struct {
	verb    string
	stream  string // method names, for the hook
	unary   string
	without *atomic.Uint64 // the connection whose runtime has no such stream
	open    func(context.Context) (grpc.ServerStreamingClient[Resp], error)
	items   func(*Resp) []T
	once    func(context.Context) ([]T, error)
}

// fetch asks for the list as a stream, and in one message if the runtime has no
// streams. That is found out once per connection: the runtime behind the next
// one may be newer. RuntimeTimeout bounds the whole stream, as api.proto asks;
// what came until then is dropped, for half a list looks like vanished pods.
func fetch[T, Resp any](ctx context.Context, c *Client, l list[T, Resp]) ([]T, error) {
	conn := max(c.connects.Load(), 1)
	if l.without.Load() != conn {
		all, err := fetchStream(ctx, c, l)
		if !errors.Is(err, ErrUnimplemented) {
			return all, err
		}
		l.without.Store(conn)
	}
	var all []T
	err := c.do(ctx, l.unary, l.verb, "", c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		all, err = l.once(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func fetchStream[T, Resp any](ctx context.Context, c *Client, l list[T, Resp]) ([]T, error) {
	var all []T
	err := c.do(ctx, l.stream, l.verb, "", c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		// The stream is read to its end, or ends with the context of do.
		stream, err := l.open(ctx)
		if err != nil {
			return err
		}
		for {
			resp, err := stream.Recv()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			all = append(all, l.items(resp)...)
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (c *Client) fetchSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return fetch(ctx, c, list[*runtimeapi.PodSandbox, runtimeapi.StreamPodSandboxesResponse]{
		verb: "list pod sandboxes", stream: "StreamPodSandboxes", unary: "ListPodSandbox", without: &c.without.sandboxes,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
			return c.runtime.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: filter})
		},
		items: (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes,
		once: func(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
			resp, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
			return resp.GetItems(), err
		},
	})
}

func (c *Client) fetchContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return fetch(ctx, c, list[*runtimeapi.Container, runtimeapi.StreamContainersResponse]{
		verb: "list containers", stream: "StreamContainers", unary: "ListContainers", without: &c.without.containers,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
			return c.runtime.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: filter})
		},
		items: (*runtimeapi.StreamContainersResponse).GetContainers,
		once: func(ctx context.Context) ([]*runtimeapi.Container, error) {
			resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
			return resp.GetContainers(), err
		},
	})
}

// ListImages lists the images that filter matches; nil matches all. CRI can
// select only a single image, so a list that a runtime without streams can't
// send in one message is [ErrResourceExhausted].
func (c *Client) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return fetch(ctx, c, list[*runtimeapi.Image, runtimeapi.StreamImagesResponse]{
		verb: "list images", stream: "StreamImages", unary: "ListImages", without: &c.without.images,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamImagesResponse], error) {
			return c.images.StreamImages(ctx, &runtimeapi.StreamImagesRequest{Filter: filter})
		},
		items: (*runtimeapi.StreamImagesResponse).GetImages,
		once: func(ctx context.Context) ([]*runtimeapi.Image, error) {
			resp, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: filter})
			return resp.GetImages(), err
		},
	})
}

// ListPodSandboxMetrics returns the metrics of all running pods. As with
// [Client.ListImages], there is no way to ask for parts.
func (c *Client) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return fetch(ctx, c, list[*runtimeapi.PodSandboxMetrics, runtimeapi.StreamPodSandboxMetricsResponse]{
		verb: "list pod sandbox metrics", stream: "StreamPodSandboxMetrics", unary: "ListPodSandboxMetrics", without: &c.without.metrics,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxMetricsResponse], error) {
			return c.runtime.StreamPodSandboxMetrics(ctx, &runtimeapi.StreamPodSandboxMetricsRequest{})
		},
		items: (*runtimeapi.StreamPodSandboxMetricsResponse).GetPodSandboxMetrics,
		once: func(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
			resp, err := c.runtime.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
			return resp.GetPodMetrics(), err
		},
	})
}

func (c *Client) fetchContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return fetch(ctx, c, list[*runtimeapi.ContainerStats, runtimeapi.StreamContainerStatsResponse]{
		verb: "list container stats", stream: "StreamContainerStats", unary: "ListContainerStats", without: &c.without.containerStats,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamContainerStatsResponse], error) {
			return c.runtime.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{Filter: filter})
		},
		items: (*runtimeapi.StreamContainerStatsResponse).GetContainerStats,
		once: func(ctx context.Context) ([]*runtimeapi.ContainerStats, error) {
			resp, err := c.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
			return resp.GetStats(), err
		},
	})
}

func (c *Client) fetchSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return fetch(ctx, c, list[*runtimeapi.PodSandboxStats, runtimeapi.StreamPodSandboxStatsResponse]{
		verb: "list pod sandbox stats", stream: "StreamPodSandboxStats", unary: "ListPodSandboxStats", without: &c.without.sandboxStats,
		open: func(ctx context.Context) (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxStatsResponse], error) {
			return c.runtime.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{Filter: filter})
		},
		items: (*runtimeapi.StreamPodSandboxStatsResponse).GetPodSandboxStats,
		once: func(ctx context.Context) ([]*runtimeapi.PodSandboxStats, error) {
			resp, err := c.runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
			return resp.GetStats(), err
		},
	})
}

package critest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// GetContainerEvents is the event stream over gRPC.
func (p rpc) GetContainerEvents(q *runtimeapi.GetEventsRequest, s grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	// The header tells a waiting client that the stream is open.
	opened := func(*subscriber) { _ = s.SendHeader(nil) }
	return p.r.streamEvents(s.Context(), q, opened, s.Send)
}

// The list streams of KEP-5825 send a list in messages that gRPC can carry.

func (p rpc) StreamPodSandboxes(q *runtimeapi.StreamPodSandboxesRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	resp, err := call(s.Context(), p.r, "StreamPodSandboxes", q, func(context.Context, *runtimeapi.StreamPodSandboxesRequest) (*runtimeapi.ListPodSandboxResponse, error) {
		return p.r.sandboxList(q.GetFilter(), unlimited)
	})
	if err != nil {
		return err
	}
	return inParts(p.r, resp.GetItems(), func(part []*runtimeapi.PodSandbox) error {
		return s.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (p rpc) StreamContainers(q *runtimeapi.StreamContainersRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	resp, err := call(s.Context(), p.r, "StreamContainers", q, func(context.Context, *runtimeapi.StreamContainersRequest) (*runtimeapi.ListContainersResponse, error) {
		return p.r.containerList(q.GetFilter(), unlimited)
	})
	if err != nil {
		return err
	}
	return inParts(p.r, resp.GetContainers(), func(part []*runtimeapi.Container) error {
		return s.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

func (p rpc) StreamContainerStats(q *runtimeapi.StreamContainerStatsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	resp, err := call(s.Context(), p.r, "StreamContainerStats", q, func(ctx context.Context, _ *runtimeapi.StreamContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
		return p.r.listContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: q.GetFilter()})
	})
	if err != nil {
		return err
	}
	return inParts(p.r, resp.GetStats(), func(part []*runtimeapi.ContainerStats) error {
		return s.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

func (p rpc) StreamPodSandboxStats(q *runtimeapi.StreamPodSandboxStatsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	resp, err := call(s.Context(), p.r, "StreamPodSandboxStats", q, func(ctx context.Context, _ *runtimeapi.StreamPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
		return p.r.listPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: q.GetFilter()})
	})
	if err != nil {
		return err
	}
	return inParts(p.r, resp.GetStats(), func(part []*runtimeapi.PodSandboxStats) error {
		return s.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (p rpc) StreamPodSandboxMetrics(q *runtimeapi.StreamPodSandboxMetricsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	_, err := call(s.Context(), p.r, "StreamPodSandboxMetrics", q,
		absent[*runtimeapi.StreamPodSandboxMetricsRequest, *runtimeapi.StreamPodSandboxMetricsResponse]("StreamPodSandboxMetrics"))
	return err
}

func (p rpc) StreamImages(q *runtimeapi.StreamImagesRequest, s grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	resp, err := call(s.Context(), p.r, "StreamImages", q, func(context.Context, *runtimeapi.StreamImagesRequest) (*runtimeapi.ListImagesResponse, error) {
		return p.r.imageList(q.GetFilter(), unlimited)
	})
	if err != nil {
		return err
	}
	return inParts(p.r, resp.GetImages(), func(part []*runtimeapi.Image) error {
		return s.Send(&runtimeapi.StreamImagesResponse{Images: part})
	})
}

// inParts sends items in messages of at most partItems, and below the limit for
// an answer as long as no single item is above it.
func inParts[M proto.Message](r *Runtime, items []M, send func([]M) error) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && n < partItems {
			size += entrySize(items[n])
			if n > 0 && size > r.cfg.MaxAnswer {
				break
			}
			n++
		}
		if err := send(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

const (
	partItems = 500
	unlimited = int(^uint(0) >> 1)
)

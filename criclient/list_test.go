package criclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// crowded is a runtime without streams whose answers hold at most most items.
type crowded struct {
	most       int
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	before     func(method string, req any) error // each call
}

func (r *crowded) answer(_ context.Context, method string, req any) (any, error) {
	if r.before != nil {
		if err := r.before(method, req); err != nil {
			return nil, err
		}
	}
	n := 0
	var resp any
	switch req := req.(type) {
	case *runtimeapi.ListContainersRequest:
		f, list := req.GetFilter(), &runtimeapi.ListContainersResponse{}
		for _, c := range r.containers {
			if (f.GetState() == nil || f.GetState().GetState() == c.GetState()) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.GetPodSandboxId()) {
				list.Containers = append(list.Containers, c)
			}
		}
		n, resp = len(list.Containers), list
	case *runtimeapi.ListPodSandboxRequest:
		f, list := req.GetFilter(), &runtimeapi.ListPodSandboxResponse{}
		for _, s := range r.sandboxes {
			if f.GetState() == nil || f.GetState().GetState() == s.GetState() {
				list.Items = append(list.Items, s)
			}
		}
		n, resp = len(list.Items), list
	case *runtimeapi.ListContainerStatsRequest:
		list := &runtimeapi.ListContainerStatsResponse{}
		for _, c := range r.containers {
			if id := req.GetFilter().GetPodSandboxId(); id == "" || id == c.GetPodSandboxId() {
				list.Stats = append(list.Stats, &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: c.GetId()}})
			}
		}
		n, resp = len(list.Stats), list
	case *runtimeapi.ListPodSandboxStatsRequest:
		list := &runtimeapi.ListPodSandboxStatsResponse{}
		for _, s := range r.sandboxes {
			if id := req.GetFilter().GetId(); id == "" || id == s.GetId() {
				list.Stats = append(list.Stats, &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: s.GetId()}})
			}
		}
		n, resp = len(list.Stats), list
	default:
		return nil, nil
	}
	if n > r.most {
		return nil, status.Errorf(codes.ResourceExhausted, "%d items are too many", n)
	}
	return resp, nil
}

// town has n sandboxes, each with a created, a running and an exited container.
func town(n int) *crowded {
	r := &crowded{}
	for i := range n {
		s := &runtimeapi.PodSandbox{Id: fmt.Sprintf("s%d", i), State: runtimeapi.PodSandboxState(i % 2)}
		r.sandboxes = append(r.sandboxes, s)
		for _, state := range []runtimeapi.ContainerState{created, running, exited} {
			r.containers = append(r.containers, &runtimeapi.Container{Id: fmt.Sprintf("s%d-%v", i, state), PodSandboxId: s.Id, State: state})
		}
	}
	return r
}

func ids[T interface{ GetId() string }](items []T) []string {
	var all []string
	for _, item := range items {
		all = append(all, item.GetId())
	}
	slices.Sort(all)
	return all
}

func TestLargeListsComeInParts(t *testing.T) {
	for name, tc := range map[string]struct{ most, listCalls int }{
		"all fit into one message":          {most: 30, listCalls: 1},
		"each state fits":                   {most: 10, listCalls: 1 + 4},
		"only each sandbox of a state fits": {most: 9, listCalls: 1 + 4 + 3*10},
	} {
		t.Run(name, func(t *testing.T) {
			r := town(10)
			r.most = tc.most
			srv := &server{answer: r.answer}
			c := srv.start(t)
			got, err := c.ListContainers(t.Context(), nil)
			if err != nil || !slices.Equal(ids(got), ids(r.containers)) {
				t.Fatalf("ListContainers = %d containers, %v, want %d", len(got), err, len(r.containers))
			}
			if n := srv.count("ListContainers"); n != tc.listCalls {
				t.Errorf("took %d calls, want %d", n, tc.listCalls)
			}
		})
	}
}

func TestLargeSandboxAndStatsListsComeInParts(t *testing.T) {
	r := town(10)
	r.most = 5 // half of the sandboxes are ready
	c := (&server{answer: r.answer}).start(t)
	sandboxes, err := c.ListPodSandbox(t.Context(), nil)
	if err != nil || !slices.Equal(ids(sandboxes), ids(r.sandboxes)) {
		t.Errorf("ListPodSandbox = %v, %v", ids(sandboxes), err)
	}
	containerStats, err := c.ListContainerStats(t.Context(), nil)
	if err != nil || len(containerStats) != 30 {
		t.Errorf("ListContainerStats = %d, %v, want 30", len(containerStats), err)
	}
	sandboxStats, err := c.ListPodSandboxStats(t.Context(), nil)
	if err != nil || len(sandboxStats) != 10 {
		t.Errorf("ListPodSandboxStats = %d, %v, want 10", len(sandboxStats), err)
	}
}

func TestAPartThatFailsFailsTheList(t *testing.T) {
	r := town(10)
	r.most = 2
	c := (&server{answer: r.answer}).start(t)
	// Sandboxes of one state do not fit, so they can't be found to ask for each.
	if got, err := c.ListContainers(t.Context(), nil); !errors.Is(err, criclient.ErrResourceExhausted) || got != nil {
		t.Errorf("ListContainers = %d, %v, want none and ErrResourceExhausted", len(got), err)
	}
	r.most = 5
	r.before = func(_ string, req any) error {
		if l, ok := req.(*runtimeapi.ListContainersRequest); ok && l.GetFilter().GetPodSandboxId() == "s7" {
			return status.Error(codes.Internal, "disk error")
		}
		return nil
	}
	if got, err := c.ListContainers(t.Context(), nil); err == nil || got != nil || !strings.Contains(err.Error(), "sandbox s7") {
		t.Errorf("ListContainers = %d, %v, want none and an error that names sandbox s7", len(got), err)
	}
	r.before = func(_ string, req any) error {
		if l, ok := req.(*runtimeapi.ListContainersRequest); ok && l.GetFilter().GetPodSandboxId() == "s7" {
			return status.Error(codes.NotFound, "no such sandbox")
		}
		return nil
	}
	if got, err := c.ListContainers(t.Context(), nil); err != nil || len(got) != 27 {
		t.Errorf("ListContainers = %d, %v, want the 27 of the sandboxes that are left", len(got), err)
	}
}

func TestAContainerThatMovesBetweenPartsIsListedOnce(t *testing.T) {
	for _, move := range [][2]runtimeapi.ContainerState{{created, running}, {created, exited}, {running, exited}, {unknown, exited}} {
		for after := range 5 { // after that many parts
			t.Run(fmt.Sprintf("%v to %v after %d parts", move[0], move[1], after), func(t *testing.T) {
				r := town(10)
				r.most = 11
				mover := &runtimeapi.Container{Id: "mover", State: move[0]}
				r.containers = append(r.containers, mover)
				parts := 0
				r.before = func(_ string, req any) error {
					if l, ok := req.(*runtimeapi.ListContainersRequest); ok && l.GetFilter().GetState() != nil {
						if parts == after {
							mover.State = move[1]
						}
						parts++
					}
					return nil
				}
				got, err := (&server{answer: r.answer}).start(t).ListContainers(t.Context(), nil)
				if err != nil || !slices.Equal(ids(got), ids(r.containers)) {
					t.Fatalf("ListContainers = %v, %v, want each once", ids(got), err)
				}
			})
		}
	}
}

func TestTheLaterStateOfAMovingContainerCounts(t *testing.T) {
	r := town(10)
	r.most = 10
	mover := r.containers[0]
	r.before = func(_ string, req any) error {
		if l, ok := req.(*runtimeapi.ListContainersRequest); ok && l.GetFilter().GetState() != nil && l.GetFilter().GetState().GetState() == running {
			mover.State = running
			r.containers[1].State = exited // the state has room for ten
		}
		return nil
	}
	got, err := (&server{answer: r.answer}).start(t).ListContainers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range got {
		if g.GetId() == mover.GetId() && g.GetState() != running {
			t.Errorf("%s = %v, want its later state", g.GetId(), g.GetState())
		}
	}
}

func TestListsAreStreamedWhereTheRuntimeCan(t *testing.T) {
	const n = 40
	srv := &server{stream: func(method string, stream grpc.ServerStream) (bool, error) {
		for i := range n {
			id := fmt.Sprint(i)
			var m any
			switch method {
			case "StreamContainers":
				// Together far above the limit of one message.
				m = &runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: id, ImageRef: strings.Repeat("x", 1<<20)}}}
			case "StreamPodSandboxes":
				m = &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{{Id: id}}}
			case "StreamImages":
				m = &runtimeapi.StreamImagesResponse{Images: []*runtimeapi.Image{{Id: id}}}
			case "StreamContainerStats":
				m = &runtimeapi.StreamContainerStatsResponse{ContainerStats: []*runtimeapi.ContainerStats{{}}}
			case "StreamPodSandboxStats":
				m = &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: []*runtimeapi.PodSandboxStats{{}}}
			case "StreamPodSandboxMetrics":
				m = &runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: []*runtimeapi.PodSandboxMetrics{{}}}
			}
			if err := stream.SendMsg(m); err != nil {
				return true, err
			}
		}
		return true, nil
	}}
	c := srv.start(t)
	for method, list := range lists(c) {
		if got, err := list(t.Context()); err != nil || got != n {
			t.Errorf("%s by stream = %d, %v, want %d", method, got, err, n)
		}
		if srv.count(method) != 0 {
			t.Errorf("%s was called beside its stream", method)
		}
	}
}

// lists has all list calls, by the name of their unary method.
func lists(c *criclient.Client) map[string]func(context.Context) (int, error) {
	return map[string]func(context.Context) (int, error){
		"ListContainers":        func(ctx context.Context) (int, error) { l, err := c.ListContainers(ctx, nil); return len(l), err },
		"ListPodSandbox":        func(ctx context.Context) (int, error) { l, err := c.ListPodSandbox(ctx, nil); return len(l), err },
		"ListImages":            func(ctx context.Context) (int, error) { l, err := c.ListImages(ctx, nil); return len(l), err },
		"ListContainerStats":    func(ctx context.Context) (int, error) { l, err := c.ListContainerStats(ctx, nil); return len(l), err },
		"ListPodSandboxStats":   func(ctx context.Context) (int, error) { l, err := c.ListPodSandboxStats(ctx, nil); return len(l), err },
		"ListPodSandboxMetrics": func(ctx context.Context) (int, error) { l, err := c.ListPodSandboxMetrics(ctx); return len(l), err },
	}
}

func TestHalfAStreamIsAnError(t *testing.T) {
	srv := &server{stream: func(_ string, stream grpc.ServerStream) (bool, error) {
		if err := stream.SendMsg(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: "a"}}}); err != nil {
			return true, err
		}
		return true, status.Error(codes.Internal, "lost my place")
	}}
	if got, err := srv.start(t).ListContainers(t.Context(), nil); err == nil || got != nil {
		t.Errorf("ListContainers = %v, %v, want none and an error", ids(got), err)
	}
}

func TestAStreamThatHangsEndsWithTheCall(t *testing.T) {
	ended := make(chan struct{})
	srv := &server{stream: func(_ string, stream grpc.ServerStream) (bool, error) {
		defer close(ended)
		if err := stream.SendMsg(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: "a"}}}); err != nil {
			return true, err
		}
		<-stream.Context().Done()
		return true, stream.Context().Err()
	}}
	c := srv.start(t, func(cfg *criclient.Config) { cfg.RuntimeTimeout = 50_000_000 })
	if got, err := c.ListContainers(t.Context(), nil); !errors.Is(err, criclient.ErrDeadline) || got != nil {
		t.Errorf("ListContainers = %v, %v, want none and ErrDeadline", ids(got), err)
	}
	<-ended // the stream is not left open
}

func TestMissingStreamsAreAskedForOncePerConnection(t *testing.T) {
	r := town(1)
	r.most = 100
	old, young := &server{answer: r.answer}, &server{
		answer: r.answer,
		stream: func(_ string, stream grpc.ServerStream) (bool, error) {
			return true, stream.SendMsg(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: "streamed"}}})
		},
	}
	path := socket(t)
	c := dial(t, path)
	stop := old.listen(t, path)
	for range 3 {
		if got, err := c.ListContainers(t.Context(), nil); err != nil || len(got) != 3 {
			t.Fatalf("ListContainers = %d, %v", len(got), err)
		}
	}
	if n := old.count("StreamContainers"); n != 1 {
		t.Errorf("asked %d times for a stream that is not there, want 1", n)
	}
	stop()
	young.listen(t, path)
	// The first calls may still be the old connection's.
	for young.count("StreamContainers") == 0 {
		if _, err := c.ListContainers(t.Context(), nil); err != nil && !errors.Is(err, criclient.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	if got, err := c.ListContainers(t.Context(), nil); err != nil || len(got) != 1 {
		t.Errorf("ListContainers from the newer runtime = %v, %v, want its stream", ids(got), err)
	}
	if n := old.count("StreamContainers"); n != 1 {
		t.Errorf("the older runtime was asked %d times, want 1", n)
	}
}

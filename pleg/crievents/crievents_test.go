package crievents_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/crievents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type runtimeFunc func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func()) error

func (f runtimeFunc) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return f(ctx, events, func() { connected(nil) })
}

func source(t *testing.T, f runtimeFunc) *crievents.Source {
	t.Helper()
	s, err := crievents.New(crievents.Config{Runtime: f})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewNeedsARuntime(t *testing.T) {
	if _, err := crievents.New(crievents.Config{}); err == nil {
		t.Error("New without a runtime returned nil")
	}
}

func TestEventsBecomeMarks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event *runtimeapi.ContainerEventResponse
		want  pleg.Mark
	}{
		{"pod and container", &runtimeapi.ContainerEventResponse{
			ContainerId: "c1", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"}},
		}, pleg.Mark{Pod: "u1", Container: "c1"}},
		{"the sandbox is gone already", &runtimeapi.ContainerEventResponse{ContainerId: "c1"}, pleg.Mark{Container: "c1"}},
		{"no metadata", &runtimeapi.ContainerEventResponse{ContainerId: "c1", PodSandboxStatus: &runtimeapi.PodSandboxStatus{}}, pleg.Mark{Container: "c1"}},
		{"nothing at all", nil, pleg.Mark{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			broken := errors.New("broken")
			s := source(t, func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func()) error {
				connected()
				events <- tt.event
				return broken
			})
			var said []any
			err := s.Stream(t.Context(), func() { said = append(said, "connected") }, func(m pleg.Mark) { said = append(said, m) })
			if !errors.Is(err, broken) {
				t.Errorf("Stream = %v, want %v", err, broken)
			}
			if want := []any{"connected", tt.want}; !slices.Equal(said, want) {
				t.Errorf("said %v, want %v", said, want)
			}
		})
	}
}

func TestConnectedOnlyWhenTheStreamStays(t *testing.T) {
	unimplemented := status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	for _, tt := range []struct {
		name      string
		lives     time.Duration
		err       error
		connected bool
		want      error
	}{
		{"refused after it was opened", time.Millisecond, unimplemented, false, pleg.ErrEventsUnsupported},
		{"refused through another client", 0, fmt.Errorf("receive events: %w", unimplemented), false, pleg.ErrEventsUnsupported},
		{"broken later", time.Second, status.Error(codes.Unavailable, "away"), true, nil},
		{"ended without an error", time.Second, nil, true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := source(t, func(ctx context.Context, _ chan *runtimeapi.ContainerEventResponse, connected func()) error {
					connected()
					time.Sleep(tt.lives)
					return tt.err
				})
				connected := false
				err := s.Stream(t.Context(), func() { connected = true }, func(pleg.Mark) {})
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && errors.Is(err, pleg.ErrEventsUnsupported) {
					t.Errorf("Stream = %v, want %v", err, tt.want)
				}
				if connected != tt.connected {
					t.Errorf("connected = %v, want %v", connected, tt.connected)
				}
			})
		})
	}
}

// Some clients can't leave a send when their ctx ends.
func TestStreamEndsWithAClientThatIsStuckInASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := source(t, func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func()) error {
			connected()
			<-ctx.Done()
			for range 10 {
				events <- &runtimeapi.ContainerEventResponse{ContainerId: "c"}
			}
			return ctx.Err()
		})
		ended := make(chan error, 1)
		go func() { ended <- s.Stream(ctx, func() {}, func(pleg.Mark) {}) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Stream = %v, want its ctx's end", err)
		}
	})
}

func ExampleNew() {
	client := runtimeFunc(func(_ context.Context, events chan *runtimeapi.ContainerEventResponse, connected func()) error {
		connected()
		events <- &runtimeapi.ContainerEventResponse{
			ContainerId:      "c1",
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid-1"}},
		}
		return errors.New("the runtime restarts")
	})
	s, err := crievents.New(crievents.Config{Runtime: client}) // a criclient.Client, for example
	if err != nil {
		fmt.Println(err)
		return
	}
	err = s.Stream(context.Background(),
		func() { fmt.Println("connected") },
		func(m pleg.Mark) { fmt.Println("look at", m.Pod) })
	fmt.Println(err)
	// Output:
	// connected
	// look at uid-1
	// receive CRI events: the runtime restarts
}

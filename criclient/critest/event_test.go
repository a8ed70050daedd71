package critest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

const (
	createdEvent = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	startedEvent = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stoppedEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deletedEvent = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// listener collects one event stream in a bubble.
type listener struct {
	ch   chan *runtimeapi.ContainerEventResponse
	done chan error
}

func listen(ctx context.Context, rt *critest.Runtime) listener {
	l := listener{ch: make(chan *runtimeapi.ContainerEventResponse, 100), done: make(chan error, 1)}
	go func() { l.done <- rt.GetContainerEvents(ctx, l.ch, nil) }()
	synctest.Wait()
	return l
}

// said returns what has arrived, as "who what", once everything is quiet.
func (l listener) said(names map[string]string) []string {
	synctest.Wait()
	var got []string
	for {
		select {
		case ev := <-l.ch:
			got = append(got, names[ev.GetContainerId()]+" "+short(ev.GetContainerEventType()))
		default:
			return got
		}
	}
}

func short(t runtimeapi.ContainerEventType) string {
	return map[runtimeapi.ContainerEventType]string{
		createdEvent: "created", startedEvent: "started", stoppedEvent: "stopped", deletedEvent: "deleted",
	}[t]
}

func TestEventsTellAPodsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Behavior{})
		ctx, cancel := context.WithCancel(t.Context())
		l, second := listen(ctx, rt), listen(ctx, rt)
		sb, id := run(t, rt, "u1", "img")
		names := map[string]string{sb: "sandbox", id: "app"}
		require.NoError(t, rt.StopPodSandbox(t.Context(), sb))
		require.NoError(t, rt.RemovePodSandbox(t.Context(), sb))
		want := []string{
			"sandbox created", "sandbox started", "app created", "app started",
			"app stopped", "sandbox stopped", "app deleted", "sandbox deleted",
		}
		require.Equal(t, want, l.said(names))
		require.Equal(t, want, second.said(names), "every subscriber hears everything")
		cancel()
		require.Equal(t, codes.Canceled, status.Code(<-l.done))
		<-second.done
		require.Zero(t, rt.Subscribers())
	})
}

func TestAnEventCarriesTheStateOfItsMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Exit(3, time.Second))
		sb, id := run(t, rt, "u1", "img")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := listen(ctx, rt)
		ev := <-l.ch
		require.Equal(t, stoppedEvent, ev.GetContainerEventType())
		require.Equal(t, id, ev.GetContainerId())
		require.Equal(t, sb, ev.GetPodSandboxStatus().GetId())
		require.Equal(t, "u1", ev.GetPodSandboxStatus().GetMetadata().GetUid())
		require.Len(t, ev.GetContainersStatuses(), 1)
		require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, ev.GetContainersStatuses()[0].GetState())
		require.Equal(t, int32(3), ev.GetContainersStatuses()[0].GetExitCode())

		require.NoError(t, rt.RemoveContainer(t.Context(), id))
		ev = <-l.ch
		require.Equal(t, deletedEvent, ev.GetContainerEventType())
		require.Empty(t, ev.GetContainersStatuses(), "the deleted one is gone already")
	})
}

func TestEventFaults(t *testing.T) {
	tests := []struct {
		name  string
		fault critest.EventFault
		want  []string
	}{
		{"none", critest.EventFault{Container: "nobody", Drop: true}, []string{"app created", "app started", "app stopped", "app deleted"}},
		{"a lost exit", critest.EventFault{Types: []runtimeapi.ContainerEventType{stoppedEvent}, Drop: true}, []string{"app created", "app started", "app deleted"}},
		{"all lost", critest.EventFault{PodUID: "u1", Drop: true}, nil},
		{"two lost", critest.EventFault{Times: 2, Drop: true}, []string{"app stopped", "app deleted"}},
		{"one twice", critest.EventFault{Container: "app", Times: 1, Duplicate: true}, []string{"app created", "app created", "app started", "app stopped", "app deleted"}},
		{"two swapped", critest.EventFault{Types: []runtimeapi.ContainerEventType{createdEvent}, Reorder: true}, []string{"app started", "app created", "app stopped", "app deleted"}},
		{"one late", critest.EventFault{Types: []runtimeapi.ContainerEventType{createdEvent}, Delay: time.Second}, []string{"app started", "app stopped", "app deleted", "app created"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Config{})
				rt.AddImage("img", critest.Behavior{})
				sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l := listen(ctx, rt)
				clear := rt.InjectEvents(tt.fault)
				id, err := rt.CreateContainer(t.Context(), sb, ctr("u1", "app", "img"), pod("u1"))
				require.NoError(t, err)
				require.NoError(t, rt.StartContainer(t.Context(), id))
				require.NoError(t, rt.Kill(id, 1))
				require.NoError(t, rt.RemoveContainer(t.Context(), id))
				time.Sleep(time.Second)
				require.Equal(t, tt.want, l.said(map[string]string{id: "app"}))
				clear()
				require.NoError(t, rt.StopPodSandbox(t.Context(), sb))
				require.Equal(t, []string{"sandbox stopped"}, l.said(map[string]string{sb: "sandbox"}))
			})
		})
	}
}

func TestASlowSubscriberLosesEventsAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{EventBuffer: 3})
		ctx, cancel := context.WithCancel(t.Context())
		blocked := make(chan *runtimeapi.ContainerEventResponse) // nobody reads
		done := make(chan error, 1)
		go func() { done <- rt.GetContainerEvents(ctx, blocked, nil) }()
		synctest.Wait()
		for i := range 10 {
			_, err := rt.RunPodSandbox(t.Context(), pod(fmt.Sprint(i)), "")
			require.NoError(t, err)
			synctest.Wait()
		}
		// Ten pods make twenty events: one is in the hands of the reader, three wait.
		require.Equal(t, 16, rt.DroppedEvents())
		cancel()
		require.Equal(t, codes.Canceled, status.Code(<-done))
	})
}

func TestStopEndsStreamsAndCallsAndKeepsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Exit(3, time.Minute))
		rt.AddImage("stubborn", critest.Behavior{IgnoreTERM: true})
		_, id := run(t, rt, "u1", "img")
		_, stubborn := run(t, rt, "u2", "stubborn")
		l := listen(t.Context(), rt)
		stopping := make(chan error, 1)
		go func() { stopping <- rt.StopContainer(t.Context(), stubborn, 3600) }()
		synctest.Wait()

		rt.Stop()
		rt.Stop()
		require.Equal(t, codes.Unavailable, status.Code(<-l.done))
		require.Equal(t, codes.Unavailable, status.Code(<-stopping))
		_, err := rt.ListContainers(t.Context(), nil)
		require.Equal(t, codes.Unavailable, status.Code(err))
		time.Sleep(time.Hour)

		rt.Start()
		rt.Start()
		st := statusOf(t, rt, id)
		require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, st.GetState(), "it exited while nobody watched")
		require.Equal(t, int32(3), st.GetExitCode())
		require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, statusOf(t, rt, stubborn).GetState(), "nobody was there to kill it")
		require.Empty(t, l.said(nil))
	})
}

func TestAnEmptyListAfterARestart(t *testing.T) {
	rt := critest.New(critest.Config{})
	_, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
	require.NoError(t, err)
	rt.Inject(critest.Fault{Method: "ListPodSandbox", Empty: true, Times: 1})
	for _, want := range []int{0, 1} {
		list, err := rt.ListPodSandbox(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, list, want)
	}
}

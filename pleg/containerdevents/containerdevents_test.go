package containerdevents_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/containerdevents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is containerd's event service: it sends what is given to it.
type server struct {
	eventsapi.UnimplementedEventsServer
	send     chan *types.Envelope
	requests chan *eventsapi.SubscribeRequest
	headers  chan metadata.MD
}

func newServer() *server {
	return &server{
		send:     make(chan *types.Envelope),
		requests: make(chan *eventsapi.SubscribeRequest, 10),
		headers:  make(chan metadata.MD, 10),
	}
}

func (s *server) Subscribe(r *eventsapi.SubscribeRequest, stream eventsapi.Events_SubscribeServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	s.requests <- r
	s.headers <- md
	for {
		select {
		case e, ok := <-s.send:
			if !ok {
				return errors.New("containerd stops")
			}
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// serve serves srv in memory, and returns how to reach it.
func serve(t *testing.T, srv eventsapi.EventsServer) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	serveOn(t, l, srv)
	return func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}

func serveOn(t *testing.T, l net.Listener, srv eventsapi.EventsServer) {
	t.Helper()
	s := grpc.NewServer()
	if srv != nil {
		eventsapi.RegisterEventsServer(s, srv)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Stop
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
}

func envelope(t testing.TB, namespace, topic string, m proto.Message) *types.Envelope {
	t.Helper()
	value, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &types.Envelope{
		Namespace: namespace, Topic: topic,
		// containerd's type URLs have no host before the name.
		Event: &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value},
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, cfg := range map[string]containerdevents.Config{
		"no address":                 {},
		"a scheme and no address":    {Address: "unix://"},
		"a namespace that is a list": {Address: "/x", Namespace: "a,b"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := containerdevents.New(cfg); err == nil {
				t.Error("New returned nil")
			}
		})
	}
}

func TestEventsBecomeMarks(t *testing.T) {
	srv := newServer()
	// A real socket, as the default dialer wants it.
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, srv)
	s, err := containerdevents.New(containerdevents.Config{Address: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	marks, connected, ended := make(chan pleg.Mark, 100), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.Stream(ctx, func() { close(connected) }, func(m pleg.Mark) { marks <- m })
	}()
	<-connected
	if got := (<-srv.headers).Get("containerd-namespace"); !slices.Equal(got, []string{"k8s.io"}) {
		t.Errorf("namespace header = %v", got)
	}
	if got := (<-srv.requests).GetFilters(); !slices.Contains(got, `namespace=="k8s.io",topic=="/tasks/exit"`) {
		t.Errorf("filters = %q", got)
	}
	broken := envelope(t, "k8s.io", "/tasks/exit", &apievents.TaskExit{})
	broken.Event.Value = []byte{0xff}
	hosted := envelope(t, "k8s.io", "/tasks/oom", &apievents.TaskOOM{ContainerID: "hosted"})
	hosted.Event.TypeUrl = "types.containerd.io/" + hosted.Event.TypeUrl
	for _, tt := range []struct {
		name  string
		event *types.Envelope
		want  observed.ContainerID // empty: no mark
	}{
		{"start", envelope(t, "k8s.io", "/tasks/start", &apievents.TaskStart{ContainerID: "start"}), "start"},
		{"an exec that ends", envelope(t, "k8s.io", "/tasks/exit", &apievents.TaskExit{ContainerID: "exec", ID: "probe"}), ""},
		{"an exec that is deleted", envelope(t, "k8s.io", "/tasks/delete", &apievents.TaskDelete{ContainerID: "exec", ID: "probe"}), ""},
		{"out of memory", envelope(t, "k8s.io", "/tasks/oom", &apievents.TaskOOM{ContainerID: "oom"}), "oom"},
		{"create", envelope(t, "k8s.io", "/containers/create", &apievents.ContainerCreate{ID: "create"}), "create"},
		{"remove", envelope(t, "k8s.io", "/containers/delete", &apievents.ContainerDelete{ID: "remove"}), "remove"},
		{"someone else's namespace", envelope(t, "moby", "/tasks/start", &apievents.TaskStart{ContainerID: "moby"}), ""},
		{"something else", envelope(t, "k8s.io", "/images/create", &apievents.ImageCreate{Name: "image"}), ""},
		{"no event inside", &types.Envelope{Namespace: "k8s.io"}, ""},
		{"a type URL with a host", hosted, "hosted"},
		{"exit", envelope(t, "k8s.io", "/tasks/exit", &apievents.TaskExit{ContainerID: "exit", ID: "exit"}), "exit"},
	} {
		srv.send <- tt.event
		if tt.want == "" {
			continue // the next event shows that nothing came of this one
		}
		if got := <-marks; got != (pleg.Mark{Container: tt.want}) {
			t.Errorf("%s: mark = %v, want %s", tt.name, got, tt.want)
		}
	}
	if got := <-marks; got != (pleg.Mark{Container: "exit"}) {
		t.Errorf("mark = %v, want the exit once more", got)
	}
	srv.send <- broken
	for got := range marks { // the exit may come once more before it
		if got == (pleg.Mark{}) {
			break
		} else if got.Container != "exit" {
			t.Errorf("mark = %v, want a relist for an event that can't be read", got)
		}
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("Stream = %v, want an error that names the socket", err)
	}
}

func TestEndsAreRepeated(t *testing.T) {
	ms := func(all ...int) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	exit := envelope(t, "k8s.io", "/tasks/exit", &apievents.TaskExit{ContainerID: "c1", ID: "c1"})
	deleted := envelope(t, "k8s.io", "/tasks/delete", &apievents.TaskDelete{ContainerID: "c1"})
	removed := envelope(t, "k8s.io", "/containers/delete", &apievents.ContainerDelete{ID: "c1"})
	for _, tt := range []struct {
		name   string
		events []*types.Envelope // 50 ms apart
		want   []time.Duration
	}{
		{"an exit", []*types.Envelope{exit}, ms(0, 100, 1000, 5000)},
		{"a task's removal", []*types.Envelope{deleted}, ms(0, 10, 40, 100, 200, 1100, 5100)},
		{"both, the second replaces the first", []*types.Envelope{exit, deleted}, ms(0, 50, 60, 90, 150, 250, 1150, 5150)},
		{"the container's removal ends it: nobody knows the ID any more", []*types.Envelope{exit, removed}, ms(0, 50)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// The server's side is a pipe in the bubble, so a second takes no time.
			synctest.Test(t, func(t *testing.T) {
				srv := newServer()
				s, err := containerdevents.New(containerdevents.Config{Address: "/c.sock", Dialer: serve(t, srv)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var at []time.Duration
				ended := make(chan error, 1)
				var began time.Time
				go func() {
					ended <- s.Stream(ctx, func() {}, func(pleg.Mark) { at = append(at, time.Since(began)) })
				}()
				synctest.Wait()
				began = time.Now()
				for _, e := range tt.events {
					srv.send <- e
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				cancel()
				<-ended
				if !slices.Equal(at, tt.want) {
					t.Errorf("marked at %v, want %v", at, tt.want)
				}
			})
		})
	}
}

func TestStreamEnds(t *testing.T) {
	stopping := newServer()
	close(stopping.send)
	refuse := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no such socket") }
	for _, tt := range []struct {
		name        string
		dialer      func(context.Context, string) (net.Conn, error)
		unsupported bool
		want        string
	}{
		{"no containerd", refuse, false, "no such socket"},
		{"containerd stops", serve(t, stopping), false, "containerd stops"},
		{"something that is not containerd", serve(t, nil), true, "/c.sock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := containerdevents.New(containerdevents.Config{Address: "/c.sock", Dialer: tt.dialer})
			if err != nil {
				t.Fatal(err)
			}
			err = s.Stream(t.Context(), func() { t.Error("connected") }, func(pleg.Mark) {})
			if errors.Is(err, pleg.ErrEventsUnsupported) != tt.unsupported || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Stream = %v", err)
			}
		})
	}
}

func ExampleNew() {
	s, err := containerdevents.New(containerdevents.Config{Address: "/run/containerd/containerd.sock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	// In front of it comes the CRI stream (pleg/crievents), where there is one.
	var events pleg.EventSource = pleg.FirstSupported(s)
	fmt.Println(events != nil)
	// Output: true
}

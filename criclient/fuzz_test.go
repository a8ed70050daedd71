package criclient_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// raw is a codec that passes bytes on as they are.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// babbler answers every CRI method with the same bytes, and a streaming method
// with that many messages of them.
type babbler struct {
	mu       sync.Mutex
	answers  map[string][]byte
	messages int
}

func (b *babbler) set(messages int, answers map[string][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages, b.answers = messages, answers
}

func (b *babbler) start(t testing.TB) *criclient.Client {
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		method = method[len("/runtime.v1."):]
		var req []byte
		if err := stream.RecvMsg(&req); err != nil {
			return err
		}
		b.mu.Lock()
		answer, messages := b.answers[method], b.messages
		b.mu.Unlock()
		for range messages {
			if err := stream.SendMsg(&answer); err != nil {
				return err
			}
		}
		return nil
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	c, err := criclient.New(criclient.Config{
		Endpoint: "babble", RuntimeTimeout: 5 * time.Second,
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func encode(t testing.TB, message any) []byte {
	data, err := encoding.GetCodecV2("proto").Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return data.Materialize()
}

// FuzzAnswers: no answer of a runtime, well-formed or not, makes the client or the
// observer panic or hang, and what comes out keeps the observer's promises.
func FuzzAnswers(f *testing.F) {
	labels := podLabels("u1")
	f.Add(1, []byte(nil), []byte(nil), []byte(nil), []byte(nil))
	f.Add(0, []byte{1}, []byte{2}, []byte{3}, []byte{0xff})
	f.Add(2,
		encode(f, &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{{Id: "s1", Labels: labels, CreatedAt: 5}, {Id: "s1"}, {}}}),
		encode(f, &runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: "c1", Labels: labels, State: 2, PodSandboxId: "s1"}, {Id: "c2", Labels: labels, State: 77}}}),
		encode(f, &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "x"}}}),
		encode(f, &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			State: 2, ExitCode: -1, CreatedAt: -1, FinishedAt: -1, LogPath: "/", Mounts: []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: "/"}},
			Annotations: map[string]string{observed.AnnotationTerminationMessagePath: "/x", observed.AnnotationTerminationMessagePolicy: "FallbackToLogsOnError", observed.AnnotationRestartCount: "99999999999"},
		}}))
	b := &babbler{}
	c := b.start(f)
	o := observe(f, c)
	f.Fuzz(func(t *testing.T, messages int, sandboxes, containers, sandbox, container []byte) {
		b.set(max(0, min(messages, 3)), map[string][]byte{
			"RuntimeService/StreamPodSandboxes": sandboxes, "RuntimeService/ListPodSandbox": sandboxes,
			"RuntimeService/StreamContainers": containers, "RuntimeService/ListContainers": containers,
			"RuntimeService/PodSandboxStatus": sandbox, "RuntimeService/ContainerStatus": container,
			"RuntimeService/Version": sandbox, "RuntimeService/Status": container, "RuntimeService/ExecSync": container,
			"ImageService/StreamImages": sandboxes, "ImageService/PullImage": container,
		})
		ctx := t.Context()
		_, _ = c.Check(ctx)
		_, _ = c.Status(ctx, false)
		_, _, _ = c.ExecSync(ctx, "c", nil, time.Second)
		_, _ = c.ListImages(ctx, nil)
		_, _ = c.PullImage(ctx, nil, nil, nil)
		running, _ := o.RunningPods(ctx)
		all, err := o.AllPods(ctx)
		if err != nil && all != nil {
			t.Errorf("AllPods = %v and %v", all, err)
		}
		for _, p := range append(all, running...) {
			keepsPromises(t, p)
			p, err := o.InspectPod(ctx, p)
			if err == nil {
				keepsPromises(t, p)
			}
		}
	})
}

func keepsPromises(t *testing.T, p observed.Pod) {
	t.Helper()
	if p.UID == "" {
		t.Error("a pod without UID")
	}
	seen := map[string]bool{}
	for _, s := range p.Sandboxes {
		if s.ID == "" || seen[string(s.ID)] {
			t.Errorf("sandbox %q is empty or there twice", s.ID)
		}
		seen[string(s.ID)] = true
	}
	seen = map[string]bool{}
	for _, c := range p.Containers {
		if c.ID == "" || seen[string(c.ID)] {
			t.Errorf("container %q is empty or there twice", c.ID)
		}
		seen[string(c.ID)] = true
		if c.RestartCount < 0 || c.State > observed.Exited {
			t.Errorf("container %+v", c)
		}
	}
}

package criclient_test

import (
	"context"
	"net"
	"path"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every CRI method through one function, which gets the method's
// name and the request. A method is unimplemented when answer is nil or returns nil, nil.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	answer func(ctx context.Context, method string, req any) (any, error)
	// stream answers the streaming methods; false leaves one unimplemented.
	stream func(method string, stream grpc.ServerStream) (bool, error)

	mu    sync.Mutex
	calls []string
	left  map[string]time.Duration // what remained of the deadline, by method
}

func (s *server) note(ctx context.Context, full string) string {
	method := path.Base(full)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, method)
	if s.left == nil {
		s.left = map[string]time.Duration{}
	}
	delete(s.left, method)
	if deadline, ok := ctx.Deadline(); ok {
		s.left[method] = time.Until(deadline)
	}
	return method
}

func (s *server) count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == method {
			n++
		}
	}
	return n
}

func (s *server) deadline(method string) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.left[method]
	return d, ok
}

func (s *server) serve(t testing.TB, l net.Listener) (stop func()) {
	t.Helper()
	g := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			method := s.note(ctx, info.FullMethod)
			if s.answer != nil {
				if resp, err := s.answer(ctx, method, req); resp != nil || err != nil {
					return resp, err
				}
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			method := s.note(stream.Context(), info.FullMethod)
			if s.stream != nil {
				if done, err := s.stream(method, stream); done {
					return err
				}
			}
			return next(srv, stream)
		}))
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	return sync.OnceFunc(func() { g.Stop(); <-done })
}

// start serves s in memory and returns a client of it.
func (s *server) start(t testing.TB, change ...func(*criclient.Config)) *criclient.Client {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	t.Cleanup(s.serve(t, l))
	cfg := criclient.Config{
		Endpoint: "in memory",
		Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := criclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return c
}

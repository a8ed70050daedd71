package criclient_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
)

// socket returns a path short enough for a unix socket on every system.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func (s *server) listen(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stop = s.serve(t, l)
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, path string) *criclient.Client {
	t.Helper()
	c, err := criclient.New(criclient.Config{Endpoint: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func version() *server {
	return &server{answer: func(context.Context, string, any) (any, error) {
		return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
	}}
}

func TestClientOutlivesItsRuntime(t *testing.T) {
	path := socket(t)
	c := dial(t, path)
	for range 3 {
		_, err := c.Check(t.Context())
		if !errors.Is(err, criclient.ErrUnavailable) || !strings.Contains(err.Error(), "unix://"+path) {
			t.Fatalf("Check without a runtime = %v, want ErrUnavailable and the endpoint", err)
		}
		stop := version().listen(t, path)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := c.Check(t.Context()); err != nil {
			t.Fatalf("Check with the runtime back = %v", err)
		}
		stop()
	}
}

func TestAnOutageIsQuiet(t *testing.T) {
	var dials, lines atomic.Int32
	log := funcr.New(func(string, string) { lines.Add(1) }, funcr.Options{})
	c, err := criclient.New(criclient.Config{Endpoint: "nowhere", Log: log, Dialer: func(context.Context, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("nobody there")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for range 1000 {
		if _, err := c.Check(t.Context()); !errors.Is(err, criclient.ErrUnavailable) || !strings.Contains(err.Error(), "nobody there") {
			t.Fatalf("Check = %v, want ErrUnavailable with the reason", err)
		}
	}
	// A thousand calls in a moment may not be a thousand dials.
	if n := dials.Load(); n > 20 {
		t.Errorf("%d dials, want only those of the back-off", n)
	}
	for dials.Load() < 2 { // until the back-off has run once
		_, _ = c.Check(t.Context())
	}
	if n := lines.Load(); n != 1 {
		t.Errorf("%d log lines, want one for the whole outage", n)
	}
}

func TestWaitReadyEndsWithItsContext(t *testing.T) {
	c := dial(t, socket(t))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.WaitReady(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitReady = %v, want deadline exceeded", err)
	}
}

func TestCloseEndsCallsAndStreams(t *testing.T) {
	opened := make(chan struct{})
	srv := &server{stream: func(_ string, stream grpc.ServerStream) (bool, error) {
		close(opened)
		<-stream.Context().Done()
		return true, nil
	}}
	c := srv.start(t)
	done := make(chan error)
	go func() { done <- c.GetContainerEvents(context.Background(), nil, nil) }()
	<-opened
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if err := <-done; !errors.Is(err, criclient.ErrUnavailable) {
		t.Errorf("GetContainerEvents = %v, want ErrUnavailable", err)
	}
	_, err := c.Check(t.Context())
	if !errors.Is(err, criclient.ErrUnavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("Check after Close = %v, want ErrUnavailable", err)
	}
	if err := c.WaitReady(t.Context()); !errors.Is(err, criclient.ErrUnavailable) {
		t.Errorf("WaitReady after Close = %v, want ErrUnavailable", err)
	}
}

func TestAServerThatSpeaksNoHTTP2(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	if _, err := dial(t, path).Check(t.Context()); !errors.Is(err, criclient.ErrUnavailable) {
		t.Errorf("Check = %v, want ErrUnavailable", err)
	}
}

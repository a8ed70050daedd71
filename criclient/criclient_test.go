package criclient_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeletkit/kubeletkit/criclient"
)

func TestSocketPath(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint, path, err string
	}{
		"the right form":                 {endpoint: "unix:///run/x.sock", path: "/run/x.sock"},
		"a bare absolute path":           {endpoint: "/run/x.sock", path: "/run/x.sock"},
		"unix with one slash":            {endpoint: "unix:/run/x.sock", path: "/run/x.sock"},
		"a path with a colon":            {endpoint: "/run/a:b.sock", path: "/run/a:b.sock"},
		"nothing":                        {err: "no runtime endpoint"},
		"a relative path":                {endpoint: "run/x.sock", err: "must start with a slash"},
		"a relative path behind unix://": {endpoint: "unix://run/x.sock", err: "must start with a slash"},
		"unix:// and no path":            {endpoint: "unix://", err: "must start with a slash"},
		"the root directory":             {endpoint: "unix:///", err: "names no socket"},
		"a named pipe":                   {endpoint: "npipe:////./pipe/x", err: "named pipes"},
		"a network address":              {endpoint: "tcp://127.0.0.1:3735", err: "not spoken over the network"},
		"a host and port without scheme": {endpoint: "localhost:3735", err: "unknown scheme"},
		"upper case scheme":              {endpoint: "UNIX:///run/x.sock", err: "unknown scheme"},
		"an abstract socket":             {endpoint: "unix:@x", err: "must start with a slash"},
		"a path too long for the kernel": {endpoint: "unix:///" + strings.Repeat("x", 120), err: "the system takes"},
		"a NUL byte":                     {endpoint: "unix:///run/\x00.sock", err: "NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := criclient.SocketPath(tc.endpoint)
			switch {
			case tc.err == "" && (err != nil || path != tc.path):
				t.Errorf("SocketPath = %q, %v, want %q", path, err, tc.path)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("SocketPath = %q, %v, want an error with %q", path, err, tc.err)
			}
		})
	}
}

func TestNewNeedsNoRuntimeButARightEndpoint(t *testing.T) {
	if _, err := criclient.New(criclient.Config{Endpoint: "tcp://127.0.0.1:1"}); err == nil {
		t.Error("New with a tcp endpoint = nil error")
	}
	if _, err := criclient.New(criclient.Config{Endpoint: "unix:///x", RuntimeTimeout: -1}); err == nil {
		t.Error("New with a negative timeout = nil error")
	}
	var logged []string
	c, err := criclient.New(criclient.Config{
		Endpoint: "/no/such/socket",
		Log:      funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if len(logged) != 1 || !strings.Contains(logged[0], "unix:///no/such/socket") {
		t.Errorf("log = %q, want one line with the better spelling", logged)
	}
}

func TestCallsAreBounded(t *testing.T) {
	const limit = 10 * time.Minute
	srv := &server{answer: func(context.Context, string, any) (any, error) { return nil, status.Error(codes.Internal, "no") }}
	c := srv.start(t, func(cfg *criclient.Config) { cfg.RuntimeTimeout = limit })
	ctx := t.Context()
	for _, tc := range []struct {
		name, method string
		call         func()
		want         time.Duration // 0 is no deadline
	}{
		{"a status call", "ContainerStatus", func() { c.ContainerStatus(ctx, "c", false) }, limit},
		{"a list", "ListContainers", func() { c.ListContainers(ctx, nil) }, limit},
		{"a stream of a list", "StreamContainers", func() { c.ListContainers(ctx, nil) }, limit},
		{"a sandbox waits for the network", "RunPodSandbox", func() { c.RunPodSandbox(ctx, nil, "") }, 2 * limit},
		{"stop gets its grace on top", "StopContainer", func() { c.StopContainer(ctx, "c", 3600) }, time.Hour + limit},
		{"stop with a negative grace", "StopContainer", func() { c.StopContainer(ctx, "c", -5) }, limit},
		{"stop with a grace past the end of time", "StopContainer", func() { c.StopContainer(ctx, "c", 1<<62) }, 0},
		{"exec without a limit", "ExecSync", func() { c.ExecSync(ctx, "c", nil, 0) }, 0},
		{"exec with a limit", "ExecSync", func() { c.ExecSync(ctx, "c", nil, time.Hour) }, time.Hour + limit},
		{"a pull", "PullImage", func() { c.PullImage(ctx, nil, nil, nil) }, 0},
		{"an event stream", "GetContainerEvents", func() { c.GetContainerEvents(ctx, nil, nil) }, 0},
		{"a checkpoint with a timeout", "CheckpointContainer", func() {
			c.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{Timeout: 3600})
		}, time.Hour + limit},
		{"a pod checkpoint without a deadline", "CheckpointPod", func() { c.CheckpointPod(ctx, nil) }, limit},
		{"a restore with a longer deadline", "RestorePod", func() {
			long, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			c.RestorePod(long, nil)
		}, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.call()
			got, bounded := srv.deadline(tc.method)
			if bounded != (tc.want != 0) {
				t.Fatalf("%s bounded = %v, want limit %v", tc.method, bounded, tc.want)
			}
			if bounded && (got > tc.want || got < tc.want-time.Minute) {
				t.Errorf("%s had %v left, want about %v", tc.method, got, tc.want)
			}
		})
	}
}

func TestExecSync(t *testing.T) {
	var asked *runtimeapi.ExecSyncRequest
	srv := &server{answer: func(_ context.Context, _ string, req any) (any, error) {
		asked = req.(*runtimeapi.ExecSyncRequest)
		// As much as CRI lets a runtime answer: 16 MB on each stream.
		return &runtimeapi.ExecSyncResponse{Stdout: make([]byte, 16e6), Stderr: make([]byte, 16e6), ExitCode: 3}, nil
	}}
	c := srv.start(t)
	stdout, stderr, err := c.ExecSync(t.Context(), "c1", []string{"cat", "secret"}, 1500*time.Millisecond)
	if len(stdout) != 16e6 || len(stderr) != 16e6 {
		t.Errorf("output = %d and %d bytes, want all", len(stdout), len(stderr))
	}
	var exit *criclient.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 3 || !exit.Exited() {
		t.Errorf("err = %v, want ExitError with code 3", err)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("err = %v repeats the command", err)
	}
	if asked.GetTimeout() != 2 {
		t.Errorf("timeout = %d s, want 1.5 s rounded up: 0 would be for ever", asked.GetTimeout())
	}
}

func TestStoppingWhatIsGoneSucceeds(t *testing.T) {
	gone := &server{answer: func(context.Context, string, any) (any, error) {
		return nil, status.Error(codes.NotFound, "no such thing")
	}}
	c := gone.start(t)
	broken := (&server{answer: func(context.Context, string, any) (any, error) { return nil, status.Error(codes.Unknown, "not found") }}).start(t)
	for name, call := range map[string]func(*criclient.Client) error{
		"StopContainer":    func(c *criclient.Client) error { return c.StopContainer(t.Context(), "x", 1) },
		"RemoveContainer":  func(c *criclient.Client) error { return c.RemoveContainer(t.Context(), "x") },
		"StopPodSandbox":   func(c *criclient.Client) error { return c.StopPodSandbox(t.Context(), "x") },
		"RemovePodSandbox": func(c *criclient.Client) error { return c.RemovePodSandbox(t.Context(), "x") },
		"RemoveImage":      func(c *criclient.Client) error { return c.RemoveImage(t.Context(), nil) },
	} {
		if err := call(c); err != nil {
			t.Errorf("%s of something gone = %v", name, err)
		}
		if err := call(broken); err == nil {
			t.Errorf("%s with an error that is no NotFound = nil", name)
		}
	}
	if err := c.StartContainer(t.Context(), "x"); !errors.Is(err, criclient.ErrNotFound) {
		t.Errorf("StartContainer of something gone = %v, want ErrNotFound", err)
	}
}

func TestErrorsAreSorted(t *testing.T) {
	var code codes.Code
	srv := &server{answer: func(context.Context, string, any) (any, error) { return nil, status.Error(code, "the runtime's words") }}
	c := srv.start(t)
	for want, sentinels := range map[codes.Code][]error{
		codes.NotFound:           {criclient.ErrNotFound},
		codes.AlreadyExists:      {criclient.ErrAlreadyExists},
		codes.Unimplemented:      {criclient.ErrUnimplemented},
		codes.Unavailable:        {criclient.ErrUnavailable},
		codes.ResourceExhausted:  {criclient.ErrResourceExhausted},
		codes.DeadlineExceeded:   {criclient.ErrDeadline, context.DeadlineExceeded},
		codes.Canceled:           {criclient.ErrCanceled, context.Canceled},
		codes.InvalidArgument:    {criclient.ErrInvalidArgument},
		codes.FailedPrecondition: {criclient.ErrFailedPrecondition},
		codes.PermissionDenied:   {criclient.ErrPermissionDenied},
		codes.Unauthenticated:    {criclient.ErrPermissionDenied},
		codes.Internal:           nil,
	} {
		code = want
		err := c.StartContainer(t.Context(), "c1")
		for _, sentinel := range sentinels {
			if !errors.Is(err, sentinel) {
				t.Errorf("%v: %v is not %v", code, err, sentinel)
			}
		}
		if code != codes.NotFound && errors.Is(err, criclient.ErrNotFound) {
			t.Errorf("%v: %v is ErrNotFound", code, err)
		}
		if got := criclient.Message(err); got != "the runtime's words" {
			t.Errorf("%v: Message = %q", code, got)
		}
		if status.Code(err) != code {
			t.Errorf("%v: gRPC code = %v", code, status.Code(err))
		}
	}
	code = codes.Internal
	if got, want := c.StartContainer(t.Context(), "c1").Error(), "start container c1: the runtime's words"; got != want {
		t.Errorf("text = %q, want %q", got, want)
	}
	code = codes.NotFound
	if err := c.StartContainer(t.Context(), "c1"); !crierrors.IsNotFound(err) {
		t.Errorf("cri-api's IsNotFound(%v) = false", err)
	}
}

func TestWrapSortsTheErrorsOfOtherClients(t *testing.T) {
	foreign := status.Error(codes.NotFound, "no such container")
	wrapped := criclient.Wrap("stop it", errors.Join(errors.New("extra"), foreign))
	if !errors.Is(wrapped, criclient.ErrNotFound) || criclient.Message(wrapped) != "no such container" {
		t.Errorf("Wrap = %v, message %q", wrapped, criclient.Message(wrapped))
	}
	if again := criclient.Wrap("pod p", wrapped); again.Error() != "pod p: stop it: no such container" || !errors.Is(again, criclient.ErrNotFound) {
		t.Errorf("Wrap twice = %v", again)
	}
	if criclient.Message(foreign) != "no such container" {
		t.Errorf("Message = %q", criclient.Message(foreign))
	}
	if err := criclient.Wrap("x", nil); err != nil || criclient.Message(nil) != "" {
		t.Errorf("Wrap(nil) = %v", err)
	}
	if err := criclient.Wrap("x", context.DeadlineExceeded); !errors.Is(err, criclient.ErrDeadline) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wrap(deadline) = %v", err)
	}
	if err := criclient.Wrap("x", io.EOF); !errors.Is(err, io.EOF) || err.Error() != "x: EOF" || criclient.Message(err) != "x: EOF" {
		t.Errorf("Wrap(EOF) = %v", err)
	}
}

func TestCheck(t *testing.T) {
	var resp *runtimeapi.VersionResponse
	srv := &server{answer: func(context.Context, string, any) (any, error) {
		if resp == nil {
			return nil, nil
		}
		return resp, nil
	}}
	c := srv.start(t)
	if _, err := c.Check(t.Context()); !errors.Is(err, criclient.ErrNotV1) || !strings.Contains(err.Error(), "containerd 1.6") {
		t.Errorf("Check of a server without CRI v1 = %v, want ErrNotV1 and what to do", err)
	}
	resp = &runtimeapi.VersionResponse{}
	if _, err := c.Check(t.Context()); !errors.Is(err, criclient.ErrMalformed) {
		t.Errorf("Check of a runtime without a name = %v, want ErrMalformed", err)
	}
	resp = &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1.2.3", RuntimeApiVersion: "v1"}
	if got, err := c.Check(t.Context()); err != nil || got != (criclient.Info{Name: "fake", Version: "1.2.3", APIVersion: "v1"}) {
		t.Errorf("Check = %+v, %v", got, err)
	}
}

func TestAnswersWithoutTheEssentialAreErrors(t *testing.T) {
	answers := map[string]any{
		"RunPodSandbox": &runtimeapi.RunPodSandboxResponse{}, "CreateContainer": &runtimeapi.CreateContainerResponse{},
		"PullImage": &runtimeapi.PullImageResponse{}, "Exec": &runtimeapi.ExecResponse{}, "Attach": &runtimeapi.AttachResponse{},
		"PortForward": &runtimeapi.PortForwardResponse{}, "Status": &runtimeapi.StatusResponse{}, "RestorePod": &runtimeapi.RestorePodResponse{},
		"ContainerStats": &runtimeapi.ContainerStatsResponse{}, "PodSandboxStats": &runtimeapi.PodSandboxStatsResponse{},
	}
	c := (&server{answer: func(_ context.Context, method string, _ any) (any, error) { return answers[method], nil }}).start(t)
	ctx := t.Context()
	for method, call := range map[string]func() error{
		"RunPodSandbox":   func() error { _, err := c.RunPodSandbox(ctx, nil, ""); return err },
		"CreateContainer": func() error { _, err := c.CreateContainer(ctx, "s", nil, nil); return err },
		"PullImage":       func() error { _, err := c.PullImage(ctx, nil, nil, nil); return err },
		"Exec":            func() error { _, err := c.Exec(ctx, nil); return err },
		"Attach":          func() error { _, err := c.Attach(ctx, nil); return err },
		"PortForward":     func() error { _, err := c.PortForward(ctx, nil); return err },
		"Status":          func() error { _, err := c.Status(ctx, false); return err },
		"RestorePod":      func() error { _, err := c.RestorePod(ctx, nil); return err },
		"ContainerStats":  func() error { _, err := c.ContainerStats(ctx, "c"); return err },
		"PodSandboxStats": func() error { _, err := c.PodSandboxStats(ctx, "s"); return err },
	} {
		if err := call(); !errors.Is(err, criclient.ErrMalformed) {
			t.Errorf("%s = %v, want ErrMalformed", method, err)
		}
	}
}

func TestHookSeesEveryCall(t *testing.T) {
	var mu sync.Mutex
	got := map[string]error{}
	srv := &server{answer: func(_ context.Context, method string, _ any) (any, error) {
		if method == "StopContainer" {
			return nil, status.Error(codes.NotFound, "gone")
		}
		return nil, nil
	}}
	c := srv.start(t, func(cfg *criclient.Config) {
		cfg.Hooks.Called = func(method string, took time.Duration, err error) {
			mu.Lock()
			defer mu.Unlock()
			if took <= 0 {
				t.Errorf("%s took %v", method, took)
			}
			got[method] = err
		}
	})
	_ = c.StopContainer(t.Context(), "c", 0)
	_, _ = c.ListImages(t.Context(), nil)
	mu.Lock()
	defer mu.Unlock()
	if !errors.Is(got["StopContainer"], criclient.ErrNotFound) || !errors.Is(got["StreamImages"], criclient.ErrUnimplemented) || !errors.Is(got["ListImages"], criclient.ErrUnimplemented) || len(got) != 3 {
		t.Errorf("hook saw %v", got)
	}
}

func TestContainerEvents(t *testing.T) {
	srv := &server{stream: func(_ string, stream grpc.ServerStream) (bool, error) {
		for _, id := range []string{"a", "b"} {
			if err := stream.SendMsg(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
				return true, err
			}
		}
		return true, nil
	}}
	c := srv.start(t)
	events := make(chan *runtimeapi.ContainerEventResponse, 2)
	connected := 0
	err := c.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { connected++ })
	if !errors.Is(err, io.EOF) || connected != 1 {
		t.Errorf("GetContainerEvents = %v after %d connections, want EOF after 1", err, connected)
	}
	if a, b := <-events, <-events; a.GetContainerId() != "a" || b.GetContainerId() != "b" {
		t.Errorf("events = %v, %v", a, b)
	}

	t.Run("a full channel does not hold up the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := c.GetContainerEvents(ctx, make(chan *runtimeapi.ContainerEventResponse),
			func(runtimeapi.RuntimeService_GetContainerEventsClient) { time.AfterFunc(20*time.Millisecond, cancel) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("GetContainerEvents = %v, want canceled", err)
		}
	})
	t.Run("a runtime without events says so", func(t *testing.T) {
		err := (&server{}).start(t).GetContainerEvents(t.Context(), events, nil)
		if !errors.Is(err, criclient.ErrUnimplemented) {
			t.Errorf("GetContainerEvents = %v, want ErrUnimplemented", err)
		}
	})
}

package critest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

func target(cfg critest.Config) critest.Target {
	rt := critest.New(cfg)
	rt.AddImage("localhost/forever:1", critest.Behavior{})
	rt.AddImage("localhost/exit3:1", critest.Exit(3, 0))
	rt.AddImage("localhost/hello:1", critest.Behavior{Exits: true, Print: []critest.Line{{Text: "hello"}}})
	rt.AddImage("localhost/stubborn:1", critest.Behavior{IgnoreTERM: true})
	rt.Publish(critest.Image{Ref: "localhost/pull:1"})
	return critest.Target{
		Runtime:  rt,
		Images:   rt,
		Stubborn: critest.Program{Image: "localhost/stubborn:1"},
		Pull:     "localhost/pull:1",
		Forever:  critest.Program{Image: "localhost/forever:1"},
		Exit3:    critest.Program{Image: "localhost/exit3:1"},
		Hello:    critest.Program{Image: "localhost/hello:1"},
		True:     []string{"/true"},
	}
}

func TestSuiteInProcess(t *testing.T) {
	t.Parallel()
	critest.Suite(t, func(*testing.T) critest.Target { return target(critest.Config{}) })
}

func TestSuiteInProcessLikeContainerd16(t *testing.T) {
	t.Parallel()
	critest.Suite(t, func(*testing.T) critest.Target { return target(critest.Containerd16()) })
}

// socketDir is a directory with a path short enough for a socket's, which
// t.TempDir is not everywhere.
func socketDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "cri")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// overGRPC puts a client and a server between the suite and the runtime.
func overGRPC(t *testing.T, cfg critest.Config) critest.Target {
	tg := target(cfg)
	srv, err := critest.Serve(tg.Runtime.(*critest.Runtime), filepath.Join(socketDir(t), "cri.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	c, err := criclient.New(criclient.Config{Endpoint: srv.Endpoint()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	tg.Runtime, tg.Images = c, c
	return tg
}

func TestSuiteOverGRPC(t *testing.T) {
	t.Parallel()
	critest.Suite(t, func(t *testing.T) critest.Target { return overGRPC(t, critest.Config{}) })
}

func TestSuiteOverGRPCLikeContainerd16(t *testing.T) {
	t.Parallel()
	critest.Suite(t, func(t *testing.T) critest.Target { return overGRPC(t, critest.Containerd16()) })
}

func TestServeOnAListenerOfOnesOwn(t *testing.T) {
	l := bufconn.Listen(1 << 16)
	srv := critest.ServeOn(critest.New(critest.Config{}), l)
	defer func() { require.NoError(t, srv.Close()) }()
	c, err := criclient.New(criclient.Config{
		Endpoint: "in memory",
		Dialer:   func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	v, err := c.Version(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "critest", v.GetRuntimeName())
}

package criclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	_ cri.RuntimeService      = (*Client)(nil)
	_ cri.ImageManagerService = (*Client)(nil)
)

// Message sizes. 16 MiB is what the kubelet accepts and what containerd and
// CRI-O send at most, so a list above it comes in parts. ExecSync may answer
// with 16 MB of each output (api.proto, ExecSyncResponse), hence its own limit.
// A limit costs nothing until a message of that size arrives.
const (
	maxMessage     = 16 << 20
	maxExecMessage = 33 << 20
)

// window is the HTTP/2 flow control window. A fixed one turns off gRPC's
// bandwidth estimate, whose pings cost a wake-up on both sides of every call
// and measure nothing worth knowing on a unix socket.
const window = 1 << 20

// DefaultRuntimeTimeout is the kubelet's default of runtimeRequestTimeout.
const DefaultRuntimeTimeout = 2 * time.Minute

// Config has a useful zero value except for Endpoint.
type Config struct {
	// Endpoint is where the runtime listens: unix:///path. See [SocketPath].
	Endpoint string
	// RuntimeTimeout bounds a call; default [DefaultRuntimeTimeout].
	// RunPodSandbox gets twice as long, for it waits for the network plugin.
	// StopContainer and ExecSync get their own timeout on top. PullImage and
	// GetContainerEvents are bounded by their context alone.
	RuntimeTimeout time.Duration
	// Dialer replaces the unix socket, for runtimes in the same process
	// (grpc/test/bufconn, net.Pipe). It is given Endpoint, which then is only a
	// name and may be any text.
	Dialer func(ctx context.Context, endpoint string) (net.Conn, error)
	Log    logr.Logger // default discards
	Hooks  Hooks       // default no-ops
}

// Hooks report work as it happens.
type Hooks struct {
	// Called is called after each CRI call, with the method's name in the CRI
	// service. A list that took several calls is reported once for each, and an
	// error here is the runtime's answer: that a container to be stopped is gone,
	// or that there is no stream, is no error to the caller.
	Called func(method string, took time.Duration, err error)
}

// Client is a connection to one CRI runtime. Its methods may be called from any
// number of goroutines.
type Client struct {
	cfg     Config
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient

	connects atomic.Uint64 // connections made so far; a new one may be a new runtime
	away     atomic.Bool   // the last dial failed, and that has been logged
	closed   atomic.Bool

	// The connection at which the runtime was found to have no such stream.
	without struct {
		sandboxes, containers, images, containerStats, sandboxStats, metrics atomic.Uint64
	}
}

// New checks cfg. It does not touch the socket: an agent may start before its
// runtime does. The first call connects.
func New(cfg Config) (*Client, error) {
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	switch {
	case cfg.RuntimeTimeout < 0:
		return nil, fmt.Errorf("criclient: runtime timeout %v is negative", cfg.RuntimeTimeout)
	case cfg.RuntimeTimeout == 0:
		cfg.RuntimeTimeout = DefaultRuntimeTimeout
	}
	if cfg.Hooks.Called == nil {
		cfg.Hooks.Called = func(string, time.Duration, error) {}
	}
	if cfg.Dialer == nil {
		path, err := SocketPath(cfg.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("criclient: %w", err)
		}
		if right := "unix://" + path; cfg.Endpoint != right {
			cfg.Log.Info("runtime endpoint has no unix:// before its path; accepted as the kubelet does, but better written out",
				"endpoint", cfg.Endpoint, "better", right)
			cfg.Endpoint = right
		}
		cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	c := &Client{cfg: cfg}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(c.dial),
		// A socket path makes an authority that strict HTTP/2 servers refuse.
		grpc.WithAuthority("localhost"),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("criclient: prepare connection to %s: %w", cfg.Endpoint, err)
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.images = runtimeapi.NewImageServiceClient(c.conn)
	return c, nil
}

func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := c.cfg.Dialer(ctx, c.cfg.Endpoint)
	if err != nil {
		// Once per outage: the next attempts say nothing new.
		if !c.away.Swap(true) && ctx.Err() == nil {
			c.cfg.Log.Info("runtime is not reachable; trying until it is", "endpoint", c.cfg.Endpoint, "err", err.Error())
		}
		return nil, err
	}
	n := c.connects.Add(1)
	c.away.Store(false)
	c.cfg.Log.Info("connected to the runtime", "endpoint", c.cfg.Endpoint, "connection", n)
	return conn, nil
}

// Close ends the connection and every call and stream on it. Later calls fail
// with [ErrUnavailable]. Closing twice is not a mistake. The context is there
// for the sake of the CRI interfaces; nothing waits.
func (c *Client) Close(context.Context) error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.conn.Close()
}

// WaitReady connects and returns when the connection stands, or with the
// context's error. It says nothing about what is at the other end; ask [Client.Check].
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		state := c.conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.Shutdown:
			return c.errClosed("wait for the runtime", "")
		case connectivity.Idle:
			c.conn.Connect()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("wait for the runtime at %s: %w", c.cfg.Endpoint, ctx.Err())
		}
	}
}

// Info is how the runtime introduces itself.
type Info struct {
	Name       string // "containerd", the scheme of container IDs in the API
	Version    string
	APIVersion string
}

// Check asks the runtime who it is. A server that listens but does not speak CRI
// v1 is [ErrNotV1], and the error tells what to do about it.
func (c *Client) Check(ctx context.Context) (Info, error) {
	resp, err := c.Version(ctx, kubeAPIVersion)
	if errors.Is(err, ErrUnimplemented) {
		return Info{}, fmt.Errorf("%w: %s has no service runtime.v1.RuntimeService; "+
			"use containerd 1.6, CRI-O 1.20 or newer, and for containerd take \"cri\" out of disabled_plugins in its config.toml: %w",
			ErrNotV1, c.cfg.Endpoint, err)
	}
	if err != nil {
		return Info{}, err
	}
	if resp.GetRuntimeName() == "" {
		return Info{}, malformed("ask version", c.cfg.Endpoint, "no runtime name")
	}
	return Info{Name: resp.GetRuntimeName(), Version: resp.GetRuntimeVersion(), APIVersion: resp.GetRuntimeApiVersion()}, nil
}

// do makes one CRI call: bounded (limit 0 is no bound), measured, its error turned.
func (c *Client) do(ctx context.Context, method, verb, id string, limit time.Duration, rpc func(context.Context) error) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	start := time.Now()
	err := wrap(verb, id, c.cfg.Endpoint, rpc(ctx))
	if err != nil && c.closed.Load() && ctx.Err() == nil {
		err = c.errClosed(verb, id)
	}
	c.cfg.Hooks.Called(method, time.Since(start), err)
	return err
}

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// Limits against slow and greedy clients. They are the kubelet's, but for the
// header timeout, which the kubelet leaves open to slow-header clients.
const (
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	streamTimeout     = 4 * time.Hour
	maxHeaderBytes    = 1 << 20
	// closeGrace is how long requests may finish after ctx has ended.
	closeGrace = time.Second
)

// Listener is one address and what is served there.
type Listener struct {
	// Name is for logs and errors: "secure", "read-only", "healthz".
	Name string
	// Address is host:port as for [net.Listen]. Port 0 takes a free one.
	Address string
	// TLS is nil for plain HTTP.
	TLS     *tls.Config
	Handler http.Handler
}

// Config of a [Server].
type Config struct {
	Listeners []Listener
	Log       logr.Logger // default discards
}

// Server serves some handlers on some addresses.
type Server struct {
	cfg Config

	mu struct {
		sync.Mutex
		addrs map[string]net.Addr
		bound []net.Listener // nil before Listen
	}
	open chan struct{} // closed when every listener is bound
	ran  atomic.Bool
}

// New checks cfg. It opens nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	names := map[string]bool{}
	for _, l := range cfg.Listeners {
		if l.Name == "" || l.Handler == nil {
			return nil, errors.New("server: a listener needs a name and a handler")
		}
		if names[l.Name] {
			return nil, fmt.Errorf("server: two listeners are named %q", l.Name)
		}
		names[l.Name] = true
		if _, _, err := net.SplitHostPort(l.Address); err != nil {
			return nil, fmt.Errorf("server: address of the %s listener: %w", l.Name, err)
		}
	}
	s := &Server{cfg: cfg, open: make(chan struct{})}
	s.mu.addrs = map[string]net.Addr{}
	return s, nil
}

// Addr returns where the named listener is bound. It waits for [Server.Listen] or
// [Server.Run] to bind it, or for ctx.
func (s *Server) Addr(ctx context.Context, name string) (net.Addr, error) {
	select {
	case <-s.open:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the %s listener: %w", name, ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.mu.addrs[name]
	if !ok {
		return nil, fmt.Errorf("server: no listener is named %q", name)
	}
	return a, nil
}

// Listen binds every address, for an agent that wants to know that its ports are
// free before it starts anything. Run does it too if it was not done, and closes
// what was bound. An address that can't be bound is an error and none is: another
// node agent holds the port, and two agents on one node would undo each other's
// work.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.bound != nil {
		return nil
	}
	bound, err := s.bind(ctx)
	if err != nil {
		return err
	}
	s.mu.bound = bound
	close(s.open)
	return nil
}

// Run binds every address, see [Server.Listen], then serves until ctx ends. It may
// be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("server: Run was called before")
	}
	if err := s.Listen(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	bound := s.mu.bound
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var wg sync.WaitGroup
	errs := make(chan error, len(bound))
	servers := make([]*http.Server, len(bound))
	for i, ln := range bound {
		l := s.cfg.Listeners[i]
		servers[i] = &http.Server{
			Handler:           l.Handler,
			IdleTimeout:       idleTimeout,
			ReadHeaderTimeout: readHeaderTimeout,
			ReadTimeout:       streamTimeout,
			WriteTimeout:      streamTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			TLSConfig:         l.TLS,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          log.New(logWriter{s.cfg.Log.WithValues("listener", l.Name)}, "", 0),
		}
		wg.Go(func() {
			if err := serve(servers[i], ln, l); !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("serve %s on %s: %w", l.Name, ln.Addr(), err)
				cancel()
			}
		})
	}
	<-ctx.Done()
	shutdown(servers)
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	return all
}

func (s *Server) bind(ctx context.Context) ([]net.Listener, error) {
	bound := []net.Listener{}
	for _, l := range s.cfg.Listeners {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.Address)
		if err != nil {
			for _, b := range bound {
				b.Close() //nolint:errcheck // nothing was served on it
			}
			return nil, fmt.Errorf("open the %s port: %w (is another node agent running? change the port in the configuration, or stop it)", l.Name, err)
		}
		bound = append(bound, ln)
		s.mu.addrs[l.Name] = ln.Addr()
		s.cfg.Log.V(1).Info("listening", "name", l.Name, "address", ln.Addr().String(), "tls", l.TLS != nil)
	}
	return bound, nil
}

func serve(srv *http.Server, ln net.Listener, l Listener) error {
	if l.TLS != nil {
		return srv.ServeTLS(ln, "", "")
	}
	return srv.Serve(ln)
}

// shutdown gives requests a moment to end, then cuts what is left: a follower
// of a log would otherwise hold the agent for hours.
func shutdown(servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() {
			if srv.Shutdown(ctx) != nil {
				srv.Close() //nolint:errcheck // the process is on its way out
			}
		})
	}
	wg.Wait()
}

// logWriter takes what net/http has to say about broken clients: news for
// somebody who debugs, not for an operator.
type logWriter struct{ to logr.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.to.V(1).Info("connection", "message", strings.TrimSpace(string(line)))
	return len(line), nil
}

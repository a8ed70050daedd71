package containerdevents

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/pleg"
)

// settle is how long a stream has to stay open before it counts as connected:
// containerd sends nothing that says that it has begun to collect events.
const settle = 100 * time.Millisecond

// namespaceHeader is how containerd's clients name the namespace they are in.
const namespaceHeader = "containerd-namespace"

// Config has a useful zero value except for Address.
type Config struct {
	// Address is containerd's socket, as a path with or without unix:// before
	// it. Required.
	Address string
	// Namespace is where the CRI plugin keeps its containers. Default k8s.io.
	Namespace string
	// Dialer connects to Address. Default: a unix socket.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	Log    logr.Logger // default discards
}

// Source is containerd's event stream.
type Source struct{ cfg Config }

var _ pleg.EventSource = (*Source)(nil)

// New checks cfg and returns a Source that has connected to nothing.
func New(cfg Config) (*Source, error) {
	cfg.Address = strings.TrimPrefix(cfg.Address, "unix://")
	if cfg.Address == "" {
		return nil, errors.New("containerdevents: Config.Address is required, for example /run/containerd/containerd.sock")
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "k8s.io"
	}
	if strings.ContainsAny(cfg.Namespace, "\"\\,") {
		return nil, fmt.Errorf("containerdevents: Config.Namespace %q is no containerd namespace", cfg.Namespace)
	}
	if cfg.Dialer == nil {
		cfg.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", address)
		}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	return &Source{cfg: cfg}, nil
}

// Stream implements [pleg.EventSource]. The connection lives as long as the call.
func (s *Source) Stream(ctx context.Context, connected func(), mark func(pleg.Mark)) error {
	conn, err := grpc.NewClient("passthrough:///containerd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.cfg.Dialer(ctx, s.cfg.Address)
		}))
	if err != nil {
		return fmt.Errorf("connect to containerd at %s: %w", s.cfg.Address, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, namespaceHeader, s.cfg.Namespace))
	defer cancel()
	events, err := eventsapi.NewEventsClient(conn).Subscribe(ctx, &eventsapi.SubscribeRequest{Filters: filters(s.cfg.Namespace)})
	if err != nil {
		return s.ended("subscribe to", err)
	}
	err = s.follow(ctx, cancel, events, connected, mark)
	return s.ended("receive from", err)
}

func (s *Source) ended(verb string, err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%s containerd's events at %s: %w", verb, s.cfg.Address, pleg.ErrEventsUnsupported)
	}
	return fmt.Errorf("%s containerd's events at %s: %w", verb, s.cfg.Address, err)
}

// follow marks what the stream tells until it ends.
func (s *Source) follow(ctx context.Context, cancel func(), events eventsapi.Events_SubscribeClient, connected func(), mark func(pleg.Mark)) error {
	received := make(chan *types.Envelope)
	ended := make(chan error, 1)
	go func() {
		for {
			e, err := events.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case received <- e:
			case <-ctx.Done():
				ended <- ctx.Err()
				return
			}
		}
	}()
	up := false
	open := func() {
		if !up {
			up = true
			connected()
		}
	}
	settled := time.After(settle)
	var again repeats
	for {
		select {
		case <-settled:
			open()
		case e := <-received:
			open()
			if e.GetNamespace() != s.cfg.Namespace {
				continue
			}
			h, err := decode(e)
			if err != nil { // look at everything instead
				s.cfg.Log.Info("Event can't be read, a relist replaces it", "topic", e.GetTopic(), "err", err)
				mark(pleg.Mark{})
				continue
			}
			if h.container == "" {
				continue
			}
			mark(pleg.Mark{Container: h.container})
			switch {
			case h.ended:
				again.add(h.container, h.step, time.Now())
			case h.gone: // nothing more can come of it, and soon nobody knows the ID
				again.drop(h.container)
			}
		case <-again.timer():
			for _, id := range again.due(time.Now()) {
				mark(pleg.Mark{Container: id})
			}
		case err := <-ended:
			cancel()
			return err
		}
	}
}

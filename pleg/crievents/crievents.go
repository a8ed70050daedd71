package crievents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// settle is how long a stream has to stay open before it counts as connected.
// CRI has no first answer to wait for: a client knows neither that the runtime
// supports the call, nor that it has begun to collect events.
const settle = 100 * time.Millisecond

// Runtime is the one call of k8s.io/cri-api's RuntimeService that is needed.
type Runtime interface {
	GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error
}

// Config has no optional fields.
type Config struct {
	Runtime Runtime // required
}

// Source is the CRI event stream.
type Source struct{ runtime Runtime }

var _ pleg.EventSource = (*Source)(nil)

// New checks cfg and returns a Source that has opened nothing.
func New(cfg Config) (*Source, error) {
	if cfg.Runtime == nil {
		return nil, errors.New("crievents: Config.Runtime is required")
	}
	return &Source{runtime: cfg.Runtime}, nil
}

// Stream implements [pleg.EventSource].
func (s *Source) Stream(ctx context.Context, connected func(), mark func(pleg.Mark)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runtimeapi.ContainerEventResponse)
	opened := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- s.runtime.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
			select {
			case opened <- struct{}{}:
			default:
			}
		})
	}()
	// Events are read until the call has returned, also after ctx has ended: some
	// clients can't leave a send that nobody takes.
	up := false
	var settled <-chan time.Time
	for {
		select {
		case <-opened:
			settled = time.After(settle)
		case <-settled:
			if !up {
				up = true
				connected()
			}
		case e := <-events:
			if !up {
				up = true
				connected()
			}
			mark(markOf(e))
		case err := <-ended:
			if status.Code(err) == codes.Unimplemented {
				return fmt.Errorf("open CRI event stream: %w", pleg.ErrEventsUnsupported)
			}
			if err == nil {
				err = errors.New("ended by the runtime")
			}
			return fmt.Errorf("receive CRI events: %w", err)
		}
	}
}

// markOf takes from an event where to look, and nothing else.
func markOf(e *runtimeapi.ContainerEventResponse) pleg.Mark {
	return pleg.Mark{
		Pod:       observed.UID(e.GetPodSandboxStatus().GetMetadata().GetUid()),
		Container: observed.ContainerID(e.GetContainerId()),
	}
}

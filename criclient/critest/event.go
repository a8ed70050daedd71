package critest

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventFault is something that goes wrong with container events on command. To
// lose an exit, drop its CONTAINER_STOPPED_EVENT: the state has changed and
// nobody is told.
type EventFault struct {
	Types     []runtimeapi.ContainerEventType // empty for all
	Container string                          // name or ID of a container, or ID of a sandbox; empty for all
	PodUID    string                          // empty for all
	// Times is how many events are hit; 0 for all until the fault is cleared.
	Times int

	// Drop loses the event.
	Drop bool
	// Duplicate sends it twice.
	Duplicate bool
	// Reorder holds it back until the next event has been sent.
	Reorder bool
	// Delay sends it that much later.
	Delay time.Duration
}

type eventFault struct{ EventFault }

// InjectEvents puts an event fault in force. The function it returns takes it
// away again.
func (r *Runtime) InjectEvents(f EventFault) (clear func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &eventFault{f}
	r.eventFaults = append(r.eventFaults, p)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.eventFaults = slices.DeleteFunc(r.eventFaults, func(q *eventFault) bool { return q == p })
	}
}

// DroppedEvents counts the events that a subscriber lost because its buffer was full.
func (r *Runtime) DroppedEvents() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.eventsDropped
}

// Subscribers counts the open event streams.
func (r *Runtime) Subscribers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.subscribers)
}

// subscriber is one open event stream. All but wake is guarded by the
// runtime's lock.
type subscriber struct {
	r     *Runtime
	wake  chan struct{} // holds one token when there is something to look at
	queue []*runtimeapi.ContainerEventResponse
	err   error
}

func (r *Runtime) subscribe() *subscriber {
	s := &subscriber{r: r, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		s.err = errDown()
		return s
	}
	r.subscribers = append(r.subscribers, s)
	return s
}

func (s *subscriber) close() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.subscribers = slices.DeleteFunc(s.r.subscribers, func(o *subscriber) bool { return o == s })
}

// put never blocks. The lock is held.
func (s *subscriber) put(ev *runtimeapi.ContainerEventResponse) {
	if len(s.queue) >= s.r.cfg.EventBuffer {
		s.r.eventsDropped++
		return
	}
	s.queue = append(s.queue, ev)
	s.nudge()
}

// end closes the stream behind what is queued. The lock is held.
func (s *subscriber) end(err error) {
	s.err = err
	s.nudge()
}

func (s *subscriber) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) next(ctx context.Context) (*runtimeapi.ContainerEventResponse, error) {
	for {
		s.r.mu.Lock()
		if len(s.queue) > 0 {
			ev := s.queue[0]
			s.queue = s.queue[1:]
			s.r.mu.Unlock()
			return ev, nil
		}
		err := s.err
		s.r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, asStatus(ctx.Err())
		}
	}
}

// emit tells the subscribers, with the state of the sandbox and all its
// containers as it is now. The lock is held.
func (r *Runtime) emit(kind runtimeapi.ContainerEventType, sb *sandbox, id string) {
	if len(r.subscribers) == 0 {
		return
	}
	ev := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          r.now(),
		PodSandboxStatus:   sandboxStatus(sb),
	}
	for _, c := range sb.inOrder() {
		ev.ContainersStatuses = append(ev.ContainersStatuses, r.containerStatusOf(c))
	}
	f := r.takeEventFault(kind, sb, id)
	switch {
	case f.Drop:
		return
	case f.Reorder:
		r.held = append(r.held, ev)
		return
	case f.Delay > 0:
		time.AfterFunc(f.Delay, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.send(ev)
		})
		return
	case f.Duplicate:
		r.send(ev)
	}
	r.send(ev)
	r.releaseHeld()
}

func (r *Runtime) releaseHeld() {
	for _, ev := range r.held {
		r.send(ev)
	}
	r.held = nil
}

// send gives every subscriber a copy of its own.
func (r *Runtime) send(ev *runtimeapi.ContainerEventResponse) {
	for _, s := range r.subscribers {
		s.put(clone(ev))
	}
}

func (r *Runtime) takeEventFault(kind runtimeapi.ContainerEventType, sb *sandbox, id string) EventFault {
	name := ""
	for c := range sb.containers {
		if c.id == id {
			name = c.config.GetMetadata().GetName()
		}
	}
	for i, f := range r.eventFaults {
		if len(f.Types) > 0 && !slices.Contains(f.Types, kind) ||
			f.Container != "" && f.Container != id && f.Container != name ||
			f.PodUID != "" && f.PodUID != sb.config.GetMetadata().GetUid() {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				r.eventFaults = slices.Delete(r.eventFaults, i, i+1)
			}
		}
		return f.EventFault
	}
	return EventFault{}
}

// GetContainerEvents sends events to ch until ctx ends or the runtime stops,
// and returns why. established, if not nil, is called once the stream is open;
// the stream it gets reads from the same events, so leave that to this method.
func (r *Runtime) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	return r.streamEvents(ctx, &runtimeapi.GetEventsRequest{}, func(s *subscriber) {
		if established != nil {
			established(&inProcessStream{ctx: ctx, sub: s})
		}
	}, func(ev *runtimeapi.ContainerEventResponse) error {
		select {
		case ch <- ev:
			return nil
		case <-ctx.Done():
			return asStatus(ctx.Err())
		}
	})
}

// streamEvents is the common part of the stream in process and over gRPC. The
// call counts as done when the stream is open; faults hit its opening.
func (r *Runtime) streamEvents(ctx context.Context, req *runtimeapi.GetEventsRequest, opened func(*subscriber),
	send func(*runtimeapi.ContainerEventResponse) error,
) error {
	var sub *subscriber
	_, err := call(ctx, r, "GetContainerEvents", req,
		func(context.Context, *runtimeapi.GetEventsRequest) (*runtimeapi.ContainerEventResponse, error) {
			sub = r.subscribe()
			return &runtimeapi.ContainerEventResponse{}, nil
		})
	if sub != nil {
		defer sub.close()
	}
	if err != nil {
		return err
	}
	opened(sub)
	for {
		ev, err := sub.next(ctx)
		if err != nil {
			return err
		}
		if err := send(ev); err != nil {
			return err
		}
	}
}

// inProcessStream is what the callback of GetContainerEvents gets in process.
type inProcessStream struct {
	ctx context.Context
	sub *subscriber
}

var _ grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse] = (*inProcessStream)(nil)

func (s *inProcessStream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	return s.sub.next(s.ctx)
}
func (s *inProcessStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (s *inProcessStream) Trailer() metadata.MD         { return nil }
func (s *inProcessStream) CloseSend() error             { return nil }
func (s *inProcessStream) Context() context.Context     { return s.ctx }
func (s *inProcessStream) SendMsg(any) error            { return errNoWire }
func (s *inProcessStream) RecvMsg(any) error            { return errNoWire }

var errNoWire = status.Error(codes.Unimplemented, "in process there is no message to encode: use Recv")

package critest

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Call is one CRI call as the runtime saw it.
type Call struct {
	Time   time.Time
	Method string // as in the CRI: "RunPodSandbox"
	// PodUID, Container (its name), ID (of a container or a sandbox) and Image
	// are what the call was about, as far as it says and the runtime knows.
	PodUID    string
	Container string
	ID        string
	Image     string
	// Request is the CRI request message. It is read-only.
	Request proto.Message
	// Err is the answer's error once the call is Done.
	Err  error
	Done bool
}

// Calls returns the newest calls, oldest first; Config.KeepCalls bounds them.
func (r *Runtime) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := make([]Call, len(r.calls))
	for i, c := range r.calls {
		calls[i] = *c
	}
	return calls
}

// ForgetCalls empties what [Runtime.Calls] returns.
func (r *Runtime) ForgetCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

// call runs one CRI call through everything that all calls have in common: the
// record, a runtime that is down, methods that are switched off, and faults.
// The request is copied, so do may keep it.
func call[Req proto.Message, Resp proto.Message](ctx context.Context, r *Runtime, method string, request Req,
	do func(context.Context, Req) (Resp, error),
) (Resp, error) {
	request = proto.Clone(request).(Req)
	c, f, err := r.begin(ctx, method, request)
	resp, err := answer(ctx, r, f, err, func() (Resp, error) { return do(ctx, request) })
	r.end(c, err)
	return resp, err
}

func answer[Resp proto.Message](ctx context.Context, r *Runtime, f Fault, err error, do func() (Resp, error)) (Resp, error) {
	var none Resp
	if err != nil {
		return none, err
	}
	if !f.Late {
		if err := r.suffer(ctx, f); err != nil {
			return none, err
		}
	}
	resp, err := do()
	if err != nil {
		return none, asStatus(err)
	}
	if f.Late {
		if err := r.suffer(ctx, f); err != nil {
			return none, err
		}
	}
	switch {
	case f.TooLarge:
		return none, errTooLarge(r.cfg.MaxAnswer+1, r.cfg.MaxAnswer)
	case f.Empty:
		proto.Reset(resp)
	}
	return resp, nil
}

// begin records the call and takes the fault that hits it.
func (r *Runtime) begin(ctx context.Context, method string, request proto.Message) (*Call, Fault, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Call{Time: time.Now(), Method: method, Request: request}
	r.describe(c, request)
	if r.cfg.KeepCalls > 0 {
		if len(r.calls) >= r.cfg.KeepCalls {
			r.calls = r.calls[1:]
		}
		r.calls = append(r.calls, c)
	}
	switch {
	case ctx.Err() != nil:
		return c, Fault{}, asStatus(ctx.Err())
	case r.stopped:
		return c, Fault{}, errDown()
	case r.unimplemented[method]:
		return c, Fault{}, errUnimplemented(method)
	}
	return c, r.takeFault(*c), nil
}

func (r *Runtime) end(c *Call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Err, c.Done = err, true
}

// describe fills in what a request is about.
func (r *Runtime) describe(c *Call, request proto.Message) {
	switch q := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		c.PodUID = q.GetConfig().GetMetadata().GetUid()
	case *runtimeapi.CreateContainerRequest:
		c.PodUID, c.ID = q.GetSandboxConfig().GetMetadata().GetUid(), q.GetPodSandboxId()
		c.Container = q.GetConfig().GetMetadata().GetName()
		c.Image = q.GetConfig().GetImage().GetImage()
	case *runtimeapi.PullImageRequest:
		c.PodUID = q.GetSandboxConfig().GetMetadata().GetUid()
		c.Image = q.GetImage().GetImage()
	case interface{ GetImage() *runtimeapi.ImageSpec }:
		c.Image = q.GetImage().GetImage()
	case interface{ GetContainerId() string }:
		c.ID = q.GetContainerId()
		if ct, err := r.findContainer(c.ID); err == nil {
			c.ID, c.PodUID, c.Container = ct.id, ct.sandbox.config.GetMetadata().GetUid(), ct.config.GetMetadata().GetName()
		}
	case interface{ GetPodSandboxId() string }:
		c.ID = q.GetPodSandboxId()
		if sb, err := r.findSandbox(c.ID); err == nil {
			c.ID, c.PodUID = sb.id, sb.config.GetMetadata().GetUid()
		}
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		c.PodUID, c.ID = q.GetFilter().GetLabelSelector()[observed.LabelPodUID], q.GetFilter().GetId()
		c.Container = q.GetFilter().GetLabelSelector()[observed.LabelContainerName]
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		c.PodUID, c.ID = q.GetFilter().GetLabelSelector()[observed.LabelPodUID], q.GetFilter().GetId()
	}
}

// asStatus gives an error the form it would have after a trip over gRPC.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return &injected{err: err}
}

// injected is a plain error as a client sees it: code Unknown with the text. In
// process errors.Is still finds the error that the test made.
type injected struct{ err error }

func (e *injected) Error() string              { return e.GRPCStatus().Err().Error() }
func (e *injected) Unwrap() error              { return e.err }
func (e *injected) GRPCStatus() *status.Status { return status.New(codes.Unknown, e.err.Error()) }

func errDown() error {
	return status.Error(codes.Unavailable, "connection error: the container runtime is down")
}

func errUnimplemented(method string) error {
	service := "RuntimeService"
	switch method {
	case "ListImages", "StreamImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo":
		service = "ImageService"
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s for service runtime.v1.%s", method, service)
}

func errTooLarge(size, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "grpc: trying to send message larger than max (%d vs. %d)", size, limit)
}

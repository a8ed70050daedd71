package criclient

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a CRI error is about, for errors.Is.
var (
	ErrNotFound           = errors.New("criclient: not found")
	ErrAlreadyExists      = errors.New("criclient: already exists")
	ErrUnimplemented      = errors.New("criclient: the runtime does not have this call")
	ErrUnavailable        = errors.New("criclient: the runtime is not reachable")
	ErrResourceExhausted  = errors.New("criclient: a limit is exhausted")
	ErrDeadline           = errors.New("criclient: no answer in time") // also context.DeadlineExceeded
	ErrCanceled           = errors.New("criclient: canceled")          // also context.Canceled
	ErrInvalidArgument    = errors.New("criclient: invalid argument")
	ErrFailedPrecondition = errors.New("criclient: not in the state for this call")
	ErrPermissionDenied   = errors.New("criclient: permission denied")
)

// Errors of this package's own making.
var (
	// ErrNotV1 is a server that does not speak CRI v1.
	ErrNotV1 = errors.New("criclient: not a CRI v1 runtime")
	// ErrMalformed is an answer that lacks what CRI says it has.
	ErrMalformed = errors.New("criclient: malformed answer")
)

// Error is a CRI call that failed.
type Error struct {
	// Verb is what was being done: "stop container".
	Verb string
	// ID is what it was done to; empty when that is nothing in particular.
	ID string
	// Message is the runtime's own, bare. The API shows it as the message of a
	// waiting container.
	Message string
	// Endpoint is set when the runtime could not be reached.
	Endpoint string

	status *status.Status
}

func (e *Error) Error() string {
	text := e.Verb
	if e.ID != "" {
		text += " " + e.ID
	}
	if e.Endpoint != "" {
		text += ": no answer from " + e.Endpoint
	}
	if text == "" {
		return e.Message
	}
	return text + ": " + e.Message
}

// Unwrap returns the sentinels this error is.
func (e *Error) Unwrap() []error {
	switch e.status.Code() {
	case codes.NotFound:
		return []error{ErrNotFound}
	case codes.AlreadyExists:
		return []error{ErrAlreadyExists}
	case codes.Unimplemented:
		return []error{ErrUnimplemented}
	case codes.Unavailable:
		return []error{ErrUnavailable}
	case codes.ResourceExhausted:
		return []error{ErrResourceExhausted}
	case codes.DeadlineExceeded:
		return []error{ErrDeadline, context.DeadlineExceeded}
	case codes.Canceled:
		return []error{ErrCanceled, context.Canceled}
	case codes.InvalidArgument:
		return []error{ErrInvalidArgument}
	case codes.FailedPrecondition:
		return []error{ErrFailedPrecondition}
	case codes.PermissionDenied, codes.Unauthenticated:
		return []error{ErrPermissionDenied}
	}
	return nil
}

// GRPCStatus keeps code that was written for k8s.io/cri-client working, such as
// IsNotFound of k8s.io/cri-api/pkg/errors. The rooms of this module use errors.Is.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Wrap turns the error of any CRI client into this package's: a gRPC status
// becomes an [*Error] with its sentinel. An error that already is one keeps its
// own text and gets verb before it. Other errors, and errors of a context, are
// wrapped as they are. Nil stays nil.
func Wrap(verb string, err error) error { return wrap(verb, "", "", err) }

func wrap(verb, id, endpoint string, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return prefix(verb, err)
	}
	s := statusOf(err)
	if s == nil {
		return prefix(verb, err)
	}
	e := &Error{Verb: verb, ID: id, Message: s.Message(), status: s}
	if e.Message == "" {
		e.Message = s.Code().String()
	}
	if s.Code() == codes.Unavailable {
		e.Endpoint = endpoint
	}
	return e
}

func prefix(verb string, err error) error {
	if verb == "" {
		return err
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// statusOf is nil for errors that neither are a gRPC status nor come from a
// context. It takes the status itself and not status.FromError's, which has the
// texts of everything around it in its message.
func statusOf(err error) *status.Status {
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		if s := carrier.GRPCStatus(); s.Code() != codes.OK {
			return s
		}
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err)
	}
	return nil
}

// Message returns the runtime's own words in err, without what the callers in
// between put around them; for other errors it is the whole text.
func Message(err error) string {
	if err == nil {
		return ""
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Message
	}
	if s := statusOf(err); s != nil && s.Message() != "" {
		return s.Message()
	}
	return err.Error()
}

func (c *Client) errClosed(verb, id string) error {
	return wrap(verb, id, c.cfg.Endpoint, status.Error(codes.Unavailable, "the client is closed"))
}

func malformed(verb, id, what string) error {
	if id != "" {
		verb += " " + id
	}
	return fmt.Errorf("%s: %w: %s", verb, ErrMalformed, what)
}

// ExitError is a command that ran to its end in ExecSync, which was not exit
// code 0. It has the methods of ExitError in k8s.io/utils/exec. The command's
// arguments may hold secrets and are not repeated.
type ExitError struct {
	Container string
	Code      int
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("command in container %s ended with exit code %d", e.Container, e.Code)
}

// String is the same as Error.
func (e *ExitError) String() string { return e.Error() }

// Exited is always true.
func (e *ExitError) Exited() bool { return true }

// ExitStatus returns the exit code.
func (e *ExitError) ExitStatus() int { return e.Code }

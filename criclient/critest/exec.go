package critest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExitError is what ExecSync returns for a command that exits with another code
// than 0. It has the methods of ExitError in k8s.io/utils/exec.
type ExitError struct {
	Cmd    []string
	Code   int
	Stderr string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Cmd, " "), e.Code, e.Stderr)
}

func (e *ExitError) String() string  { return e.Error() }
func (e *ExitError) Exited() bool    { return true }
func (e *ExitError) ExitStatus() int { return e.Code }

func (r *Runtime) execSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	b, err := r.execIn(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	var res ExecResult
	if b.Exec != nil {
		res = b.Exec(req.GetCmd())
	}
	limit := time.Duration(req.GetTimeout()) * time.Second
	late := limit > 0 && res.Takes > limit
	if late {
		res.Takes = limit
	}
	if res.Takes > 0 {
		t := time.NewTimer(res.Takes)
		defer t.Stop()
		if err := r.wait(ctx, t.C); err != nil {
			return nil, err
		}
	}
	if late {
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: context deadline exceeded", limit)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(res.Stdout), Stderr: []byte(res.Stderr), ExitCode: res.Code}, nil
}

// execIn returns what a running container does with commands.
func (r *Runtime) execIn(id string) (Behavior, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(id)
	if err != nil {
		return Behavior{}, status.Errorf(codes.NotFound, "failed to find container %q in store: not found", id)
	}
	if c.state != running {
		return Behavior{}, status.Errorf(codes.Unknown, "container is in %s state", c.state)
	}
	return c.behavior, nil
}

func (r *Runtime) forwardTo(sandboxID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(sandboxID)
	if err != nil {
		return err
	}
	if sb.state != ready {
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", sb.id)
	}
	return nil
}

// streamURL answers the calls that only hand out the address of a stream.
func (r *Runtime) streamURL(method string, request proto.Message) (string, error) {
	switch q := request.(type) {
	case interface{ GetContainerId() string }:
		if _, err := r.execIn(q.GetContainerId()); err != nil {
			return "", err
		}
	case interface{ GetPodSandboxId() string }:
		if err := r.forwardTo(q.GetPodSandboxId()); err != nil {
			return "", err
		}
	}
	if r.cfg.StreamURL == nil {
		return "", status.Errorf(codes.Unimplemented, "critest has no processes to stream to: set Config.StreamURL to answer %s", method)
	}
	return r.cfg.StreamURL(method, request)
}

func (r *Runtime) exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	url, err := r.streamURL("Exec", req)
	return &runtimeapi.ExecResponse{Url: url}, err
}

func (r *Runtime) attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	url, err := r.streamURL("Attach", req)
	return &runtimeapi.AttachResponse{Url: url}, err
}

func (r *Runtime) portForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	url, err := r.streamURL("PortForward", req)
	return &runtimeapi.PortForwardResponse{Url: url}, err
}

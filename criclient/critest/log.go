package critest

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// openLog makes the log file. Its directory is the agent's business, and a
// missing one fails the start, as in containerd. The file stays open only for a
// container that prints: open files are scarcer than containers.
func (r *Runtime) openLog(c *container) error {
	if c.logPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("failed to create and open log file: %w", err)
	}
	if len(c.behavior.Print) == 0 {
		return f.Close()
	}
	c.log = f
	return nil
}

func (c *container) closeLog() {
	if c.log != nil {
		_ = c.log.Close()
		c.log = nil
	}
}

// print writes one line in the CRI log format: time, stream, tag, text.
func (r *Runtime) print(c *container, l Line) {
	if c.log == nil || r.diskFull {
		return
	}
	stream, tag := "stdout", "F"
	if l.Stderr {
		stream = "stderr"
	}
	if l.Partial {
		tag = "P"
	}
	_, _ = fmt.Fprintf(c.log, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), stream, tag, l.Text)
}

// reopenContainerLog goes over to a new file after a rotation renamed the old one.
func (r *Runtime) reopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != running {
		return nil, status.Error(codes.Unknown, "container is not running")
	}
	old := c.log
	c.log = nil
	if err := r.openLog(c); err != nil {
		c.log = old
		return nil, status.Error(codes.Unknown, err.Error())
	}
	if old != nil {
		_ = old.Close()
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}

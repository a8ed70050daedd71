package criclient

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer creates a container in a sandbox and returns its ID.
func (c *Client) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	name := config.GetMetadata().GetName()
	var id string
	err := c.do(ctx, "CreateContainer", "create container", name, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		resp, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandboxConfig})
		id = resp.GetContainerId()
		return err
	})
	if err == nil && id == "" {
		err = malformed("create container", name, "no container ID")
	}
	return id, err
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	return c.do(ctx, "StartContainer", "start container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		return err
	})
}

// StopContainer sends the stop signal and kills after timeout seconds. A
// container that is gone is stopped.
func (c *Client) StopContainer(ctx context.Context, id string, timeout int64) error {
	timeout = max(timeout, 0)
	return unlessGone(c.do(ctx, "StopContainer", "stop container", id, c.limitAfter(timeout), func(ctx context.Context) error {
		_, err := c.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
		return err
	}))
}

// RemoveContainer removes the container, by force if it runs. One that is gone
// is removed.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	return unlessGone(c.do(ctx, "RemoveContainer", "remove container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	}))
}

// ContainerStatus returns the container's state, times, exit code and mounts.
func (c *Client) ContainerStatus(ctx context.Context, id string, verbose bool) (resp *runtimeapi.ContainerStatusResponse, err error) {
	err = c.do(ctx, "ContainerStatus", "ask status of container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// UpdateContainerResources changes the limits of a running container.
func (c *Client) UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error {
	return c.do(ctx, "UpdateContainerResources", "update resources of container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: resources.GetLinux(), Windows: resources.GetWindows(),
		})
		return err
	})
}

// ExecSync runs a command in the container and returns what it wrote. A command
// that ends with another code than 0 is an [*ExitError], beside its output.
// A timeout of 0 is none; others are rounded up to the seconds that CRI counts in.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	var seconds int64
	var limit time.Duration
	if timeout > 0 {
		// Down to 0 would be "for ever".
		seconds = int64((timeout-1)/time.Second) + 1
		limit = c.limitAfter(seconds)
	}
	var resp *runtimeapi.ExecSyncResponse
	err = c.do(ctx, "ExecSync", "run command in container", id, limit, func(ctx context.Context) (err error) {
		resp, err = c.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds},
			grpc.MaxCallRecvMsgSize(maxExecMessage))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if code := resp.GetExitCode(); code != 0 {
		err = &ExitError{Container: id, Code: int(code)}
	}
	return resp.GetStdout(), resp.GetStderr(), err
}

// Exec returns the URL at which a command can be run with streams.
func (c *Client) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (resp *runtimeapi.ExecResponse, err error) {
	err = c.do(ctx, "Exec", "prepare exec in container", req.GetContainerId(), c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.Exec(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetUrl() == "" {
		return nil, malformed("prepare exec in container", req.GetContainerId(), "no URL")
	}
	return resp, nil
}

// Attach returns the URL at which the container's own streams can be reached.
func (c *Client) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (resp *runtimeapi.AttachResponse, err error) {
	err = c.do(ctx, "Attach", "prepare attach to container", req.GetContainerId(), c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.Attach(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetUrl() == "" {
		return nil, malformed("prepare attach to container", req.GetContainerId(), "no URL")
	}
	return resp, nil
}

// ReopenContainerLog makes the runtime write to the log path anew after the file
// was moved away. After an error no new file exists.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	return c.do(ctx, "ReopenContainerLog", "reopen log of container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		return err
	})
}

// CheckpointContainer writes a checkpoint of the container to options.Location.
func (c *Client) CheckpointContainer(ctx context.Context, options *runtimeapi.CheckpointContainerRequest) error {
	id := options.GetContainerId()
	if options.GetTimeout() < 0 {
		return errors.New("checkpoint container " + id + ": the timeout is negative")
	}
	return c.do(ctx, "CheckpointContainer", "checkpoint container", id, c.limitAfter(options.GetTimeout()), func(ctx context.Context) error {
		_, err := c.runtime.CheckpointContainer(ctx, options)
		return err
	})
}

// limitAfter is the limit of a call in which the runtime may take seconds for the
// work itself. More seconds than a Duration can hold are no limit.
func (c *Client) limitAfter(seconds int64) time.Duration {
	if seconds > int64((math.MaxInt64-c.cfg.RuntimeTimeout)/time.Second) {
		return 0
	}
	return time.Duration(seconds)*time.Second + c.cfg.RuntimeTimeout
}

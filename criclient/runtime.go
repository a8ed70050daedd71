package criclient

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubeAPIVersion is what the kubelet says of itself when it asks for the version.
const kubeAPIVersion = "0.1.0"

// Version returns the runtime's name and versions. [Client.Check] explains more.
func (c *Client) Version(ctx context.Context, apiVersion string) (resp *runtimeapi.VersionResponse, err error) {
	err = c.do(ctx, "Version", "ask version", "", c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Status returns the runtime's conditions, RuntimeReady and NetworkReady among them.
func (c *Client) Status(ctx context.Context, verbose bool) (resp *runtimeapi.StatusResponse, err error) {
	err = c.do(ctx, "Status", "ask runtime status", "", c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: verbose})
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetStatus() == nil {
		return nil, malformed("ask runtime status", "", "no status")
	}
	return resp, nil
}

// RuntimeConfig returns what the runtime tells the agent to use, such as the cgroup driver.
func (c *Client) RuntimeConfig(ctx context.Context) (resp *runtimeapi.RuntimeConfigResponse, err error) {
	err = c.do(ctx, "RuntimeConfig", "ask runtime configuration", "", c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// UpdateRuntimeConfig hands the runtime its pod CIDR.
func (c *Client) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	return c.do(ctx, "UpdateRuntimeConfig", "update runtime configuration", "", c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: config})
		return err
	})
}

// GetContainerEvents sends the runtime's events to events until the stream or
// ctx ends, and always returns an error: io.EOF inside it when the runtime ended
// the stream, [ErrUnimplemented] when the runtime has no events. A full channel
// makes it wait, and then the runtime too; the channel is never closed.
//
// connected is called when the stream is open on this side. A runtime without
// events is found out only after that.
func (c *Client) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, connected func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	return c.do(ctx, "GetContainerEvents", "receive container events", "", 0, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream
		stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			return err
		}
		if connected != nil {
			connected(stream)
		}
		for {
			event, err := stream.Recv()
			if err != nil {
				return err
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

package criclient

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox and returns its ID.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	m := config.GetMetadata()
	name := m.GetNamespace() + "/" + m.GetName()
	var id string
	err := c.do(ctx, "RunPodSandbox", "run pod sandbox", name, 2*c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		resp, err := c.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: runtimeHandler})
		id = resp.GetPodSandboxId()
		return err
	})
	if err == nil && id == "" {
		err = malformed("run pod sandbox", name, "no sandbox ID")
	}
	return id, err
}

// StopPodSandbox stops the sandbox and kills what still runs in it. One that is
// gone is stopped.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	return unlessGone(c.do(ctx, "StopPodSandbox", "stop pod sandbox", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		return err
	}))
}

// RemovePodSandbox removes the sandbox and the containers in it. One that is
// gone is removed.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	return unlessGone(c.do(ctx, "RemovePodSandbox", "remove pod sandbox", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		_, err := c.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return err
	}))
}

// PodSandboxStatus returns the sandbox's state and addresses.
func (c *Client) PodSandboxStatus(ctx context.Context, id string, verbose bool) (resp *runtimeapi.PodSandboxStatusResponse, err error) {
	err = c.do(ctx, "PodSandboxStatus", "ask status of pod sandbox", id, c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// PortForward returns the URL at which ports of the sandbox can be reached.
func (c *Client) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (resp *runtimeapi.PortForwardResponse, err error) {
	err = c.do(ctx, "PortForward", "prepare port forward to pod sandbox", req.GetPodSandboxId(), c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.PortForward(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetUrl() == "" {
		return nil, malformed("prepare port forward to pod sandbox", req.GetPodSandboxId(), "no URL")
	}
	return resp, nil
}

// UpdatePodSandboxResources tells the runtime of a pod's new resources.
func (c *Client) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (resp *runtimeapi.UpdatePodSandboxResourcesResponse, err error) {
	err = c.do(ctx, "UpdatePodSandboxResources", "update resources of pod sandbox", req.GetPodSandboxId(), c.cfg.RuntimeTimeout, func(ctx context.Context) (err error) {
		resp, err = c.runtime.UpdatePodSandboxResources(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// CheckpointPod writes a checkpoint of a running pod. The context should have a
// deadline that fits the pod's memory; without one RuntimeTimeout bounds it.
func (c *Client) CheckpointPod(ctx context.Context, req *runtimeapi.CheckpointPodRequest) error {
	return c.do(ctx, "CheckpointPod", "checkpoint pod sandbox", req.GetPodSandboxId(), c.limitUnlessSet(ctx), func(ctx context.Context) error {
		_, err := c.runtime.CheckpointPod(ctx, req)
		return err
	})
}

// RestorePod makes a sandbox and created containers from a checkpoint. Its time
// is bounded as that of [Client.CheckpointPod].
func (c *Client) RestorePod(ctx context.Context, req *runtimeapi.RestorePodRequest) (resp *runtimeapi.RestorePodResponse, err error) {
	err = c.do(ctx, "RestorePod", "restore pod from", req.GetCheckpointPath(), c.limitUnlessSet(ctx), func(ctx context.Context) (err error) {
		resp, err = c.runtime.RestorePod(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.GetPodSandboxId() == "" {
		return nil, malformed("restore pod from", req.GetCheckpointPath(), "no sandbox ID")
	}
	return resp, nil
}

func (c *Client) limitUnlessSet(ctx context.Context) time.Duration {
	if _, set := ctx.Deadline(); set {
		return 0
	}
	return c.cfg.RuntimeTimeout
}

// unlessGone makes stopping and removing what is not there a success. CRI asks
// that of runtimes (api.proto: "this call is idempotent"); not all comply.
func unlessGone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

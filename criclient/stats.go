package criclient

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats returns the use of one container.
func (c *Client) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	var stats *runtimeapi.ContainerStats
	err := c.do(ctx, "ContainerStats", "ask stats of container", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		resp, err := c.runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
		stats = resp.GetStats()
		return err
	})
	if err == nil && stats == nil {
		err = malformed("ask stats of container", id, "no stats")
	}
	return stats, err
}

// PodSandboxStats returns the use of one pod.
func (c *Client) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	var stats *runtimeapi.PodSandboxStats
	err := c.do(ctx, "PodSandboxStats", "ask stats of pod sandbox", id, c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		resp, err := c.runtime.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
		stats = resp.GetStats()
		return err
	})
	if err == nil && stats == nil {
		err = malformed("ask stats of pod sandbox", id, "no stats")
	}
	return stats, err
}

// ListMetricDescriptors describes the metrics of [Client.ListPodSandboxMetrics].
func (c *Client) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	var all []*runtimeapi.MetricDescriptor
	err := c.do(ctx, "ListMetricDescriptors", "list metric descriptors", "", c.cfg.RuntimeTimeout, func(ctx context.Context) error {
		resp, err := c.runtime.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
		all = resp.GetDescriptors()
		return err
	})
	return all, err
}

package critest

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The methods of RuntimeService, in process. Answers are copies: a caller may
// change them.

// Version tells the runtime's name and versions.
func (r *Runtime) Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error) {
	return r.rpc().Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
}

// Status tells whether the runtime and its network are ready.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return r.rpc().Status(ctx, &runtimeapi.StatusRequest{Verbose: verbose})
}

// RuntimeConfig tells the cgroup driver.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return r.rpc().RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
}

// UpdateRuntimeConfig is accepted and has no effect, as in containerd without a CNI template.
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, cfg *runtimeapi.RuntimeConfig) error {
	_, err := r.rpc().UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: cfg})
	return err
}

// Close is where a client would close its connection. There is none.
func (r *Runtime) Close(context.Context) error { return nil }

// RunPodSandbox makes a ready sandbox. Its name, namespace, UID and attempt are
// reserved until it is removed.
func (r *Runtime) RunPodSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	resp, err := r.rpc().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
	return resp.GetPodSandboxId(), err
}

// StopPodSandbox kills the sandbox's containers and gives its address back.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	_, err := r.rpc().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox stops the sandbox and removes it with its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := r.rpc().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// PodSandboxStatus returns one sandbox, or NotFound.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return r.rpc().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
}

// ListPodSandbox returns the sandboxes that the filter selects, oldest first.
func (r *Runtime) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	resp, err := r.rpc().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: f})
	return resp.GetItems(), err
}

// PortForward answers with Config.StreamURL.
func (r *Runtime) PortForward(ctx context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.rpc().PortForward(ctx, req)
}

// UpdatePodSandboxResources is accepted and has no effect.
func (r *Runtime) UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return r.rpc().UpdatePodSandboxResources(ctx, req)
}

// CheckpointPod is Unimplemented.
func (r *Runtime) CheckpointPod(ctx context.Context, req *runtimeapi.CheckpointPodRequest) error {
	_, err := r.rpc().CheckpointPod(ctx, req)
	return err
}

// RestorePod is Unimplemented.
func (r *Runtime) RestorePod(ctx context.Context, req *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return r.rpc().RestorePod(ctx, req)
}

// CreateContainer makes a container of a present image in a ready sandbox. Its
// name and attempt are reserved within the pod until it is removed.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, cfg *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := r.rpc().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: cfg, SandboxConfig: pod})
	return resp.GetContainerId(), err
}

// StartContainer starts a created container: it then does what the [Behavior]
// of its image says. A container starts at most once.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	_, err := r.rpc().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer sends TERM, and KILL after timeout seconds, and returns when
// the container has ended. With timeout 0 it sends KILL at once.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	_, err := r.rpc().StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout})
	return err
}

// RemoveContainer removes a container, and kills it first if it runs.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	_, err := r.rpc().RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// ListContainers returns the containers that the filter selects, oldest first.
func (r *Runtime) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	resp, err := r.rpc().ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: f})
	return resp.GetContainers(), err
}

// ContainerStatus returns one container, or NotFound.
func (r *Runtime) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	return r.rpc().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
}

// UpdateContainerResources changes the resources that are set in res.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, res *runtimeapi.ContainerResources) error {
	_, err := r.rpc().UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: res.GetLinux(), Windows: res.GetWindows(),
	})
	return err
}

// ExecSync runs a command by the script of [Behavior]. A code other than 0 is
// an [ExitError]; the output comes with it.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	seconds := int64((timeout + time.Second - 1) / time.Second) // the CRI counts in seconds
	resp, err := r.rpc().ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	if err != nil {
		return nil, nil, err
	}
	if resp.GetExitCode() != 0 {
		err = &ExitError{Cmd: cmd, Code: int(resp.GetExitCode()), Stderr: string(resp.GetStderr())}
	}
	return resp.GetStdout(), resp.GetStderr(), err
}

// Exec answers with Config.StreamURL.
func (r *Runtime) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.rpc().Exec(ctx, req)
}

// Attach answers with Config.StreamURL.
func (r *Runtime) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return r.rpc().Attach(ctx, req)
}

// ReopenContainerLog makes a running container write to a new file at its path.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := r.rpc().ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer is Unimplemented.
func (r *Runtime) CheckpointContainer(ctx context.Context, req *runtimeapi.CheckpointContainerRequest) error {
	_, err := r.rpc().CheckpointContainer(ctx, req)
	return err
}

// ContainerStats returns what a running container uses.
func (r *Runtime) ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error) {
	resp, err := r.rpc().ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	return resp.GetStats(), err
}

// ListContainerStats returns what the running containers use.
func (r *Runtime) ListContainerStats(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	resp, err := r.rpc().ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: f})
	return resp.GetStats(), err
}

// PodSandboxStats returns what a ready sandbox and its containers use.
func (r *Runtime) PodSandboxStats(ctx context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	resp, err := r.rpc().PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
	return resp.GetStats(), err
}

// ListPodSandboxStats returns what the ready sandboxes use.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	resp, err := r.rpc().ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: f})
	return resp.GetStats(), err
}

// ListMetricDescriptors is Unimplemented.
func (r *Runtime) ListMetricDescriptors(ctx context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	resp, err := r.rpc().ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	return resp.GetDescriptors(), err
}

// ListPodSandboxMetrics is Unimplemented.
func (r *Runtime) ListPodSandboxMetrics(ctx context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	resp, err := r.rpc().ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	return resp.GetPodMetrics(), err
}

// The methods of ImageManagerService, in process.

// ListImages returns the images in the store that the filter selects.
func (r *Runtime) ListImages(ctx context.Context, f *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	resp, err := r.rpc().ListImages(ctx, &runtimeapi.ListImagesRequest{Filter: f})
	return resp.GetImages(), err
}

// ImageStatus returns one image; a nil Image in the answer means it is not there.
func (r *Runtime) ImageStatus(ctx context.Context, img *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return r.rpc().ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: img, Verbose: verbose})
}

// PullImage brings an image from the registry into the store and returns its ID.
func (r *Runtime) PullImage(ctx context.Context, img *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := r.rpc().PullImage(ctx, &runtimeapi.PullImageRequest{Image: img, Auth: auth, SandboxConfig: pod})
	return resp.GetImageRef(), err
}

// RemoveImage removes an image under all its names.
func (r *Runtime) RemoveImage(ctx context.Context, img *runtimeapi.ImageSpec) error {
	_, err := r.rpc().RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: img})
	return err
}

// ImageFsInfo returns what images and containers take on disk.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return r.rpc().ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
}

package critest

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rpc is the CRI as gRPC sees it. The methods of [Runtime] and of [Server] both
// go through it, so that a call is the same call on either way.
type rpc struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	r *Runtime
}

func (r *Runtime) rpc() rpc { return rpc{r: r} }

// absent is the answer of a method that this runtime does not have.
func absent[Req, Resp proto.Message](method string) func(context.Context, Req) (Resp, error) {
	return func(context.Context, Req) (Resp, error) {
		var none Resp
		return none, errUnimplemented(method)
	}
}

func (p rpc) Version(ctx context.Context, q *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return call(ctx, p.r, "Version", q, p.r.version)
}

func (p rpc) RunPodSandbox(ctx context.Context, q *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	return call(ctx, p.r, "RunPodSandbox", q, p.r.runPodSandbox)
}

func (p rpc) StopPodSandbox(ctx context.Context, q *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return call(ctx, p.r, "StopPodSandbox", q, p.r.stopPodSandbox)
}

func (p rpc) RemovePodSandbox(ctx context.Context, q *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return call(ctx, p.r, "RemovePodSandbox", q, p.r.removePodSandbox)
}

func (p rpc) PodSandboxStatus(ctx context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return call(ctx, p.r, "PodSandboxStatus", q, p.r.podSandboxStatus)
}

func (p rpc) ListPodSandbox(ctx context.Context, q *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return call(ctx, p.r, "ListPodSandbox", q, p.r.listPodSandbox)
}

func (p rpc) CreateContainer(ctx context.Context, q *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	return call(ctx, p.r, "CreateContainer", q, p.r.createContainer)
}

func (p rpc) StartContainer(ctx context.Context, q *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return call(ctx, p.r, "StartContainer", q, p.r.startContainer)
}

func (p rpc) StopContainer(ctx context.Context, q *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return call(ctx, p.r, "StopContainer", q, p.r.stopContainer)
}

func (p rpc) RemoveContainer(ctx context.Context, q *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return call(ctx, p.r, "RemoveContainer", q, p.r.removeContainer)
}

func (p rpc) ListContainers(ctx context.Context, q *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return call(ctx, p.r, "ListContainers", q, p.r.listContainers)
}

func (p rpc) ContainerStatus(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return call(ctx, p.r, "ContainerStatus", q, p.r.containerStatus)
}

func (p rpc) UpdateContainerResources(ctx context.Context, q *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return call(ctx, p.r, "UpdateContainerResources", q, p.r.updateContainerResources)
}

func (p rpc) ReopenContainerLog(ctx context.Context, q *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return call(ctx, p.r, "ReopenContainerLog", q, p.r.reopenContainerLog)
}

func (p rpc) ExecSync(ctx context.Context, q *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return call(ctx, p.r, "ExecSync", q, p.r.execSync)
}

func (p rpc) Exec(ctx context.Context, q *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return call(ctx, p.r, "Exec", q, p.r.exec)
}

func (p rpc) Attach(ctx context.Context, q *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return call(ctx, p.r, "Attach", q, p.r.attach)
}

func (p rpc) PortForward(ctx context.Context, q *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return call(ctx, p.r, "PortForward", q, p.r.portForward)
}

func (p rpc) ContainerStats(ctx context.Context, q *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	return call(ctx, p.r, "ContainerStats", q, p.r.containerStats)
}

func (p rpc) ListContainerStats(ctx context.Context, q *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return call(ctx, p.r, "ListContainerStats", q, p.r.listContainerStats)
}

func (p rpc) PodSandboxStats(ctx context.Context, q *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	return call(ctx, p.r, "PodSandboxStats", q, p.r.podSandboxStats)
}

func (p rpc) ListPodSandboxStats(ctx context.Context, q *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return call(ctx, p.r, "ListPodSandboxStats", q, p.r.listPodSandboxStats)
}

func (p rpc) UpdateRuntimeConfig(ctx context.Context, q *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return call(ctx, p.r, "UpdateRuntimeConfig", q, p.r.updateRuntimeConfig)
}

func (p rpc) Status(ctx context.Context, q *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return call(ctx, p.r, "Status", q, p.r.status)
}

func (p rpc) RuntimeConfig(ctx context.Context, q *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, p.r, "RuntimeConfig", q, p.r.runtimeConfig)
}

func (p rpc) UpdatePodSandboxResources(ctx context.Context, q *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return call(ctx, p.r, "UpdatePodSandboxResources", q, p.r.updatePodSandboxResources)
}

func (p rpc) CheckpointContainer(ctx context.Context, q *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return call(ctx, p.r, "CheckpointContainer", q, absent[*runtimeapi.CheckpointContainerRequest, *runtimeapi.CheckpointContainerResponse]("CheckpointContainer"))
}

func (p rpc) CheckpointPod(ctx context.Context, q *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return call(ctx, p.r, "CheckpointPod", q, absent[*runtimeapi.CheckpointPodRequest, *runtimeapi.CheckpointPodResponse]("CheckpointPod"))
}

func (p rpc) RestorePod(ctx context.Context, q *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return call(ctx, p.r, "RestorePod", q, absent[*runtimeapi.RestorePodRequest, *runtimeapi.RestorePodResponse]("RestorePod"))
}

func (p rpc) ListMetricDescriptors(ctx context.Context, q *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return call(ctx, p.r, "ListMetricDescriptors", q, absent[*runtimeapi.ListMetricDescriptorsRequest, *runtimeapi.ListMetricDescriptorsResponse]("ListMetricDescriptors"))
}

func (p rpc) ListPodSandboxMetrics(ctx context.Context, q *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return call(ctx, p.r, "ListPodSandboxMetrics", q, absent[*runtimeapi.ListPodSandboxMetricsRequest, *runtimeapi.ListPodSandboxMetricsResponse]("ListPodSandboxMetrics"))
}

func (p rpc) ListImages(ctx context.Context, q *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return call(ctx, p.r, "ListImages", q, p.r.listImages)
}

func (p rpc) ImageStatus(ctx context.Context, q *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return call(ctx, p.r, "ImageStatus", q, p.r.imageStatus)
}

func (p rpc) PullImage(ctx context.Context, q *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return call(ctx, p.r, "PullImage", q, p.r.pullImage)
}

func (p rpc) RemoveImage(ctx context.Context, q *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return call(ctx, p.r, "RemoveImage", q, p.r.removeImage)
}

func (p rpc) ImageFsInfo(ctx context.Context, q *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, p.r, "ImageFsInfo", q, p.r.imageFsInfo)
}

package critest

import (
	"context"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every running container uses a twentieth of a core and the same memory, so
// that stats are plausible, counters only grow, and tests can tell the sum.
const (
	cpuShare    = 20
	memoryBytes = 8 << 20
	layerBytes  = 16 << 10
	layerInodes = 4
	imageRoot   = "/var/lib/critest"
)

func u64(v uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: v} }

func filesystem(at int64, used, inodes uint64) *runtimeapi.FilesystemUsage {
	return &runtimeapi.FilesystemUsage{
		Timestamp:  at,
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: imageRoot},
		UsedBytes:  u64(used),
		InodesUsed: u64(inodes),
	}
}

func cpu(at, since int64, running int) *runtimeapi.CpuUsage {
	return &runtimeapi.CpuUsage{
		Timestamp:            at,
		UsageCoreNanoSeconds: u64(uint64(max(at-since, 0)) / cpuShare * uint64(running)),
		UsageNanoCores:       u64(uint64(time.Second) / cpuShare * uint64(running)),
	}
}

func memory(at int64, running int) *runtimeapi.MemoryUsage {
	n := uint64(memoryBytes * running)
	return &runtimeapi.MemoryUsage{
		Timestamp: at, WorkingSetBytes: u64(n), UsageBytes: u64(n + n/4), RssBytes: u64(n / 2),
		AvailableBytes: u64(0), PageFaults: u64(1000), MajorPageFaults: u64(0),
	}
}

func stats(c *container, at int64) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: containerMetadata(c),
			Labels: maps.Clone(c.config.GetLabels()), Annotations: maps.Clone(c.config.GetAnnotations()),
		},
		Cpu:           cpu(at, c.startedAt, 1),
		Memory:        memory(at, 1),
		WritableLayer: filesystem(at, layerBytes, layerInodes),
	}
}

func (r *Runtime) containerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != running {
		// There is no task to measure; containerd's words differ by version.
		return nil, status.Errorf(codes.NotFound, "failed to fetch metrics for task: container %q is in %s state: not found", c.id, c.state)
	}
	return &runtimeapi.ContainerStatsResponse{Stats: stats(c, r.now())}, nil
}

func (r *Runtime) listContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := req.GetFilter()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range r.matchContainers(&runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &runtimeapi.ContainerStateValue{State: running},
	}) {
		resp.Stats = append(resp.Stats, stats(c, r.now()))
	}
	return resp, nil
}

func (r *Runtime) sandboxStats(sb *sandbox) *runtimeapi.PodSandboxStats {
	at := r.now()
	linux := &runtimeapi.LinuxPodSandboxStats{}
	var cores uint64
	for _, c := range sb.inOrder() {
		if c.state != running {
			continue
		}
		s := stats(c, at)
		linux.Containers = append(linux.Containers, s)
		cores += s.GetCpu().GetUsageCoreNanoSeconds().GetValue()
	}
	n := len(linux.Containers)
	linux.Cpu = cpu(at, at, n)
	linux.Cpu.UsageCoreNanoSeconds = u64(cores)
	linux.Memory = memory(at, n)
	linux.Process = &runtimeapi.ProcessUsage{Timestamp: at, ProcessCount: u64(uint64(n + 1))}
	traffic := uint64(max(at-sb.createdAt, 0)) / uint64(time.Millisecond)
	linux.Network = &runtimeapi.NetworkUsage{Timestamp: at, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
		Name: "eth0", RxBytes: u64(traffic), TxBytes: u64(traffic), RxErrors: u64(0), TxErrors: u64(0),
	}}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sb.id, Metadata: podMetadata(sb),
			Labels: maps.Clone(sb.config.GetLabels()), Annotations: maps.Clone(sb.config.GetAnnotations()),
		},
		Linux: linux,
	}
}

func (r *Runtime) podSandboxStats(_ context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if sb.state != ready {
		return nil, status.Errorf(codes.Unavailable, "failed to decode pod sandbox metrics %s: sandbox is not running", sb.id)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.sandboxStats(sb)}, nil
}

func (r *Runtime) listPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, sb := range r.matchSandboxes(&runtimeapi.PodSandboxFilter{
		Id: req.GetFilter().GetId(), LabelSelector: req.GetFilter().GetLabelSelector(),
		State: &runtimeapi.PodSandboxStateValue{State: ready},
	}) {
		resp.Stats = append(resp.Stats, r.sandboxStats(sb))
	}
	return resp, nil
}

package criclient

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// group sorts sandboxes and containers to their pods. IDs that come twice count
// once. A container whose sandbox is not listed belongs to its pod all the same.
func group(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []observed.Pod {
	pods := map[observed.UID]*observed.Pod{}
	of := func(labels map[string]string) *observed.Pod {
		uid := observed.UID(labels[observed.LabelPodUID])
		if uid == "" {
			return nil
		}
		p := pods[uid]
		if p == nil {
			p = &observed.Pod{UID: uid}
			pods[uid] = p
		}
		if p.Name == "" {
			p.Name, p.Namespace = labels[observed.LabelPodName], labels[observed.LabelPodNamespace]
		}
		return p
	}
	seenSandbox := make(map[string]bool, len(sandboxes))
	for _, s := range sandboxes {
		if s.GetId() == "" || seenSandbox[s.GetId()] {
			continue
		}
		if p := of(s.GetLabels()); p != nil {
			seenSandbox[s.GetId()] = true
			p.Sandboxes = append(p.Sandboxes, sandboxFromList(s))
		}
	}
	seenContainer := make(map[string]bool, len(containers))
	for _, c := range containers {
		if c.GetId() == "" || seenContainer[c.GetId()] {
			continue
		}
		if p := of(c.GetLabels()); p != nil {
			seenContainer[c.GetId()] = true
			p.Containers = append(p.Containers, containerFromList(c))
		}
	}
	all := make([]observed.Pod, 0, len(pods))
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		p := pods[uid]
		p.Sort()
		all = append(all, *p)
	}
	return all
}

func sandboxFromList(s *runtimeapi.PodSandbox) observed.Sandbox {
	return observed.Sandbox{
		ID:             observed.SandboxID(s.GetId()),
		Attempt:        s.GetMetadata().GetAttempt(),
		Ready:          s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:      at(s.GetCreatedAt()),
		RuntimeHandler: s.GetRuntimeHandler(),
	}
}

// sandboxFromStatus lays a status over what a listing told, which keeps what the
// status does not tell.
func sandboxFromStatus(s observed.Sandbox, status *runtimeapi.PodSandboxStatus, log logr.Logger) observed.Sandbox {
	s.Ready = status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	s.HostNetwork = status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	s.NetworkReported = status.GetNetwork() != nil
	s.IPs = nil
	if m := status.GetMetadata(); m != nil {
		s.Attempt = m.GetAttempt()
	}
	if created := at(status.GetCreatedAt()); !created.IsZero() {
		s.CreatedAt = created
	}
	if h := status.GetRuntimeHandler(); h != "" {
		s.RuntimeHandler = h
	}
	if s.HostNetwork {
		return s // the addresses are the node's, which the runtime does not know best
	}
	addresses := []string{status.GetNetwork().GetIp()}
	for _, ip := range status.GetNetwork().GetAdditionalIps() {
		addresses = append(addresses, ip.GetIp())
	}
	for _, a := range addresses {
		if a == "" {
			continue
		}
		if _, err := netip.ParseAddr(a); err != nil {
			log.Info("runtime reports an address that is none; left out", "sandboxID", s.ID, "address", a)
			continue
		}
		s.IPs = append(s.IPs, a)
	}
	return s
}

func containerFromList(c *runtimeapi.Container) observed.Container {
	o := observed.Container{
		ID:           observed.ContainerID(c.GetId()),
		Sandbox:      observed.SandboxID(c.GetPodSandboxId()),
		Name:         containerName(c.GetLabels(), c.GetMetadata()),
		RestartCount: restartCount(c.GetAnnotations(), attempt(c.GetMetadata())),
		State:        stateOf(c.GetState()),
		Image:        c.GetImage().GetImage(),
		ImageID:      c.GetImageId(),
		ImageRef:     c.GetImageRef(),
		Hash:         c.GetAnnotations()[observed.AnnotationHash],
		CreatedAt:    at(c.GetCreatedAt()),
		Annotations:  c.GetAnnotations(),
	}
	if o.ImageID == "" { // runtimes before Kubernetes 1.29 had one field for both
		o.ImageID = o.ImageRef
	}
	return o
}

// containerFromStatus lays a status over what a listing told. The sandbox is in
// the listing only.
func containerFromStatus(o observed.Container, status *runtimeapi.ContainerStatus) observed.Container {
	o.State = stateOf(status.GetState())
	o.StartedAt = at(status.GetStartedAt())
	o.FinishedAt = at(status.GetFinishedAt())
	o.ExitCode = status.GetExitCode()
	o.Reason = status.GetReason()
	o.Message = status.GetMessage()
	o.LogPath = status.GetLogPath()
	if created := at(status.GetCreatedAt()); !created.IsZero() {
		o.CreatedAt = created
	}
	if name := containerName(status.GetLabels(), status.GetMetadata()); name != "" {
		o.Name = name
	}
	if a := status.GetAnnotations(); len(a) > 0 {
		o.Annotations = a
		o.Hash = a[observed.AnnotationHash]
		o.RestartCount = restartCount(a, o.RestartCount)
	}
	if image := status.GetImage().GetImage(); image != "" {
		o.Image = image
	}
	if ref := status.GetImageRef(); ref != "" {
		o.ImageRef = ref
	}
	if id := status.GetImageId(); id != "" {
		o.ImageID = id
	}
	if o.ImageID == "" {
		o.ImageID = o.ImageRef
	}
	o.Details = details(status)
	return o
}

func containerName(labels map[string]string, metadata *runtimeapi.ContainerMetadata) string {
	if name := labels[observed.LabelContainerName]; name != "" {
		return name
	}
	return metadata.GetName()
}

func restartCount(annotations map[string]string, otherwise int) int {
	if n, err := strconv.ParseInt(annotations[observed.AnnotationRestartCount], 10, 32); err == nil && n >= 0 {
		return int(n)
	}
	return otherwise
}

func attempt(m *runtimeapi.ContainerMetadata) int {
	return int(min(m.GetAttempt(), math.MaxInt32)) // fits an int everywhere
}

func stateOf(s runtimeapi.ContainerState) observed.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return observed.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return observed.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return observed.Exited
	}
	return observed.Unknown
}

// at reads CRI's nanoseconds since 1970, of which 0 and below are "not yet".
func at(nanoseconds int64) time.Time {
	if nanoseconds <= 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

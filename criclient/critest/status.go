package critest

import (
	"maps"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func sandboxStatus(sb *sandbox) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:        sb.id,
		Metadata:  podMetadata(sb),
		State:     sb.state,
		CreatedAt: sb.createdAt,
		// Always there, with an empty address on the host network and after a
		// stop, as containerd answers.
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: sb.ip()},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: clone(sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions()),
		}},
		Labels:         maps.Clone(sb.config.GetLabels()),
		Annotations:    maps.Clone(sb.config.GetAnnotations()),
		RuntimeHandler: sb.handler,
	}
}

func containerStatus(c *container) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          c.id,
		Metadata:    containerMetadata(c),
		State:       c.state,
		CreatedAt:   c.createdAt,
		StartedAt:   c.startedAt,
		FinishedAt:  c.finishedAt,
		ExitCode:    c.exitCode,
		Image:       &runtimeapi.ImageSpec{Image: c.image.name()},
		ImageRef:    c.image.digestName(),
		ImageId:     c.image.id,
		Reason:      c.reason,
		Message:     c.message,
		Labels:      maps.Clone(c.config.GetLabels()),
		Annotations: maps.Clone(c.config.GetAnnotations()),
		LogPath:     c.logPath,
		User:        containerUser(c),
		StopSignal:  c.config.GetStopSignal(),
	}
	if st.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if c.resources != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: clone(c.resources)}
	}
	for _, m := range c.config.GetMounts() {
		st.Mounts = append(st.Mounts, clone(m))
	}
	return st
}

// containerUser is the user the process would run as: the container's own, or
// else the image's.
func containerUser(c *container) *runtimeapi.ContainerUser {
	sec := c.config.GetLinux().GetSecurityContext()
	uid, _ := c.image.user()
	if sec.GetRunAsUser() != nil {
		uid = sec.GetRunAsUser()
	}
	groups := append([]int64{sec.GetRunAsGroup().GetValue()}, sec.GetSupplementalGroups()...)
	return &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
		Uid: uid.GetValue(), Gid: sec.GetRunAsGroup().GetValue(), SupplementalGroups: groups,
	}}
}

// mergeResources lays an update over what a container has: zero means unchanged.
func mergeResources(old, update *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	merged := &runtimeapi.LinuxContainerResources{}
	if old != nil {
		proto.Merge(merged, old)
	}
	if update != nil {
		// In proto3 Merge leaves a field alone that the update does not set;
		// repeated fields would be appended, so they are replaced.
		if len(update.GetHugepageLimits()) > 0 {
			merged.HugepageLimits = nil
		}
		proto.Merge(merged, update)
	}
	return merged
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }

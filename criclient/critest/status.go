package critest

import (
	"maps"
	"strconv"
	"strings"

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

func (r *Runtime) containerStatusOf(c *container) *runtimeapi.ContainerStatus {
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
		Reason:      c.reason,
		Message:     c.message,
		Labels:      maps.Clone(c.config.GetLabels()),
		Annotations: maps.Clone(c.config.GetAnnotations()),
		LogPath:     c.logPath,
	}
	for _, m := range c.config.GetMounts() {
		m = clone(m)
		if image := r.resolveLocal(m.GetImage().GetImage()); image != nil {
			m.Image.ImageRef = image.digestName()
		}
		st.Mounts = append(st.Mounts, m)
	}
	if r.cfg.OldFields {
		return st
	}
	st.ImageId = c.image.id
	st.User = containerUser(c)
	st.StopSignal = c.config.GetStopSignal()
	if st.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		st.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if c.resources != nil {
		st.Resources = &runtimeapi.ContainerResources{Linux: clone(c.resources)}
	}
	return st
}

// namedUser is the number of every user that is named, but root.
const namedUser = 1000

// containerUser is the user that the process runs as: the container's own, or else
// the image's. A group of the image counts only with its user.
func containerUser(c *container) *runtimeapi.ContainerUser {
	sec := c.config.GetLinux().GetSecurityContext()
	u := &runtimeapi.LinuxContainerUser{Gid: sec.GetRunAsGroup().GetValue()}
	name, group, _ := strings.Cut(c.image.User, ":")
	switch {
	case sec.GetRunAsUser() != nil:
		u.Uid = sec.GetRunAsUser().GetValue()
	case sec.GetRunAsUsername() != "":
		u.Uid = userNumber(sec.GetRunAsUsername())
	default:
		u.Uid = userNumber(name)
		if sec.GetRunAsGroup() == nil {
			u.Gid = userNumber(group)
		}
	}
	u.SupplementalGroups = append([]int64{u.Gid}, sec.GetSupplementalGroups()...)
	return &runtimeapi.ContainerUser{Linux: u}
}

func userNumber(name string) int64 {
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		return n
	}
	if name == "" || name == "root" {
		return 0
	}
	return namedUser
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

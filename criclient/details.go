package criclient

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// details is what only newer runtimes tell of a container, beside its mounts.
func details(status *runtimeapi.ContainerStatus) observed.Details {
	d := observed.Details{StopSignal: signalName(status.GetStopSignal())}
	if u := status.GetUser().GetLinux(); u != nil {
		d.User = &observed.User{UID: u.GetUid(), GID: u.GetGid(), SupplementalGroups: slices.Clone(u.GetSupplementalGroups())}
	}
	if r := status.GetResources().GetLinux(); r != nil {
		d.Resources = &observed.Resources{
			CPUShares: r.GetCpuShares(), CPUQuota: r.GetCpuQuota(), CPUPeriod: r.GetCpuPeriod(), MemoryLimit: r.GetMemoryLimitInBytes(),
		}
	}
	for _, m := range status.GetMounts() {
		mount := observed.Mount{ContainerPath: m.GetContainerPath(), ReadOnly: m.GetReadonly(), RecursiveReadOnly: m.GetRecursiveReadOnly()}
		if image := m.GetImage(); image != nil {
			if mount.Image = image.GetImageRef(); mount.Image == "" {
				mount.Image = image.GetImage()
			}
		}
		d.Mounts = append(d.Mounts, mount)
	}
	return d
}

// signalName spells a signal as the Kubernetes API does: SIGRTMIN+3 where the CRI
// has SIGNAL_SIGRTMINPLUS3. The runtime's default has no name.
func signalName(s runtimeapi.Signal) string {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name, known := runtimeapi.Signal_name[int32(s)]
	if !known {
		return ""
	}
	return signalWords.Replace(name)
}

var signalWords = strings.NewReplacer("SIGNAL_", "", "PLUS", "+", "MINUS", "-")

// Features reads from the answer of [Client.Status] what the runtime can do. A nil
// answer, and that of a runtime that reports nothing, is no feature at all: what
// is not promised must not be counted on.
func Features(resp *runtimeapi.StatusResponse) observed.RuntimeFeatures {
	f := observed.RuntimeFeatures{
		SupplementalGroupsPolicy:  resp.GetFeatures().GetSupplementalGroupsPolicy(),
		UserNamespacesHostNetwork: resp.GetFeatures().GetUserNamespacesHostNetwork(),
	}
	for _, h := range resp.GetRuntimeHandlers() {
		if f.Handlers == nil {
			f.Handlers = map[string]observed.HandlerFeatures{}
		}
		f.Handlers[h.GetName()] = observed.HandlerFeatures{
			RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
			UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
		}
	}
	return f
}

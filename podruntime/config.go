package podruntime

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// SandboxSpec is what a sandbox needs beside the pod spec.
type SandboxSpec struct {
	// Hostname inside the pod. It is not set for a pod on the host's network.
	Hostname string
	// DNS is the content of the pod's resolv.conf; nil leaves it to the runtime.
	DNS *runtimeapi.DNSConfig
	// CgroupParent is the pod's cgroup; empty leaves it to the runtime.
	CgroupParent string
	// RuntimeHandler runs the sandbox; empty is the runtime's default.
	RuntimeHandler string
	// UserNamespace maps the pod's users to the host's; nil when they are the
	// same. It is set on every mount of the pod's containers, too.
	UserNamespace *runtimeapi.UserNamespace
}

// EnvVar is one variable of a container's environment, with its final value.
type EnvVar struct {
	Name, Value string
}

// ContainerSpec is what a container needs beside its spec in the pod. The podenv
// room makes command, args and environment.
type ContainerSpec struct {
	// Command and Args are final; nothing is expanded any more.
	Command, Args []string
	Env           []EnvVar
	Mounts        []Mount
	Devices       []Device
	// SupplementalGroups are those that the pod's volumes ask for, beside the
	// ones in its security context.
	SupplementalGroups []int64
}

// Mount shows a host path, or the content of an image, inside the container.
type Mount struct {
	// ContainerPath is made absolute if it is not.
	ContainerPath string
	// HostPath is empty for an image volume.
	HostPath string
	ReadOnly bool
	// RecursiveReadOnly makes mounts below HostPath read-only, too (KEP-3857).
	RecursiveReadOnly bool
	// Propagation of mounts between host and container; empty is none.
	Propagation corev1.MountPropagationMode
	// SELinuxRelabel lets the runtime give the path the container's label.
	SELinuxRelabel bool
	// Image is the reference of an image volume, ImageSubPath a path inside it.
	Image        *observed.Image
	ImageSubPath string
}

// Device shows a device of the host inside the container. Permissions are of the
// device cgroup: r, w and m.
type Device struct {
	HostPath, ContainerPath, Permissions string
}

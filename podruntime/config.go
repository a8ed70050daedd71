package podruntime

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
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

// ContainerSpec is what a container needs beside its spec in the pod. [Literal]
// makes the part that needs nothing from outside.
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

// sandboxConfig describes the pod's sandbox to the runtime.
func (r *Runtime) sandboxConfig(pod *corev1.Pod, spec SandboxSpec, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	logDir, err := r.podLogDir(pod)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = make(map[string]string, 3)
	}
	maps.Copy(labels, podLabels(pod))
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		LogDirectory: logDir,
		DnsConfig:    spec.DNS,
		PortMappings: portMappings(pod),
		Labels:       labels,
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: spec.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(pod),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	if !pod.Spec.HostNetwork {
		config.Hostname = spec.Hostname
	}
	return config, nil
}

func podLabels(pod *corev1.Pod) map[string]string {
	return map[string]string{
		observed.LabelPodName:      pod.Name,
		observed.LabelPodNamespace: pod.Namespace,
		observed.LabelPodUID:       string(pod.UID),
	}
}

// portMappings takes the ports of regular containers only. Of two equal ones the
// first counts; which port they mean is the same either way.
func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	type key struct {
		protocol       corev1.Protocol
		ip             string
		port, hostPort int32
	}
	seen := make(map[key]bool)
	var all []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			k := key{p.Protocol, p.HostIP, p.ContainerPort, p.HostPort}
			if seen[k] {
				continue
			}
			seen[k] = true
			all = append(all, &runtimeapi.PortMapping{
				Protocol:      protocol(p.Protocol),
				ContainerPort: p.ContainerPort,
				HostPort:      p.HostPort,
				HostIp:        p.HostIP,
			})
		}
	}
	return all
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

// namespaces says which namespaces the pod has for itself. By default each
// container has its own process IDs, while network and IPC are the pod's.
func namespaces(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Ipc:     runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

// containerConfig describes one container instance to the runtime.
func (r *Runtime) containerConfig(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, spec ContainerSpec, image observed.Image, count int) *runtimeapi.ContainerConfig {
	labels := podLabels(pod)
	labels[observed.LabelContainerName] = c.Name
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(count)},
		Image:       &runtimeapi.ImageSpec{Image: image.ID, UserSpecifiedImage: c.Image},
		Command:     spec.Command,
		Args:        spec.Args,
		WorkingDir:  c.WorkingDir,
		Labels:      labels,
		Annotations: containerAnnotations(pod, c, count),
		LogPath:     filepath.Join(c.Name, strconv.Itoa(count)+".log"),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: linuxResources(pod, c, kind, r.cfg.NodeMemory),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: namespaces(pod),
				MaskedPaths:      r.maskedPaths,
				ReadonlyPaths:    readonlyPaths(),
				// The kubelet's default for a container that names no profile.
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			},
		},
	}
	for _, e := range spec.Env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	for _, m := range spec.Mounts {
		path := m.ContainerPath
		if !filepath.IsAbs(path) {
			path = filepath.Join("/", path)
		}
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{
			ContainerPath: path, HostPath: m.HostPath, Readonly: m.ReadOnly,
		})
	}
	return config
}

// containerAnnotations leave with the container what is needed to judge it, and
// to stop it when its pod is not at hand any more.
func containerAnnotations(pod *corev1.Pod, c *corev1.Container, count int) map[string]string {
	a := map[string]string{
		observed.AnnotationHash:                     Hash(c),
		observed.AnnotationRestartCount:             strconv.Itoa(count),
		observed.AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		observed.AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		a[observed.AnnotationDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[observed.AnnotationTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if len(c.Ports) > 0 {
		// A list of plain structs always encodes.
		data, _ := json.Marshal(c.Ports)
		a[observed.AnnotationContainerPorts] = string(data)
	}
	return a
}

// maskedPaths hides kernel interfaces from containers. The list is the API's
// default procMount; the throttle counters of each CPU joined it after they were
// found to leak the load of neighbours.
func maskedPaths() []string {
	paths := []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	// The pattern is well formed, which is all that Glob reports on.
	throttle, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	return append(paths, throttle...)
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

package podruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// containerConfig describes instance number count of a container to the runtime.
// Whatever the pod asks for and cannot have is an error.
func (r *Runtime) containerConfig(s starting, spec ContainerSpec, image observed.Image, count int) (*runtimeapi.ContainerConfig, error) {
	config := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: s.c.Name, Attempt: uint32(count)},
		Image:      &runtimeapi.ImageSpec{Image: image.ID, UserSpecifiedImage: s.c.Image},
		Command:    spec.Command,
		Args:       spec.Args,
		WorkingDir: s.c.WorkingDir,
		Envs:       envs(spec.Env),
		Devices:    devices(spec.Devices),
		Labels:     podLabels(s.pod),
		LogPath:    filepath.Join(s.c.Name, strconv.Itoa(count)+".log"),
		Stdin:      s.c.Stdin,
		StdinOnce:  s.c.StdinOnce,
		Tty:        s.c.TTY,
	}
	config.Labels[observed.LabelContainerName] = s.c.Name
	users := s.sandbox.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	var err error
	if config.Linux, err = r.linuxConfig(s, spec, image, users); err == nil {
		config.Mounts, err = mounts(spec.Mounts, users)
	}
	if err == nil {
		config.StopSignal, err = stopSignal(s)
	}
	if err == nil {
		config.Annotations, err = containerAnnotations(s.pod, s.c, count)
	}
	if err != nil {
		return nil, fmt.Errorf("configure container %s of pod %s: %w", s.c.Name, podName(s.pod), err)
	}
	return config, nil
}

func (r *Runtime) linuxConfig(s starting, spec ContainerSpec, image observed.Image, users *runtimeapi.UserNamespace) (*runtimeapi.LinuxContainerConfig, error) {
	if err := r.rules.checkHugePages(s.c.Resources.Limits, func() *field.Path { return containerPath(s.pod, s.c, s.kind) }); err != nil {
		return nil, err
	}
	n := namespaces(s.pod, users)
	target, err := processesOf(s.pod, s.seen, s.c.Name)
	if err != nil {
		return nil, err
	}
	if target != "" && n.Pid == runtimeapi.NamespaceMode_CONTAINER {
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, string(target)
	}
	security, err := r.containerSecurity(securityOf(s.pod, s.c, s.kind), spec, image, n)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.LinuxContainerConfig{
		Resources:       r.rules.linuxResources(s.pod, s.c, s.kind),
		SecurityContext: security,
	}, nil
}

// envs has few allocations whatever the number of variables: one list, and one
// piece of memory for all values.
func envs(vars []EnvVar) []*runtimeapi.KeyValue {
	all, block := make([]*runtimeapi.KeyValue, len(vars)), make([]runtimeapi.KeyValue, len(vars))
	size := 0
	for _, v := range vars {
		size += len(v.Value)
	}
	values := make([]byte, 0, size)
	for i, v := range vars {
		from := len(values)
		values = append(values, v.Value...)
		all[i] = &block[i]
		all[i].Key, all[i].Value = v.Name, values[from:len(values):len(values)]
	}
	return all
}

func devices(list []Device) []*runtimeapi.Device {
	var all []*runtimeapi.Device
	for _, d := range list {
		all = append(all, &runtimeapi.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: d.Permissions})
	}
	return all
}

// mounts with users make files of the node belong to the pod's own users.
func mounts(list []Mount, users *runtimeapi.UserNamespace) ([]*runtimeapi.Mount, error) {
	all, block := make([]*runtimeapi.Mount, len(list)), make([]runtimeapi.Mount, len(list))
	for i, m := range list {
		out := &block[i]
		out.ContainerPath, out.HostPath = m.ContainerPath, m.HostPath
		out.Readonly, out.RecursiveReadOnly = m.ReadOnly, m.RecursiveReadOnly
		out.SelinuxRelabel = m.SELinuxRelabel
		if users.GetMode() == runtimeapi.NamespaceMode_POD {
			out.UidMappings, out.GidMappings = users.GetUids(), users.GetGids()
		}
		if !filepath.IsAbs(out.ContainerPath) {
			out.ContainerPath = filepath.Join("/", out.ContainerPath)
		}
		if m.Image != nil {
			// The runtime makes the directory, and nobody can write there.
			out.HostPath, out.Readonly = "", true
			out.Image, out.ImageSubPath = &runtimeapi.ImageSpec{Image: m.Image.ID}, m.ImageSubPath
		}
		var err error
		if out.Propagation, err = propagation(m.Propagation); err != nil {
			return nil, fmt.Errorf("mount %s: %w", out.ContainerPath, err)
		}
		if m.RecursiveReadOnly && (!out.Readonly || out.Propagation != runtimeapi.MountPropagation_PROPAGATION_PRIVATE) {
			return nil, fmt.Errorf("mount %s: recursively read-only needs a mount that is read-only and has no propagation", out.ContainerPath)
		}
		all[i] = out
	}
	return all, nil
}

func propagation(mode corev1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	switch mode {
	case "", corev1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case corev1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case corev1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("mount propagation %q is not known; use None, HostToContainer or Bidirectional", mode)
}

// containerAnnotations leave with the container what is needed to judge it, and
// to stop it when its pod is not at hand any more.
func containerAnnotations(pod *corev1.Pod, c *corev1.Container, count int) (map[string]string, error) {
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
	var errs []error
	encode := func(key string, value any) {
		data, err := json.Marshal(value)
		errs = append(errs, err)
		a[key] = string(data)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		encode(observed.AnnotationPreStopHandler, c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		encode(observed.AnnotationContainerPorts, c.Ports)
	}
	return a, errors.Join(errs...)
}

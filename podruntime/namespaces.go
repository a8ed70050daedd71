package podruntime

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// namespaces says which namespaces the pod has for itself. By default each
// container has its own process IDs, while network and IPC are the pod's and users
// are the node's.
func namespaces(pod *corev1.Pod, users *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Ipc:           runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: users,
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
	case isTrue(pod.Spec.ShareProcessNamespace):
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}

// ownUsers reports whether the pod's users are mapped to others on the node.
func ownUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// users takes the mapping that was made for the pod. To run without one as root of
// the node is not what the pod asked for.
func users(pod *corev1.Pod, mapping *runtimeapi.UserNamespace) (*runtimeapi.UserNamespace, error) {
	switch {
	case !ownUsers(pod):
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	case mapping.GetMode() != runtimeapi.NamespaceMode_POD || len(mapping.GetUids()) == 0 || len(mapping.GetGids()) == 0:
		return nil, fmt.Errorf("can't set `spec.hostUsers: false`: pod %s has no mapping of its users", podName(pod))
	}
	return mapping, nil
}

// processesOf finds the container whose processes an ephemeral container is to see.
// It is "" for all others.
func processesOf(pod *corev1.Pod, seen observed.Pod, name string) (observed.ContainerID, error) {
	target := ""
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			target = e.TargetContainerName
		}
	}
	if target == "" {
		return "", nil
	}
	c, ok := seen.Container(target)
	switch {
	case !ok:
		return "", fmt.Errorf("unable to find target container %s", target)
	case c.State == observed.Exited:
		return "", fmt.Errorf("target container %s does not run: it has exited", target)
	}
	return c.ID, nil
}

package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Need is the answer of [NeedSandbox].
type Need struct {
	// Create is true when the pod needs a new sandbox.
	Create bool
	// Attempt is the number of the sandbox to create, or of the one to keep.
	Attempt uint32
	// ID is the sandbox to keep, or the old one that is replaced. It is empty
	// when there is none, and when the network namespace mode changed.
	ID observed.SandboxID
	// Reason says why a new sandbox is needed. It is the message of the pod
	// condition PodReadyToStartContainers.
	Reason string
}

// The reasons of [Need], in the kubelet's words.
const (
	ReasonNoSandbox      = "no pod sandbox exists"
	ReasonManyReady      = "multiple pod sandboxes are ready and need to be reconciled"
	ReasonNotReady       = "pod sandbox is not ready"
	ReasonNetworkChanged = "network namespace mode changed and sandbox needs to be recreated"
	ReasonNoIP           = "pod sandbox has no IP address"
)

// NeedSandbox decides whether the pod can go on in the newest sandbox. A new
// attempt is above every attempt that the runtime still holds: the runtime
// reserves a name per attempt, and refuses one that a dead sandbox has.
func NeedSandbox(pod *corev1.Pod, seen observed.Pod) Need {
	newest, ok := seen.Sandbox()
	if !ok {
		return Need{Create: true, Reason: ReasonNoSandbox}
	}
	ready, highest := 0, newest.Attempt
	for _, s := range seen.Sandboxes {
		highest = max(highest, s.Attempt)
		if s.Ready {
			ready++
		}
	}
	need := Need{Create: true, Attempt: highest + 1, ID: newest.ID}
	switch {
	case ready > 1:
		need.Reason = ReasonManyReady
	case !newest.Ready:
		need.Reason = ReasonNotReady
	case newest.HostNetwork != pod.Spec.HostNetwork:
		need.ID, need.Reason = "", ReasonNetworkChanged
	case !pod.Spec.HostNetwork && newest.NetworkReported && len(newest.IPs) == 0:
		need.Reason = ReasonNoIP
	default:
		return Need{Attempt: newest.Attempt, ID: newest.ID}
	}
	return need
}

package podspec

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Kind tells from which list of the pod spec a container comes.
type Kind uint8

// The three lists. A sidecar is an Init container for which [IsSidecar] holds.
const (
	Regular Kind = iota
	Init
	Ephemeral
)

// String is the word the kubelet's metrics use for the kind.
func (k Kind) String() string {
	switch k {
	case Init:
		return "init_container"
	case Ephemeral:
		return "ephemeral_container"
	default:
		return "container"
	}
}

// IsSidecar reports whether an init container is a sidecar (KEP-753): one with
// restartPolicy Always. It says nothing useful about a regular container.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// IsStatic reports whether the pod came from another source than the API server.
// The annotation is the kubelet's, and podsource gives it.
func IsStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations["kubernetes.io/config.source"]
	return ok && source != "api"
}

// IsCritical reports whether the pod keeps the node or the cluster going: it is
// static, or its priority is one of those from two billion up, which are reserved
// for the system.
func IsCritical(pod *corev1.Pod) bool {
	return IsStatic(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= 2_000_000_000
}

// All yields every container of the pod: init containers, regular ones and then
// ephemeral ones, each list in spec order.
func All(pod *corev1.Pod) iter.Seq2[*corev1.Container, Kind] {
	return func(yield func(*corev1.Container, Kind) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(&pod.Spec.InitContainers[i], Init) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], Regular) {
				return
			}
		}
		for i := range pod.Spec.EphemeralContainers {
			// The API keeps the two structs field for field alike.
			c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(c, Ephemeral) {
				return
			}
		}
	}
}

// Find returns the named container. Names are unique over all three lists.
func Find(pod *corev1.Pod, name string) (*corev1.Container, Kind, bool) {
	for c, kind := range All(pod) {
		if c.Name == name {
			return c, kind, true
		}
	}
	return nil, Regular, false
}

// Human names the pod the way the kubelet does inside messages:
// name_namespace(uid).
func Human(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// MayRestart reports whether c may run again after it exited with exitCode. The
// container's own policy and rules (KEP-5307) go before the pod's policy; rules
// without a container-level policy do not count. A deletion of the pod is not
// looked at: see [ShouldStart].
func MayRestart(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	if c.RestartPolicy == nil {
		return policyRestarts(string(pod.Spec.RestartPolicy), exitCode)
	}
	if rule, ok := matchingRule(c, exitCode); ok {
		switch rule.Action {
		case corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers:
			return true
		}
	}
	return policyRestarts(string(*c.RestartPolicy), exitCode)
}

// RestartsAll reports whether an exit of c with exitCode asks for a restart of all
// containers of its pod (KEP-5532).
func RestartsAll(c *corev1.Container, exitCode int32) bool {
	if c.RestartPolicy == nil {
		return false
	}
	rule, ok := matchingRule(c, exitCode)
	return ok && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

// matchingRule returns the first restart policy rule that names exitCode.
func matchingRule(c *corev1.Container, exitCode int32) (corev1.ContainerRestartRule, bool) {
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case corev1.ContainerRestartRuleOnExitCodesOpIn:
			if in {
				return rule, true
			}
		case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !in {
				return rule, true
			}
		}
	}
	return corev1.ContainerRestartRule{}, false
}

// policyRestarts treats an unset pod policy as Always, the API's default.
func policyRestarts(policy string, exitCode int32) bool {
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return exitCode != 0
	default:
		return true
	}
}

// PolicyOf returns the policy that decides about c, rules left aside.
func PolicyOf(pod *corev1.Pod, c *corev1.Container) corev1.RestartPolicy {
	switch {
	case c.RestartPolicy != nil:
		return corev1.RestartPolicy(*c.RestartPolicy)
	case pod.Spec.RestartPolicy == "":
		return corev1.RestartPolicyAlways
	default:
		return pod.Spec.RestartPolicy
	}
}

// ShouldStart reports whether a container that does not run has to be started.
// seen is its newest instance, ok false when the runtime knows none.
func ShouldStart(pod *corev1.Pod, c *corev1.Container, seen observed.Container, ok bool) bool {
	switch {
	case pod.DeletionTimestamp != nil:
		return false
	case !ok:
		return true
	case seen.State == observed.Running:
		return false
	case seen.State == observed.Exited:
		return MayRestart(pod, c, seen.ExitCode)
	default:
		return true
	}
}

// TerminationGrace is how many seconds the pod's containers get to stop. Two
// seconds is the kubelet's answer for a pod that carries no number.
func TerminationGrace(pod *corev1.Pod) int64 {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	default:
		return 2
	}
}

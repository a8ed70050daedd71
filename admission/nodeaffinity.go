package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// NodeAffinity refuses a pod whose nodeSelector, or required node affinity, does
// not match the node. Affinity that is only preferred is a scheduler's. The node's
// name and labels are what counts of it; it is asked for each time, since labels
// change.
func NodeAffinity(node func() *corev1.Node) Admitter {
	return Func(func(a Attributes) Decision {
		// Terms that can't be parsed match nothing, as a scheduler has it.
		if ok, err := nodeaffinity.GetRequiredNodeAffinity(a.Pod).Match(node()); err == nil && ok {
			return yes()
		}
		return no("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")
	})
}

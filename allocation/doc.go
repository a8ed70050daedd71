// Package allocation keeps apart what a pod would like to have, what this node has
// granted it and what was really put in force (KEP-1287, in-place resize).
//
//   - In: desired pods, [Allocations.Set]; what the runtime accepted,
//     [Allocations.SetActuated]; how a pass went, [Allocations.Progress].
//   - Out: the pod as this node runs it, [Allocations.Apply]; answers to waiting
//     resizes, [Allocations.Evaluate]; the conditions of a resize,
//     [Allocations.Conditions].
//   - Owns: the files allocated_pods_state and actuated_pods_state in Config.Dir,
//     the kubelet's in name and form, and in memory the queue of resizes that wait.
//     No goroutine: the caller knows when to look again.
//   - Rooms: admission says whether a resize fits, podruntime carries it out, and
//     status reports the conditions.
//
// A resize is a change of the requests or limits of processor time and memory, of a
// container or of the pod. Both files are on disk before a method returns that
// changes them, so that an agent that ends at any moment neither forgets a resize
// that waits nor grants it unasked.
package allocation

// Package admission decides whether a pod may run on this node.
//
//   - In: the pod and the pods that hold something of the node, in [Attributes].
//   - Out: a [Decision] with the reason and message of the first [Admitter] of a
//     [Chain] that says no, and the status of a pod that was refused, [Rejected].
//   - Owns: nothing. Admitters are values and ask nobody.
//   - Rooms: syncloop's handler asks for each new pod, in the order of [Sort],
//     before podworkers hears of it; podruntime knows which fields are mapped.
//
// Reasons are the kubelet's, for dashboards and controllers count them. A message
// begins with the kubelet's words and goes on with what a person has to know.
package admission

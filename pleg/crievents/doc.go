// Package crievents makes the runtime's own CRI event stream a source for pleg.
//
//   - In: GetContainerEvents of any CRI client, criclient's or k8s.io/cri-client's.
//   - Out: a [pleg.Mark] per event. Of the event only the pod's UID, or else the
//     container's ID, is used: the states it carries may be older than the
//     agent's own last call (https://github.com/kubernetes/kubernetes/issues/121003).
//   - Owns: one goroutine per open stream; it has ended when Stream returns.
//   - Rooms: criclient opens the stream, pleg follows it.
//
// containerd has this stream since 1.7 and CRI-O since 1.26 (KEP-3386). A runtime
// without it is reported as [pleg.ErrEventsUnsupported].
package crievents

// Package pleg looks back through the runtime's door: it keeps the newest
// observation of every pod and turns changes into pod lifecycle events.
//
//   - In: a [Runtime] to ask, and hints where to look: [Generator.MarkDirty]
//     after own calls, and an optional [EventSource]. A hint carries no state,
//     so a lost, doubled or reordered one can't make an observation wrong.
//   - Out: a [PodLifecycleEvent] per change on [Generator.Watch], in the
//     kubelet's words, and the observations themselves in the [Cache]. The cache
//     has the observation before the event goes out. A slow reader finds its
//     events waiting per pod, equal ones merged, none dropped; it never delays
//     a look.
//   - Owns: the cache (one writer), and inside [Generator.Run] one goroutine
//     with all records, one for the event stream, and a bounded number of
//     inspections, each with a deadline. Idle means one timer.
//   - Rooms: criclient supplies the Runtime; pleg/crievents and
//     pleg/containerdevents supply event sources; podworkers waits for
//     observations; syncloop reads the events.
//
// A relist costs what runs, not what exists: it is one list of ready sandboxes
// and running containers, compared with the records. What differs is inspected.
// Without events that happens once per Config.RelistEvery; with a healthy stream
// once per Config.SlowRelistEvery, until a relist finds a change that no event
// announced. What only the removal of an exited container changes is not in such
// a list: it is seen when an event or a mark leads to the pod.
//
// A list that failed says nothing, and an inspection that failed leaves the
// record as it was: missing information is never "nothing there".
package pleg

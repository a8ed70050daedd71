// Package criclient is the door to the container runtime: CRI v1 over a unix
// socket. gRPC stops here; behind the door there are Go errors and values.
//
//   - In: the runtime's endpoint, and calls with a context. [Client] has every
//     method of RuntimeService and ImageManagerService of k8s.io/cri-api, so
//     either side can be exchanged for k8s.io/cri-client.
//   - Out: the runtime's answers, and errors that errors.Is sorts: [ErrNotFound],
//     [ErrUnavailable], [ErrDeadline] and their kin. [Wrap] does the same to the
//     errors of any other CRI client. [Observer] turns answers into observed.Pod
//     values: what runs, all there is, and one pod in detail; [Features] does so
//     with what the runtime can do.
//   - Owns: one connection, made at the first call and made again whenever it is
//     lost, until [Client.Close]. No goroutine of its own; gRPC keeps a few while
//     it is connected. Every stream a call opens ends before the call returns.
//   - Rooms: pleg, podruntime, imagepull and containergc call through the door;
//     nothing is before it but the runtime. critest is a runtime in memory.
//
// A call never waits for a runtime that is away: it fails with [ErrUnavailable],
// and gRPC tries the socket again after 0.1 s, then less often, up to every 3 s.
//
// An answer that can't be had whole is an error. A failed list is never an empty
// one, and a list that is too large for one message is fetched in parts. The one
// exception is said at [Observer.RunningPods].
package criclient

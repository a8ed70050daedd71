// Package lifecycle runs one hook of a container: its postStart or its preStop.
//
//   - In: a [Call], which is the handler and whose container it belongs to.
//   - Out: nil once the hook has done its work, else why it has not; beside it
//     what a command wrote.
//   - Owns: nothing between calls. [Runner.Run] works on the caller's goroutine,
//     and leaves no connection open when it returns.
//   - Rooms: podruntime calls it after a start and before a stop; criclient
//     supplies the [Exec].
//
// A hook has no time limit of its own. It ends with the context it was given: a
// command is ended in the container, a request is dropped, a sleep is cut short.
// So the budget of a hook, such as what is left of a grace period, is a deadline
// of that context. In the kubelet a preStop command goes on beside the stop.
package lifecycle

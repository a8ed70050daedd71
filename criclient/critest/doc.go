// Package critest is a container runtime in memory, for tests of whatever talks
// to one, and the contract that any runtime can be checked against.
//
// New(Config{}) is up, ready and empty. Give it images, each with a [Behavior]
// (run for ever, exit, ignore TERM, print), and use it as the RuntimeService
// and ImageManagerService of k8s.io/cri-api, or put it behind gRPC with [Serve]
// where crictl and a kubelet can reach it.
//
// States, names, filters, error codes and events are those of containerd 2;
// [Containerd16] gives the older ones. Logs are real files in the CRI format.
// Time is package time's: in a testing/synctest bubble an hour takes nothing
// (make the Runtime inside the bubble, and do not [Serve] it there). Lists by
// state, sandbox or pod UID cost what they match, with any number of exited
// containers beside it.
//
// What goes wrong is said with [Fault] (calls fail, wait, hang, take effect but
// answer late, answer too much or nothing), [EventFault] (events lost, doubled,
// late, out of order), [Runtime.Stop] and [Runtime.FillDisk]; what happens
// behind the agent's back with [Runtime.Kill], [Runtime.OOM], [Runtime.Vanish],
// [Runtime.FailSandbox] and others. [Runtime.Calls] tells what was asked.
//
//   - In: CRI calls, in process or over gRPC, and the test's own commands.
//   - Out: answers, container events, log files, termination messages.
//   - Owns: no goroutine. What a container does by itself are timers, stopped
//     when it ends; a [Server] owns the goroutines of its gRPC server.
//   - Rooms: it stands in for the runtime behind criclient. [Suite] holds it,
//     and the real ones, to the same promises.
package critest

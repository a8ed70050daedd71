// Package syncloop is the hall: one loop where all news about pods meets.
//
//   - In: changes of the desired pods, lifecycle events from the runtime, pods
//     whose time has come, pods whose probe results changed; all as channels in
//     [Config]. Nil channels are fine: a loop may know only some kinds of news.
//   - Out: calls of a [SyncHandler], one at a time, in the loop's goroutine.
//   - Owns: one goroutine, the caller's, inside [Loop.Run].
//   - Rooms: podsource, pleg and podworkers send the news; examples/fullnode is
//     the handler that writes pods down, admits them and wakes their workers.
//
// A handler decides and returns; work that takes long belongs to a pod worker.
// While a handler hangs nothing else is taken in, and [Loop.Healthy] says so.
//
// While the runtime is in trouble ([Config.RuntimeErrors]) the loop takes in
// nothing, as the kubelet's does: no pod is started, refused or killed on the word
// of a runtime that can't answer. News waits in its rooms, where it is merged. So
// the removal of a manifest takes effect when the runtime is back; before, there
// would be nobody to stop the containers anyway.
package syncloop

// Package containergc removes what pods have left in the container runtime: dead
// containers and sandboxes, log directories, links to logs that are gone.
//
//   - In: everything the runtime holds, from a [Lister] once per Config.Every;
//     [Collector.ContainerDied] and [Collector.PodDone] for what need not wait.
//   - Out: calls of a [Remover], and files removed under Config.LogDir and
//     Config.ContainerLogDir. [Plan] is the whole decision, and pure.
//   - Owns: the goroutines of [Collector.Run], which are idle between passes.
//     Each removal has a deadline, so one that hangs holds up a lane, not the rest.
//   - Rooms: criclient lists, podruntime removes, podworkers says through
//     Config.Removable whose content may go; syncloop's handler calls ContainerDied
//     and PodDone.
//
// Nothing that runs is ever removed, and no conclusion is drawn from a list that
// failed. Two things differ from the kubelet on purpose. A directory under LogDir
// goes only if its name is <namespace>_<name>_<uid>: foreign ones are left alone.
// And the newest container of a name that is created but not started is not
// counted as dead, since it may be about to start.
package containergc

// Package containerd runs a containerd of one's own for tests and `make run`,
// and takes everything down that it and its pods left on the machine.
//
//   - In: a folder, a containerd binary, the images of package images.
//   - Out: a CRI endpoint ([Daemon.Endpoint]); [Leftovers], the proof that
//     nothing of a folder's daemon is left.
//   - Owns: everything below its folder, one bridge, the pods' network
//     namespaces and cgroups, from [Start] to [Daemon.Close]. The machine's own
//     containerd, its state and its sockets are never touched.
//   - Rooms: integration and devnode start it; fullnode is pointed at it.
//
// A test that is killed leaves shims and containers running. The next [Start]
// in the same folder, or [Reap], finds them by the folder and ends them.
//
// Linux only: elsewhere the package is empty.
package containerd

// Package containerdevents makes containerd's own event service a source for pleg.
//
//   - In: the address of containerd's socket, and the namespace of its CRI plugin.
//   - Out: a [pleg.Mark] with the container's (or sandbox's) ID per task that
//     starts, exits, or runs out of memory, and per container that is made or
//     removed. The end of an exec in a container is not one.
//   - Owns: one connection and one goroutine per open stream; both have ended when
//     Stream returns.
//   - Rooms: pleg follows it. It is a package of its own so that only those who
//     use it build containerd's API.
//
// It is for containerd before 1.7, whose CRI plugin has no GetContainerEvents;
// with newer ones prefer pleg/crievents ([pleg.FirstSupported] does). The CRI
// plugin listens to the same events, so right after one its answers may still be
// the old ones: the mark of an exit is repeated for some five seconds, and after the
// task's removal, which the plugin does first of all, in quick steps at first.
package containerdevents

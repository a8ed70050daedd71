// Package podworkers decides, per pod, when it is synced, stopped and released.
//
//   - In: desired pods through [Workers.UpdatePod], what the runtime holds
//     through an [Observer], the set of all desired pods through
//     [Workers.SyncKnownPods].
//   - Out: calls of a [Syncer], one at a time per pod and in the order sync,
//     stop, release; a [Phase] per pod; on [Workers.Due] the pods whose time to
//     be synced again has come, merged per pod, none dropped.
//   - Owns: one goroutine, the caller's, inside [Workers.Run], and one more per
//     pod while there is work for that pod. An idle pod has no goroutine and no
//     timer: all waits share one queue.
//   - Rooms: syncloop hands the updates in, pleg satisfies Observer, podsync
//     satisfies Syncer; containergc, eviction and server ask for the Phase.
//
// A pod is its UID. Two pods of one name are strangers, except that static pods
// of one name run one after the other ([Config.NameSlot]).
//
// A life only moves forward. An update that asks for an end is never taken back,
// the last update wins over those that were not looked at yet, and the grace
// period only shrinks. A shorter one interrupts the call that serves the longer.
// The kubelet's rules are kept, with these differences: a shorter grace period
// takes effect during a running stop, a retry comes at its time and not at the
// next tick, a pod that waits for a name starts when the name is free and not at
// the next back-off, and a pod that ends before its first sync is looked for in
// the runtime before it is called stopped.
package podworkers

// Package cgroup gives each pod its resource box: a cgroup of its own, in one of
// three tiers, with the pod's limits written into it.
//
//   - In: a pod that is about to start, [Tree.Ensure]; new values for a pod that
//     runs, [Tree.Update]; all active pods, [Tree.UpdateQOS]; the UID of a pod
//     that is over, [Tree.Remove].
//   - Out: the cgroup parent to hand to the runtime. [Name], [Limits] and [Tiers]
//     are the decisions, and pure. [Tree.All] finds what earlier pods left.
//   - Owns: the cgroup kubepods under Config.Root, in every hierarchy, and all
//     below it. Nothing above it is ever changed, but for the controllers that
//     cgroup v2 wants enabled on the way down. No goroutine.
//   - Rooms: podspec sums up what the pod asks for; podsync calls Ensure before
//     the sandbox and Remove after it; podruntime hands the parent to the runtime.
//
// Cgroup v1, hybrid and v2 are served, with the cgroupfs and the systemd driver.
// Names and values are the kubelet's, so a node can change hands while its pods
// run. Calls for one pod must take turns; calls for different pods need not.
//
// On systems other than Linux only the pure functions work, and [New] says so.
package cgroup

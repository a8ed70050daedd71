// Package userns gives out the user IDs of the host that pods with a user namespace
// of their own run under.
//
//   - In: a range of host IDs, in [Config] or by [HostRange], and the UIDs of pods.
//   - Out: a [Mapping] per pod, the same at every call until it is released.
//   - Owns: the file pods/<uid>/userns below the root directory, in the kubelet's
//     format, which is on disk before the mapping is handed out.
//   - Rooms: podsync asks before it makes the sandbox, and releases when the pod has
//     gone; podruntime sets the mapping on sandbox, containers and mounts.
//
// No two pods share an ID: one that breaks out of its container is nobody, to the
// host and to every other pod.
package userns

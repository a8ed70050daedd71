// Package observed is the vocabulary for what the container runtime says is there.
//
//   - In: nothing. These are values; criclient fills them from CRI answers.
//   - Out: [Pod], [Sandbox] and [Container], [RuntimeFeatures], and questions asked
//     of them that need no runtime: which sandbox counts, which instance is the newest.
//   - Owns: nothing. No locks, no I/O, no goroutine; the standard library only.
//   - Rooms: criclient makes these values, pleg keeps the newest of them, and
//     podruntime and status compare them with the desired corev1.Pod.
//
// A value handed out by a room is shared: treat its slices and maps as read-only.
package observed

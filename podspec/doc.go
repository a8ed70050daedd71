// Package podspec answers questions about a corev1.Pod that more than one room
// asks: which containers it has, which of them may restart, whether its sandbox
// still fits.
//
//   - In: a desired *corev1.Pod, and where needed the [observed.Pod] beside it.
//   - Out: plain answers. Every function is pure and takes time from nowhere.
//   - Owns: nothing. No state, no I/O, no goroutine.
//   - Rooms: podruntime decides with these answers, and status reports with the
//     same ones, so that the two never disagree about what a pod will do next.
package podspec

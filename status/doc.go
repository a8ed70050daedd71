// Package status turns what the runtime says about a pod into the PodStatus that
// is reported, and remembers what was reported.
//
//   - In: the desired pod, the observed pod, the status reported before, start
//     failures and probe results, all as values in an [Input]; then [Store.Set].
//   - Out: a corev1.PodStatus from [Generate], [Decide] for the verdict behind it,
//     and from [Store] the newest status of every pod, with a version to wait for.
//   - Owns: the file kubeletkit-status.json in <root>/pods/<uid>; no goroutine.
//   - Rooms: pleg and podsync bring the input; server shows what Store holds and
//     the writer to the API server sends it.
//
// Generate, [Terminate], [Normalize], [Recall] and [DeadlineExceeded] are pure:
// they read no clock and change none of their arguments. What a container left
// behind can be removed from the runtime at any time, so the status reported
// before is part of the input: an exit code, once seen, is never lost.
//
// Left out until the rooms exist that feed them: device health and dynamic
// resource claims.
package status

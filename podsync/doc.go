// Package podsync is the recipe for one pod: what is done, in which order, to
// bring it up, to stop it and to give back what it used.
//
//   - In: the desired corev1.Pod and what the runtime holds of it, once per call.
//   - Out: containers that run, through a [Runtime]; directories and volumes; a
//     reported status for each pass, through [Statuses].
//   - Owns: the pods' directories under Config.RootDir, and in memory why each
//     container did not start the last time. No goroutine.
//   - Rooms: podworkers calls the [Syncer], one call per pod at a time;
//     podruntime carries out the plan, volume and status do their parts.
//
// There is no callback: the sandbox comes first, and container specs are built
// when its addresses are known.
package podsync

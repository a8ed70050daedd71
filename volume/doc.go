// Package volume makes a pod's volumes ready on the node and takes them down.
//
//   - In: a pod whose containers are about to start, [Volumes.SetUp]; the UID of
//     a pod whose containers have all ended, [Volumes.TearDown].
//   - Out: the host path of every volume that a container mounts, by volume name.
//   - Owns: the directories volumes and plugins under <root>/pods/<uid>, which
//     only this room writes; a goroutine per check of a hostPath, which outlives
//     SetUp if the path hangs. Calls for one pod take turns, calls for different
//     pods do not wait for each other.
//   - Rooms: podsync calls SetUp before it starts containers and TearDown after
//     they are gone; podruntime hands the paths to the runtime as mounts.
//
// Served now: emptyDir on the node's disk and hostPath with all its type checks.
// Any other volume is an error that wraps [ErrUnsupported], never an empty
// directory. An emptyDir sizeLimit is not looked at here: enforcing it is
// eviction's work, and admission refuses it as long as nobody does.
package volume

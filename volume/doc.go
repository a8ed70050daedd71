// Package volume makes a pod's volumes ready on the node, keeps their contents up to
// date and takes them down.
//
//   - In: a pod, at each sync, [Volumes.SetUp]; a mount of a part of a volume, before
//     each start of its container, [Volumes.SubPath]; the UID of a pod whose
//     containers have all ended, [Volumes.TearDown]. Config maps and secrets come
//     from an [Objects] of the caller's.
//   - Out: the host path of every volume that a container mounts, by volume name.
//   - Owns: the directories volumes, plugins and volume-subpaths under
//     <root>/pods/<uid>, which only this room writes, and the mounts in them. No
//     list of them: directories and the kernel's table of mounts are the record.
//     A goroutine while a hostPath is looked at, which outlives the call if the path
//     hangs. Calls for one pod take turns, calls for different pods do not wait for
//     each other.
//   - Rooms: podspec answers what a pod's fields mean; podsync calls this room, and
//     podruntime hands the paths to the runtime as mounts.
//
// Served: emptyDir on disk, in memory and on huge pages, hostPath, configMap, secret,
// downwardAPI, projected (without tokens, bundles and certificates) and image, which
// the runtime mounts. Any other source is an error that wraps [ErrUnsupported] and
// names it, never an empty directory. An emptyDir sizeLimit on disk is not looked at:
// enforcing it is eviction's work.
package volume

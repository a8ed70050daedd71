// Package podruntime compares the desired pod with the observed one, says what
// has to happen, and does it through CRI.
//
//   - In: a *corev1.Pod, the [observed.Pod] beside it, and probe results. What
//     the pod spec does not say (addresses, mounts, cgroup parent) comes as
//     [SandboxSpec] and [ContainerSpec] from podsync.
//   - Out: a [Plan] from [ComputePodActions], which is pure; a [Sandbox] from
//     [Runtime.EnsureSandbox]; a [Result] from [Runtime.Converge], with the reason
//     of each container that did not start. Between the two, [Runtime.Resize]
//     gives running containers other resources. [Unmapped] names the fields of a pod
//     that this version would have to ignore.
//   - Owns: in memory, the crash-loop back-off of each container, and whose preStop
//     hook has been begun. Goroutines only inside [Runtime.StopPod], which waits for
//     them. Log directories and links of the containers it makes, until
//     [Runtime.RemoveContainer].
//   - Rooms: pleg supplies what is observed, imagepull the images, and lifecycle runs
//     the hooks; podsync calls here once before and once after the sandbox has its
//     addresses.
//
// Sandbox and container names, labels, annotations and log paths are the
// kubelet's, so crictl, log shippers and dashboards find everything where they
// expect it.
package podruntime

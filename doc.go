// Package kubeletkit is a library of kubelet building blocks: each subsystem of
// a Kubernetes node agent as a package ("room") of its own, usable alone.
//
// The rooms, in the order a Pod meets them:
//
//   - [github.com/kubeletkit/kubeletkit/observed]: the words for what the runtime says is there.
//   - [github.com/kubeletkit/kubeletkit/podsource]: the Pod arrives, from a file, a URL or a source of yours.
//   - [github.com/kubeletkit/kubeletkit/podstore]: it is written down as desired.
//   - [github.com/kubeletkit/kubeletkit/syncloop]: the hall, one loop over everything that can happen.
//   - [github.com/kubeletkit/kubeletkit/admission]: may it run here?
//   - [github.com/kubeletkit/kubeletkit/allocation]: what it is granted, and what becomes of a resize.
//   - [github.com/kubeletkit/kubeletkit/podworkers]: one worker and one ordered phase per pod UID.
//   - [github.com/kubeletkit/kubeletkit/podsync]: one pass of the recipe, and the way back.
//   - [github.com/kubeletkit/kubeletkit/podspec]: questions that the Pod's spec answers by itself.
//   - [github.com/kubeletkit/kubeletkit/cgroup]: its resource box.
//   - [github.com/kubeletkit/kubeletkit/volume]: its volumes.
//   - [github.com/kubeletkit/kubeletkit/keyring]: the credentials that its images may need.
//   - [github.com/kubeletkit/kubeletkit/imagepull]: its images are present.
//   - [github.com/kubeletkit/kubeletkit/podnet]: its names: host name, resolv.conf, hosts file.
//   - [github.com/kubeletkit/kubeletkit/userns]: the users it runs under, apart from the host's.
//   - [github.com/kubeletkit/kubeletkit/podenv]: what its containers find in their environment.
//   - [github.com/kubeletkit/kubeletkit/podruntime]: desired is compared with observed; the plan is carried out.
//   - [github.com/kubeletkit/kubeletkit/lifecycle]: its hooks run, after a start and before a stop.
//   - [github.com/kubeletkit/kubeletkit/criclient]: the door to the runtime. gRPC stops here.
//   - [github.com/kubeletkit/kubeletkit/pleg]: someone looks back through the door.
//   - [github.com/kubeletkit/kubeletkit/status]: desired and observed become the reported PodStatus.
//   - [github.com/kubeletkit/kubeletkit/server]: people look in.
//   - [github.com/kubeletkit/kubeletkit/containergc]: what it left behind is removed.
//   - [github.com/kubeletkit/kubeletkit/metrics]: the rooms' hooks become Prometheus metrics.
//   - [github.com/kubeletkit/kubeletkit/floors]: starts the rooms bottom up, stops them top down.
//
// The fake runtime, [github.com/kubeletkit/kubeletkit/criclient/critest], is a
// product of its own: a container runtime in memory for your tests.
//
// The program examples/fullnode puts all rooms together into a node agent that
// runs pods in the kubelet's place. Its golden tour, examples/fullnode/testdata/tour.txt,
// follows one Pod through the house and is checked by a test.
package kubeletkit

// Package integration holds the stories that must be true of fullnode, as a
// black box, on a real containerd. The tests are its whole content.
//
//   - In: root, Linux, a containerd; KUBELETKIT_CONTAINERD=v2 tests against the
//     2.x that test/containerd2 pins, the default is the one on PATH.
//   - Out: failures, each with the end of the agent's log.
//   - Owns: .dev/integration, and what package containerd owns.
//   - Rooms: drives examples/fullnode by files and signals, and looks at the
//     runtime by plain CRI calls that share no code with it.
package integration

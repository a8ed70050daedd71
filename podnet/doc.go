// Package podnet decides how a pod sees names: its own, its hosts file's, and those
// that its resolver looks up.
//
//   - In: a pod and its addresses; the cluster's domain and name servers, the host's
//     resolv.conf and hosts file, in [Config].
//   - Out: [Net.SandboxHostname] and [Net.DNS] for the sandbox, [Net.Hosts] for its
//     containers; warnings about what had to be left out, as events.
//   - Owns: nothing on disk. In memory, which warnings of the last minutes were
//     given. The host's files are read at each call, so an edit counts at once.
//   - Rooms: podsync asks before it makes a sandbox and before it starts a container;
//     podruntime hands the answers to the runtime.
//
// Every list comes out in the order of its sources, without duplicates.
package podnet

// Package server lets people and machines look into a node over HTTP.
//
//   - In: tiny interfaces and handlers, one per group of routes; each optional.
//   - Out: plain [net/http.Handler] values ([Healthz], [Pods], [Routes]) that an
//     embedder can mount anywhere, and a [Server] that serves them on the
//     kubelet's three ports: 10250 with TLS and access control, 10255
//     read-only, 10248 for health alone.
//   - Owns: the listeners and the connections, inside [Server.Run].
//   - Rooms: podstore and status supply what is shown; metrics supplies
//     /metrics; examples/fullnode opens the ports.
//
// A route whose part was not given answers 501, so that a probe can tell "not
// offered by this node" from "no such thing".
package server

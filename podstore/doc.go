// Package podstore is where pods are written down as desired, until their
// source removes them.
//
//   - In: the pods of podsource's updates, as they come.
//   - Out: the desired pods by UID and by name, oldest first, and which static
//     pod belongs to which mirror.
//   - Owns: a lock and the maps under it. Nothing runs here.
//   - Rooms: podsource brings the pods; syncloop's handler writes them here
//     before it acts, and podworkers, status and server look them up.
//
// A mirror pod is the API server's picture of a static pod, which it does not
// otherwise know. The two share namespace and name but not the UID. Nobody runs
// a mirror, so it never appears among the pods.
//
// Pods are shared: whoever gets one must not change it. A stored pod is never
// changed but replaced.
package podstore

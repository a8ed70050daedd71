// Package podenv works out the environment of a container, and what in its command
// line and paths refers to it.
//
//   - In: a pod, one of its containers, its addresses, and [Objects] to read config
//     maps and secrets from; optionally [Services] and a reader of env files.
//   - Out: an [Env]: the variables in a fixed order, command and args with $(NAME)
//     filled in, and subPathExpr as a path.
//   - Owns: nothing. It asks the interfaces while [Build] runs, and keeps no answer.
//   - Rooms: podspec has the rules of $(NAME) and of the downward API; podsync builds
//     an Env per container start, and podruntime hands it to the runtime.
//
// The order is the one of the pod spec: envFrom, then env, then services; the keys
// of one config map or secret are sorted. (The kubelet's order is random.) Two
// starts with the same input have the same environment.
package podenv

// Package keyring finds the credentials that a node may show a registry when it
// pulls an image for a pod.
//
//   - In: an image and its pod; secrets from a [Secrets], docker config files of
//     the node, and exec credential plug-ins.
//   - Out: an [Answer]: every [Credential] that fits, the one to try first first,
//     each with the [Source] that a record of the pull needs.
//   - Owns: what it read of the node's files and what plug-ins let it cache, in
//     memory. A plug-in that runs ends before the last caller that waits for it
//     returns.
//   - Rooms: imagepull asks here; whoever has the secrets of the pods fits in as
//     Secrets.
//
// Order: the pod's imagePullSecrets, the node's files, the plug-ins. Within each of
// them the more specific key comes first, and all that match are given: which one
// is right only the registry knows.
package keyring

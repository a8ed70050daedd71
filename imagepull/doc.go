// Package imagepull makes the image of a container present on the node.
//
//   - In: a pod, one of its containers, and the config of its sandbox; an image
//     service of CRI; credentials from a [Credentials].
//   - Out: the image to create the container with, or an [*Error] with the
//     container's waiting reason and the time of the next try.
//   - Owns: the pull back-off per pod and image, in memory; on disk, the records of
//     who pulled what. One goroutine per pull under way, which ends before the last
//     caller that waits for it returns.
//   - Rooms: podruntime asks here before it creates a container; criclient
//     supplies the image service and keyring the credentials.
//
// Callers that want the same image with the same credentials share one pull, and
// an image that is already there never waits for somebody else's pull. A private
// image that one pod has pulled is not another's before that one has shown that it
// could pull it, too: see [VerifyPolicy].
package imagepull

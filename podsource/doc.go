// Package podsource is where pods arrive: it reads them from manifest files,
// from a URL or from any [Source], and merges them into one stream of changes.
//
//   - In: manifests (v1 Pod, PodList or List; YAML or JSON; several documents
//     per file) through [Files] and [HTTP], or complete sets from a Source of
//     the embedder's own, such as an API watch. ConfigMaps and Secrets stand
//     beside the pods when the source has [Objects] to put them.
//   - Out: an [Update] per kind of change and source on [Mux.Updates]. A full
//     channel blocks the source that has news; nothing is dropped. Objects
//     change just before the pods of the same manifest do.
//   - Owns: one goroutine per source inside [Mux.Run], and the file watch that
//     [Files] opens inside its own Run. Nothing runs before or after.
//   - Rooms: podstore writes the pods down as desired; syncloop reads the
//     updates and says with [Mux.MarkSeen] how far it has come; podenv, volume
//     and keyring ask Objects.
//
// A static pod needs no API server, so nobody has checked or defaulted it:
// [Decode] does both, and turns a document into the pod the kubelet would make
// of it (name suffix, UID, annotations).
//
// A source always tells its complete set. Missing information is never a
// smaller set: a manifest that does not parse keeps the pods of its last good
// version, a URL that does not answer keeps everything. Only a file that is
// gone, or a set that says so, removes pods or objects.
//
// Differences from the kubelet, on purpose: several pods per file, with the
// ConfigMaps and Secrets they use (kubernetes/kubernetes#27312 asks for it);
// editor backups (web.yaml~, *.bak, *.swp and the like) are not pods; unknown
// and duplicate fields are errors that name the field.
package podsource

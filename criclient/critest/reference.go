package critest

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The parts of an image reference.
var (
	domainForm = regexp.MustCompile(`^([a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*|\[[0-9a-fA-F:]+\])(:[0-9]+)?$`)
	pathForm   = regexp.MustCompile(`^[a-z0-9]+((\.|__?|-+|/)[a-z0-9]+)*$`)
	tagForm    = regexp.MustCompile(`^\w[\w.-]{0,127}$`)
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// fullReference writes an image reference out as containerd stores it: with
// registry, "library" for short names, and tag latest where nothing is said.
// Beside a digest a tag says nothing and is left out.
func fullReference(ref string) (string, error) {
	name, digest, pinned := strings.Cut(ref, "@")
	name, tag, tagged := splitTag(name)
	domain, path, found := strings.Cut(name, "/")
	if !found || !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		domain, path = "docker.io", name
		if !found {
			path = "library/" + name
		}
	}
	if !domainForm.MatchString(domain) || !pathForm.MatchString(path) ||
		tagged && !tagForm.MatchString(tag) || pinned && !digestForm.MatchString(digest) {
		return "", status.Errorf(codes.Unknown, "failed to parse image reference %q: invalid reference format", ref)
	}
	switch {
	case pinned:
		return domain + "/" + path + "@" + digest, nil
	case tagged:
		return domain + "/" + path + ":" + tag, nil
	}
	return domain + "/" + path + ":latest", nil
}

// splitTag cuts the tag off; a colon before the last slash belongs to a port.
func splitTag(name string) (rest, tag string, tagged bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], '/') {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// repository is a full reference without tag and digest.
func repository(full string) string {
	name, _, _ := strings.Cut(full, "@")
	name, _, _ = splitTag(name)
	return name
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

package critest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fullReference writes an image reference out as containerd stores it: with
// registry, "library" for short names, and tag latest where nothing is said.
func fullReference(ref string) (string, error) {
	bad := func() (string, error) {
		return "", status.Errorf(codes.Unknown, "failed to parse image reference %q: invalid reference format", ref)
	}
	name, digest, _ := strings.Cut(ref, "@")
	if name == "" || strings.ContainsAny(ref, " \t\n") || strings.ContainsRune(digest, '@') {
		return bad()
	}
	if strings.HasSuffix(ref, "@") || digest != "" && !strings.HasPrefix(digest, "sha256:") {
		return bad()
	}
	name, tag := splitTag(name)
	domain, path, found := strings.Cut(name, "/")
	if !found || !strings.ContainsAny(domain, ".:") && domain != "localhost" {
		domain, path = "docker.io", name
		if !found {
			path = "library/" + name
		}
	}
	if path == "" || path != strings.ToLower(path) || strings.HasSuffix(ref, ":") {
		return bad()
	}
	name = domain + "/" + path
	switch {
	case digest != "":
		return name + "@" + digest, nil
	case tag == "":
		tag = "latest"
	}
	return name + ":" + tag, nil
}

// splitTag cuts the tag off; a colon before the last slash belongs to a port.
func splitTag(name string) (rest, tag string) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], '/') {
		return name, ""
	}
	return name[:i], name[i+1:]
}

// repository is a full reference without tag and digest.
func repository(full string) string {
	name, _, _ := strings.Cut(full, "@")
	name, _ = splitTag(name)
	return name
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

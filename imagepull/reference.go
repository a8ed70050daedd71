package imagepull

import (
	"errors"
	"regexp"
	"strings"
)

// The grammar of image references, as registries and runtimes share it.
var (
	domainForm = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$`)
	partForm   = regexp.MustCompile(`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*$`)
	tagForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
	hexForm    = regexp.MustCompile(`^[a-f0-9]{64}$`)
)

// WithTag returns the image reference with :latest added when it has neither tag
// nor digest, as text: no registry is put before it. The error says which part
// of the reference is wrong.
func WithTag(image string) (string, error) {
	name, tag, digest, err := split(image)
	switch {
	case err != nil:
		return "", err
	case tag == "" && digest == "":
		return name + ":latest", nil
	default:
		return image, nil
	}
}

// isLatest reports whether a reference means whatever is newest.
func isLatest(image string) bool {
	_, tag, digest, err := split(image)
	return err == nil && digest == "" && (tag == "" || tag == "latest")
}

func split(image string) (name, tag, digest string, err error) {
	name, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest && !digestForm.MatchString(digest) {
		return "", "", "", errors.New("invalid reference format: the digest is not algorithm:hex")
	}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag = name[:colon], name[colon+1:]
		if !tagForm.MatchString(tag) {
			return "", "", "", errors.New("invalid reference format: the tag has characters that no tag has")
		}
	}
	if hexForm.MatchString(name) {
		return "", "", "", errors.New("invalid reference format: 64 hexadecimal digits are an ID, not a name")
	}
	path := name
	if first, rest, ok := strings.Cut(name, "/"); ok && isDomain(first) {
		if !domainForm.MatchString(first) {
			return "", "", "", errors.New("invalid reference format: the registry is not host[:port]")
		}
		path = rest
	}
	if len(path) == 0 || len(path) > 255 {
		return "", "", "", errors.New("invalid reference format: the name is empty or longer than 255 characters")
	}
	for part := range strings.SplitSeq(path, "/") {
		if part != strings.ToLower(part) {
			return "", "", "", errors.New("invalid reference format: repository name must be lowercase")
		}
		if !partForm.MatchString(part) {
			return "", "", "", errors.New("invalid reference format: the name has an empty part or characters that no name has")
		}
	}
	return name, tag, digest, nil
}

// isDomain tells a registry from the first part of a path.
func isDomain(first string) bool {
	return strings.ContainsAny(first, ".:") || first == "localhost" || first != strings.ToLower(first)
}

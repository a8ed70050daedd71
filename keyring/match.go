package keyring

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The default registry: what an image without a registry means, and the host
// under which docker files its credentials.
const (
	defaultDomain = "docker.io"
	defaultIndex  = "index.docker.io"
)

// Repository is the image reference without tag and digest, with the default
// registry written out: busybox:1 is docker.io/library/busybox. It does not
// check the reference.
func Repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(domain, ".:") && domain != "localhost" && domain == strings.ToLower(domain) {
		domain, rest = defaultDomain, name
	}
	if domain == defaultIndex {
		domain = defaultDomain
	}
	if domain == defaultDomain && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return domain + "/" + rest
}

// Match reports whether a key of a docker config, or a pattern of a plug-in, fits
// an image: as many labels in the host, each of which matches (a * stays within
// its label), the same port, and a path that the image's path begins with.
func Match(key, image string) bool {
	p, err := parseKey(key)
	return err == nil && p.matches(target(Repository(image)))
}

// pattern is a key taken apart. Its text is what orders keys.
type pattern struct {
	host, port, path string
}

func (p pattern) String() string {
	if p.port != "" {
		return p.host + ":" + p.port + p.path
	}
	return p.host + p.path
}

// parseKey reads a key in any form that docker has ever written: a host, with a
// port, with a path, as a URL, as the URL of an old API (https://host/v1/).
func parseKey(key string) (pattern, error) {
	rest := strings.TrimSpace(key)
	url := false
	for _, scheme := range []string{"https://", "http://"} {
		if len(rest) >= len(scheme) && strings.EqualFold(rest[:len(scheme)], scheme) {
			rest, url = rest[len(scheme):], true
			break
		}
	}
	hostport, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		hostport, path = rest[:slash], rest[slash:]
	}
	switch {
	case strings.HasPrefix(path, "/v1/"), strings.HasPrefix(path, "/v2/"):
		path = path[len("/v1"):]
	case url && (path == "/v1" || path == "/v2"):
		path = "" // as a name, host/v1 is somebody's repository
	}
	if path == "/" {
		path = ""
	}
	host, port, err := splitPort(hostport)
	if err != nil {
		return pattern{}, fmt.Errorf("key %q: %w", shown(key), err)
	}
	return pattern{host: strings.ToLower(host), port: port, path: path}, nil
}

// shown is a key as errors name it: who takes it for a URL may have put a password
// before the host.
func shown(key string) string {
	if at := strings.LastIndexByte(key, '@'); at >= 0 {
		return "..." + key[at:]
	}
	return key
}

func splitPort(hostport string) (host, port string, err error) {
	host = hostport
	if colon := strings.LastIndexByte(hostport, ':'); colon > strings.LastIndexByte(hostport, ']') {
		host, port = hostport[:colon], hostport[colon+1:]
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", "", errors.New("the port is not a number up to 65535")
		}
	}
	if host == "" || strings.ContainsAny(host, "@?# \t") {
		return "", "", errors.New("want host[:port][/path]")
	}
	return host, port, nil
}

// target is an image's repository as a pattern to be matched against.
func target(repository string) pattern {
	domain, path, _ := strings.Cut(repository, "/")
	t := pattern{host: strings.ToLower(domain), path: "/" + path}
	if host, port, err := splitPort(domain); err == nil {
		t.host, t.port = strings.ToLower(host), port
	}
	return t
}

func (p pattern) matches(t pattern) bool {
	if p.port != t.port || !strings.HasPrefix(t.path, p.path) {
		return false
	}
	if p.host == t.host {
		return true
	}
	want, have := strings.Split(p.host, "."), strings.Split(t.host, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		// A bad pattern is one that matches nothing.
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// find returns the credentials for a repository, the more specific key first:
// keys in reverse order of their text puts longer paths before shorter ones and
// names before wildcards. Equal keys stay in their order.
func find(all []sourced, repository string) []Credential {
	t := target(repository)
	var found []sourced
	for _, s := range all {
		if s.key.matches(t) {
			found = append(found, s)
		}
	}
	if len(found) == 0 && t.host == defaultDomain {
		for _, s := range all {
			if s.key == (pattern{host: defaultIndex}) {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b sourced) int {
		return strings.Compare(b.key.String(), a.key.String())
	})
	var credentials []Credential
	for _, s := range found {
		credentials = append(credentials, s.Credential)
	}
	return credentials
}

// sourced is a credential under the key it was found with.
type sourced struct {
	key pattern
	Credential
}

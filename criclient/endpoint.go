package criclient

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
)

// SocketPath returns the path of the unix socket that a runtime endpoint names.
// The right form is unix:///path. A bare absolute path and unix:/path mean the
// same to the kubelet and to this package; [New] logs the better spelling.
// npipe:, tcp: and all others are errors.
func SocketPath(endpoint string) (string, error) {
	path := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, ":"); ok && !strings.HasPrefix(endpoint, "/") {
		switch scheme {
		case "unix":
			path = strings.TrimPrefix(rest, "//")
		case "npipe":
			return "", fmt.Errorf("runtime endpoint %q: named pipes are Windows'; write unix:///path/to/runtime.sock", endpoint)
		case "tcp", "http", "https":
			return "", fmt.Errorf("runtime endpoint %q: CRI has no login, so it is not spoken over the network; write unix:///path/to/runtime.sock", endpoint)
		default:
			return "", fmt.Errorf("runtime endpoint %q: unknown scheme %q; write unix:///path/to/runtime.sock", endpoint, scheme)
		}
	}
	switch {
	case endpoint == "":
		return "", errors.New("no runtime endpoint; write unix:///path/to/runtime.sock")
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("runtime endpoint %q: the socket's path must start with a slash; write unix:///path/to/runtime.sock", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("runtime endpoint %q: the socket's path has a NUL byte", endpoint)
	case filepath.Clean(path) == "/":
		return "", fmt.Errorf("runtime endpoint %q names no socket; write unix:///path/to/runtime.sock", endpoint)
	}
	// The kernel's sockaddr_un ends the path with a NUL. Its own answer to a
	// longer one is "invalid argument".
	if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return "", fmt.Errorf("runtime endpoint %q: the socket's path has %d bytes, the system takes %d; use a shorter path or a symbolic link", endpoint, len(path), most)
	}
	return path, nil
}

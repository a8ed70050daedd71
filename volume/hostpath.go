package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// hostPathAnswers is how long a check waits. A path on a dead network file system
// answers nobody.
const hostPathAnswers = 10 * time.Second

// setUpHostPath checks that the path is what the pod says it is, each time.
// Symlinks are followed: the node's administrator may move things. A check that
// gets no answer is left behind, one for each path: the pod has to be stopped all
// the same, and the next call waits for the same check.
func (v *Volumes) setUpHostPath(ctx context.Context, src *corev1.HostPathVolumeSource) (string, error) {
	if !filepath.IsAbs(src.Path) {
		return "", fmt.Errorf("hostPath.path is %q, want an absolute path", src.Path)
	}
	if slices.Contains(strings.Split(filepath.ToSlash(src.Path), "/"), "..") {
		return "", fmt.Errorf("hostPath.path %q must not contain '..'", src.Path)
	}
	kind := corev1.HostPathUnset
	if src.Type != nil {
		kind = *src.Type
	}
	if kind == corev1.HostPathUnset {
		return src.Path, nil // no check; the runtime creates a directory if need be
	}
	ctx, cancel := context.WithTimeout(ctx, hostPathAnswers)
	defer cancel()
	checked := v.checks.DoChan(string(kind)+" "+src.Path, func() (any, error) { return nil, v.check(src.Path, kind) })
	select {
	case c := <-checked:
		return src.Path, c.Err
	case <-ctx.Done():
		return "", fmt.Errorf("check hostPath %s, which does not answer (is its file system mounted and alive?): %w", src.Path, ctx.Err())
	}
}

func checkHostPath(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate, corev1.HostPathDirectory,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev:
	default:
		return fmt.Errorf("hostPath.type %q is unknown", kind)
	}
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createHostPath(path, kind, err)
	}
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	want := wanted(kind)
	if got := describe(fi.Mode()); got != want {
		return fmt.Errorf("hostPath type check failed: %s is not %s, it's %s", path, want, got)
	}
	return nil
}

func createHostPath(path string, kind corev1.HostPathType, missing error) error {
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("create hostPath directory: %w", err)
		}
		return nil
	case corev1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("create hostPath file (its directory must exist): %w", err)
		}
		return f.Close()
	default:
		return fmt.Errorf("hostPath type check failed: %s is not %s: create it on the node, or choose another hostPath.type: %w",
			path, wanted(kind), missing)
	}
}

func wanted(kind corev1.HostPathType) string {
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return describe(fs.ModeDir)
	case corev1.HostPathSocket:
		return describe(fs.ModeSocket)
	case corev1.HostPathCharDev:
		return describe(fs.ModeDevice | fs.ModeCharDevice)
	case corev1.HostPathBlockDev:
		return describe(fs.ModeDevice)
	default:
		return describe(0)
	}
}

func describe(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDevice | fs.ModeCharDevice:
		return "a character device"
	case fs.ModeDevice:
		return "a block device"
	case fs.ModeNamedPipe:
		return "a named pipe"
	default:
		return "something else"
	}
}

//go:build !linux

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// system mounts nothing: there is no tmpfs and no bind mount here.
type system struct{}

var errNoMounts = fmt.Errorf("%w: no mounts on %s", errors.ErrUnsupported, runtime.GOOS)

func (system) mount(string, string, string) error   { return errNoMounts }
func (system) bind(*os.File, string, bool) error    { return errNoMounts }
func (system) unmount(string) error                 { return errNoMounts }
func (system) mountedAt(dir string) (string, error) { return "", nil }

// openInside would need handles of directories that no symlink can change.
func openInside(context.Context, string, string) (*os.File, error) {
	return nil, fmt.Errorf("subPath needs Linux: %w", errNoMounts)
}

// mountsBelow returns the directories below dir that are on another device than
// dir. That finds every mount on systems without bind mounts.
func (system) mountsBelow(dir string) ([]mountPoint, error) {
	top, err := device(dir)
	if err != nil {
		return nil, err
	}
	var found []mountPoint
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.IsDir() {
			return err
		}
		dev, err := device(path)
		if err != nil {
			return err
		}
		if dev != top {
			found = append(found, mountPoint{at: path})
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

func device(path string) (uint64, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("no device number in the file's status")
	}
	return uint64(st.Dev), nil
}

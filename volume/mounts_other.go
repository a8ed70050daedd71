//go:build !linux

package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// mountsBelow returns the directories below dir that are on another device than
// dir. That finds every mount on systems without bind mounts.
func mountsBelow(dir string) ([]string, error) {
	top, err := device(dir)
	if err != nil {
		return nil, err
	}
	var found []string
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
			found = append(found, path)
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

//go:build !unix

package criclient

import (
	"errors"
	"os"
)

// Without O_NOFOLLOW the check comes before the opening and again after it.
func openRegular(path string) (*os.File, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if after, err := f.Stat(); err != nil || !os.SameFile(before, after) {
		f.Close()
		return nil, errors.New("it was exchanged while it was opened")
	}
	return f, nil
}

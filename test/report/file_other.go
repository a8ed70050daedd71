//go:build !linux

package report

import "os"

// describe is for Linux, where the containers are; elsewhere kk is only compiled.
func describe(path string) File {
	fi, err := os.Stat(path)
	if err != nil {
		return File{Error: err.Error()}
	}
	return File{Mode: fi.Mode().String(), Size: fi.Size()}
}

func isTerminal() bool { return false }

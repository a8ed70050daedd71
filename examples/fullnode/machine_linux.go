package main

import (
	"path/filepath"
	"syscall"
)

// diskSize is the size in bytes of the file system that dir is on, or will be.
func diskSize(dir string) int64 {
	for {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err == nil {
			return int64(fs.Blocks) * fs.Bsize
		}
		up := filepath.Dir(dir)
		if up == dir {
			return 0
		}
		dir = up
	}
}

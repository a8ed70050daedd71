//go:build !linux

package podsource

import (
	"io/fs"
	"os"
)

func stampOf(info fs.FileInfo) stamp {
	modified := info.ModTime().UnixNano()
	return stamp{changed: modified, modified: modified, size: info.Size()}
}

// isBeingWritten can't be told here. A half-written manifest that is valid by
// itself is taken, and replaced at the next look.
func isBeingWritten(*os.File) bool { return false }

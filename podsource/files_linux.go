package podsource

import (
	"io/fs"
	"os"
	"syscall"
)

// stampOf uses the inode's change time, which nobody can set back.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{changed: info.ModTime().UnixNano(), modified: info.ModTime().UnixNano(), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.changed = sys.Ctim.Nano()
		s.inode, s.device = sys.Ino, uint64(sys.Dev)
	}
	return s
}

// isBeingWritten reports whether some process has the file open for writing:
// half a manifest can be a valid one, of a pod that nobody wants. The kernel
// grants a read lease only when there is no writer (fcntl(2), F_SETLEASE). The
// lease is given back at once. False also where the file system has no leases.
func isBeingWritten(file *os.File) bool {
	conn, err := file.SyscallConn()
	if err != nil {
		return false
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETLEASE, syscall.F_RDLCK)
		if errno == 0 {
			syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETLEASE, syscall.F_UNLCK)
		}
	})
	return err == nil && errno == syscall.EAGAIN
}

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func describe(path string) File {
	var f File
	f.Link, _ = os.Readlink(path)
	fi, err := os.Stat(path)
	if err != nil {
		f.Error = err.Error()
		return f
	}
	perm := uint32(fi.Mode().Perm())
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID, perm = int(st.Uid), int(st.Gid), st.Mode&0o7777
	}
	f.Mode = fmt.Sprintf("%v %04o", fi.Mode(), perm)
	f.Size = fi.Size()
	switch {
	case fi.IsDir():
		entries, err := os.ReadDir(path)
		if err != nil {
			f.Error = err.Error()
		}
		for _, e := range entries {
			f.List = append(f.List, e.Name())
		}
		probe := filepath.Join(path, ".kk-look")
		if err := os.WriteFile(probe, nil, 0o600); err == nil {
			f.Writable = true
			_ = os.Remove(probe) // the report was made, that is what counts
		}
	case fi.Mode().IsRegular():
		data, err := os.ReadFile(path)
		if err != nil {
			f.Error = err.Error()
		}
		f.Content = string(data[:min(len(data), mostContent)])
		if out, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			f.Writable = true
			_ = out.Close() // nothing was written
		}
	}
	return f
}

func isTerminal() bool {
	_, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	return err == nil
}

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// file is one entry of the initramfs.
type file struct {
	name string
	mode uint32 // with the bits of its type, as stat has them
	data []byte
}

const (
	directory  = 0o040755
	executable = 0o100755
	plain      = 0o100644
	symlink    = 0o120777 // data is where it leads
)

// initramfs writes the archive that the kernel unpacks as its first root: cpio in
// the "newc" format (Documentation/driver-api/early-userspace), gzipped.
func initramfs(w io.Writer, files []file) error {
	z := gzip.NewWriter(w)
	for i, f := range append(files, file{name: "TRAILER!!!"}) {
		var b bytes.Buffer
		// inode, mode, uid, gid, links, mtime, size, two devices, length of the
		// name with its zero byte, and a checksum that this format leaves out.
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.name)+1, 0)
		b.WriteString(f.name + "\x00")
		pad(&b)
		b.Write(f.data)
		pad(&b)
		if _, err := z.Write(b.Bytes()); err != nil {
			return err
		}
	}
	return z.Close()
}

// pad fills up to a multiple of four, where the next part begins.
func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}

package volume

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// system is the kernel we run on.
type system struct{}

func (system) mount(dir, fstype, options string) error {
	return retry(func() error { return unix.Mount(fstype, dir, fstype, 0, options) })
}

// bind names the source by its open file, so that nobody can put something else in
// its place. Not recursive, as in the kubelet. The target keeps the propagation of
// what it shows: mountPropagation works below a subPath too.
func (system) bind(source *os.File, target string, readOnly bool) error {
	from := "/proc/self/fd/" + strconv.Itoa(int(source.Fd()))
	if err := retry(func() error { return unix.Mount(from, target, "", unix.MS_BIND, "") }); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	// The runtime mounts it read-only as well; kernels before 5.12 leave it at that.
	err := retry(func() error {
		return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_SYMLINK_NOFOLLOW, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	})
	if errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// unmount detaches what is busy, but makes it private first. A bind of a shared
// mount shares what is mounted below it with the original, and detaching the one
// would take away the other. The plain way comes first, as it does not ask the file
// system, which may be on a server that is dead.
func (system) unmount(at string) error {
	err := retry(func() error { return unix.Unmount(at, unix.UMOUNT_NOFOLLOW) })
	if errors.Is(err, unix.EBUSY) {
		err = retry(func() error { return unix.Mount("", at, "", unix.MS_REC|unix.MS_PRIVATE, "") })
		if err == nil {
			err = retry(func() error { return unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
		}
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // not a mount point any more
	}
	return err
}

func (system) mountedAt(dir string) (string, error) {
	var own, parent unix.Stat_t
	if err := retry(func() error { return unix.Lstat(dir, &own) }); err != nil {
		return "", &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if err := retry(func() error { return unix.Lstat(filepath.Dir(dir), &parent) }); err != nil {
		return "", &fs.PathError{Op: "stat", Path: filepath.Dir(dir), Err: err}
	}
	if own.Dev == parent.Dev {
		return "", nil // each of these file systems has a number of its own
	}
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	switch uint32(st.Type) {
	case unix.TMPFS_MAGIC:
		return tmpfs, nil
	case unix.HUGETLBFS_MAGIC:
		return hugetlbfs, nil
	}
	return "", nil
}

// mountsBelow asks the kernel's table because a bind mount within one file system
// keeps the device number.
func (system) mountsBelow(dir string) ([]mountPoint, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []mountPoint
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := parseMount(lines.Text()); m.below(dir) {
			found = append(found, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	return found, nil
}

// parseMount reads a line of mountinfo (see proc(5)): the fifth field is the mount
// point, and the file system follows a lone dash.
func parseMount(line string) mountPoint {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return mountPoint{}
	}
	_, rest, _ := strings.Cut(fields[5], " - ")
	fstype, _, _ := strings.Cut(rest, " ")
	return mountPoint{at: unescape(fields[4]), fstype: fstype}
}

// unescape undoes the three octal digits in which the kernel writes blanks,
// newlines and backslashes.
func unescape(raw string) string {
	if !strings.Contains(raw, `\`) {
		return raw
	}
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+4 <= len(raw) {
			if n, err := strconv.ParseUint(raw[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}

// retry repeats a system call that a signal has cut off, which network file
// systems do.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

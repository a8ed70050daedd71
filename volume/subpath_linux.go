package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// handle opens a file without touching it: no device is woken, no pipe waits, and
// a symlink is opened itself.
const handle = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// maxLinks is the kernel's own bound. maxDepth bounds how many files one walk has
// open: with symlinks a container could have it take all that the agent may open.
const (
	maxLinks = 40
	maxDepth = 256
)

// openInside opens rel below the directory top. It goes one name at a time from an
// open directory to the next and reads symlinks itself, so whatever is swapped
// meanwhile, each step is a step down from a directory inside, or back to one we
// came through. openat2 promises the same; this works on every kernel, and can
// create on its way. What is missing becomes a directory with top's mode.
func openInside(ctx context.Context, top, rel string) (*os.File, error) {
	fd, err := openat(unix.AT_FDCWD, top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if errors.Is(err, unix.ENOENT) {
		return nil, errors.New("the volume's directory is not there (a hostPath of type DirectoryOrCreate is made)")
	}
	if err != nil {
		return nil, fmt.Errorf("open the volume: %w", err)
	}
	w := walk{at: []int{fd}}
	defer w.close()
	st, err := stat(fd)
	if err != nil {
		return nil, err
	}
	w.mode = st.Mode & (0o777 | unix.S_ISGID)
	w.push(rel, false)
	for len(w.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.step(); err != nil {
			return nil, err
		}
	}
	// A copy, since all that was opened is closed.
	last, err := unix.FcntlInt(uintptr(w.here()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(last), "subPath "+rel), nil
}

// walk is the way from a volume's top to a file in it.
type walk struct {
	at    []int // what we came through, top first, all open
	todo  []part
	links int
	mode  uint32
}

// part is a name that is still to be opened. One out of a symlink is never created.
type part struct {
	name string
	link bool
}

func (w *walk) here() int { return w.at[len(w.at)-1] }

func (w *walk) close() {
	for _, fd := range w.at {
		_ = unix.Close(fd)
	}
}

func (w *walk) push(path string, link bool) {
	var parts []part
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			parts = append(parts, part{name, link})
		}
	}
	w.todo = append(parts, w.todo...)
}

func (w *walk) step() error {
	next := w.todo[0]
	w.todo = w.todo[1:]
	if next.name == ".." {
		if len(w.at) == 1 {
			return ErrOutside
		}
		_ = unix.Close(w.here())
		w.at = w.at[:len(w.at)-1]
		return nil
	}
	if len(w.at) > maxDepth {
		return unix.ENAMETOOLONG
	}
	fd, err := openat(w.here(), next.name, handle)
	if errors.Is(err, unix.ENOENT) {
		if next.link {
			return errors.New("a symlink leads to nothing")
		}
		fd, err = w.create(next.name)
	}
	if err != nil {
		return err
	}
	st, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.at = append(w.at, fd)
		return nil
	}
	defer unix.Close(fd)
	return w.follow(fd)
}

func (w *walk) follow(fd int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return fmt.Errorf("read a symlink: %w", err)
	}
	target := string(buf[:n])
	if strings.HasPrefix(target, "/") {
		return fmt.Errorf("%w: an absolute symlink", ErrOutside)
	}
	w.push(target, true)
	return nil
}

// create makes a directory. Two may do so at once; who comes second takes what is
// there, but no symlink.
func (w *walk) create(name string) (int, error) {
	err := retry(func() error { return unix.Mkdirat(w.here(), name, 0o700) })
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("create the directory, which is missing: %w", err)
	}
	made := err == nil
	fd, err := openat(w.here(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil || !made {
		return fd, err
	}
	if err := unix.Fchmod(fd, w.mode); err != nil { // whatever the umask is
		_ = unix.Close(fd)
		return -1, fmt.Errorf("set the mode of the new directory: %w", err)
	}
	return fd, nil
}

func openat(dir int, name string, flags int) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags, 0)
		return err
	})
	return fd, err
}

func stat(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// backing is what a volume's directory stands on. The zero value is the node's disk.
type backing struct {
	fstype  string // tmpfs or hugetlbfs
	options string
}

// makeDir makes the directory of a volume and mounts its backing, with the mode
// that it begins with whatever the umask is. A marker beside it says that it is
// ready: from then on its mode belongs to the pod and is left alone. Cut off at any
// point, it is finished the next time.
func (v *Volumes) makeDir(ctx context.Context, pod *corev1.Pod, plugin, name string, mode fs.FileMode, on backing) (host string, err error) {
	uid := observed.UID(pod.UID)
	dir, marker := dirOf(uid, plugin, name), markerOf(uid, plugin, name)
	host = filepath.Join(v.pods, filepath.FromSlash(dir))
	root, err := v.openPods()
	if err != nil {
		return "", err
	}
	defer root.Close()

	ready, mounted, err := v.look(root, dir, marker, on)
	if ready || err != nil {
		return host, err
	}
	if err := root.MkdirAll(path.Dir(dir), 0o750); err != nil {
		return "", fmt.Errorf("create the volume's directory: %w", err)
	}
	if err := root.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create the volume's directory: %w", err)
	}
	if !isDir(root, dir) {
		return "", fmt.Errorf("create the volume's directory: %s is in the way, remove it", host)
	}
	if on.fstype != "" && !mounted {
		if err := v.mount(host, on); err != nil {
			return "", err
		}
	}
	if err := root.Chmod(dir, mode); err != nil {
		return "", fmt.Errorf("set the volume's mode: %w", err)
	}
	if err := v.giveToGroup(ctx, root, pod, dir, name); err != nil {
		return "", err
	}
	if err := root.MkdirAll(path.Dir(marker), 0o750); err != nil {
		return "", fmt.Errorf("mark the volume as ready: %w", err)
	}
	if err := root.WriteFile(marker, nil, 0o640); err != nil {
		return "", fmt.Errorf("mark the volume as ready: %w", err)
	}
	return host, nil
}

// openPods returns the directory of all pods. Nothing below it may lead out of it,
// whatever a symlink says.
func (v *Volumes) openPods() (*os.Root, error) {
	root, err := os.OpenRoot(v.pods)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(v.pods, 0o750); err != nil {
			return nil, fmt.Errorf("create the pods directory: %w", err)
		}
		root, err = os.OpenRoot(v.pods)
	}
	if err != nil {
		return nil, fmt.Errorf("open the pods directory: %w", err)
	}
	return root, nil
}

// look tells whether the directory is ready, and whether its backing is mounted: a
// reboot leaves the marker of a volume whose memory is gone.
func (v *Volumes) look(root *os.Root, dir, marker string, on backing) (ready, mounted bool, err error) {
	if !isDir(root, dir) {
		return false, false, nil
	}
	if on.fstype != "" {
		is, err := v.kernel.mountedAt(filepath.Join(v.pods, filepath.FromSlash(dir)))
		if err != nil {
			return false, false, fmt.Errorf("look what the volume stands on: %w", err)
		}
		if mounted = is == on.fstype; !mounted {
			return false, false, nil
		}
	}
	_, err = root.Lstat(marker)
	return err == nil, mounted, nil
}

// mount keeps the volume's memory off the disk if it can: tmpfs has noswap since
// Linux 6.4, and EINVAL is how an older one says that it has not.
func (v *Volumes) mount(host string, on backing) error {
	options := on.options
	if on.fstype == tmpfs {
		options += ",noswap"
	}
	err := v.kernel.mount(host, on.fstype, options)
	if errors.Is(err, syscall.EINVAL) && options != on.options {
		err = v.kernel.mount(host, on.fstype, on.options)
	}
	if err != nil && on.fstype == hugetlbfs {
		return fmt.Errorf("mount hugetlbfs with %s: %w (has the kernel pages of that size?)", on.options, err)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs with %s: %w (run as root on Linux, or set Config.NoTmpfs)", on.options, err)
	}
	v.cfg.Log.V(1).Info("Volume mounted", "path", host, "type", on.fstype, "options", options)
	return nil
}

func isDir(root *os.Root, name string) bool {
	fi, err := root.Lstat(name)
	return err == nil && fi.IsDir()
}

// The file systems that this room mounts.
const (
	tmpfs     = "tmpfs"
	hugetlbfs = "hugetlbfs"
)

// mountPoint is one line of the kernel's mount table.
type mountPoint struct {
	at     string // all symlinks resolved
	fstype string
}

// kernel is what the room asks of the system's mounts. [system] is the real one.
type kernel interface {
	mount(dir, fstype, options string) error
	// bind makes source, an open file or directory, visible at target as well.
	bind(source *os.File, target string, readOnly bool) error
	// unmount takes away what is at the point, with all that is mounted below it
	// and without touching the places these mounts are copies of. That nothing
	// is there any more is no error.
	unmount(at string) error
	// mountsBelow lists the mounts at or below dir, in the order they were made.
	mountsBelow(dir string) ([]mountPoint, error)
	// mountedAt names the file system that is mounted at dir: tmpfs, hugetlbfs, or
	// nothing for all others.
	mountedAt(dir string) (fstype string, err error)
}

// below reports whether the mount point is dir or somewhere in it.
func (m mountPoint) below(dir string) bool {
	return m.at == dir || strings.HasPrefix(m.at, dir+"/")
}

package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// The names at the top of a volume that are not its files: the link to the version
// that counts, and the same while it is being made.
const (
	dataLink = "..data"
	dataNext = "..data_tmp"
	// versionTime begins the name of a version's directory, as the kubelet has it.
	versionTime = "..2006_01_02_15_04_05."
)

// tree is a volume's directory. [os.Root] is the real one: nothing that is done to
// it reaches outside, whatever symlinks a container has left there.
type tree interface {
	FS() fs.FS
	Lstat(name string) (fs.FileInfo, error)
	Readlink(name string) (string, error)
	Mkdir(name string, mode fs.FileMode) error
	OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error)
	Chmod(name string, mode fs.FileMode) error
	Lchown(name string, uid, gid int) error
	Symlink(target, name string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
}

// writer replaces all files of a volume at once. A version of them is a directory
// of its own; the link ..data leads to the one that counts, and the names that
// containers open are links through ..data. Renaming a new ..data over the old one
// is the moment of the change: who reads sees one version, and open files stay.
// Cut off anywhere, the next write ends what was begun and removes what it left.
type writer struct {
	dir     tree
	dirMode fs.FileMode // of directories
	gid     int         // of directories; -1 leaves it
	// owns: the agent may give files away, so that owners can be compared.
	owns         bool
	log          logr.Logger
	mountedBelow func(name string) (bool, error)
}

// write makes the volume contain exactly p. It reports whether files were written:
// where names, contents, modes and owners are right already, nothing is.
func (w *writer) write(p payload) (wrote bool, err error) {
	if err := p.check(); err != nil {
		return false, err
	}
	version := w.current()
	if version == "" || !w.holds(version, p) {
		next, err := w.prepare(p)
		if err != nil {
			return false, err
		}
		if err := w.swap(next); err != nil {
			return false, errors.Join(err, w.dir.RemoveAll(next))
		}
		version, wrote = next, true
	}
	names := p.top()
	if err := w.link(names); err != nil {
		return wrote, err
	}
	return wrote, w.sweep(names, version)
}

// current is the name of the version that counts, "" if there is none.
func (w *writer) current() string {
	name, err := w.dir.Readlink(dataLink)
	if err != nil || !isVersion(name) {
		return ""
	}
	if fi, err := w.dir.Lstat(name); err != nil || !fi.IsDir() {
		return ""
	}
	return name
}

func isVersion(name string) bool {
	if len(name) <= len(versionTime) || strings.Contains(name, "/") {
		return false
	}
	_, err := time.Parse(versionTime, name[:len(versionTime)])
	return err == nil
}

// holds reports whether the version is p already.
func (w *writer) holds(version string, p payload) bool {
	same, seen := true, 0
	err := fs.WalkDir(w.dir.FS(), version, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, ok := p[strings.TrimPrefix(name, version+"/")]
		if !ok || !w.equal(name, d, f) {
			same = false
			return fs.SkipAll
		}
		seen++
		return nil
	})
	return err == nil && same && seen == len(p)
}

func (w *writer) equal(name string, d fs.DirEntry, f file) bool {
	fi, err := d.Info()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(f.data)) || fi.Mode().Perm() != f.mode {
		return false
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); w.owns && ok {
		if f.uid >= 0 && st.Uid != uint32(f.uid) || f.gid >= 0 && st.Gid != uint32(f.gid) {
			return false
		}
	}
	if len(f.data) == 0 {
		return true
	}
	// Without O_NONBLOCK a pipe put in the file's place would hold us.
	r, err := w.dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer r.Close()
	has := make([]byte, len(f.data))
	_, err = io.ReadFull(r, has)
	return err == nil && string(has) == string(f.data)
}

// prepare writes p into a directory that nobody looks at yet.
func (w *writer) prepare(p payload) (version string, err error) {
	for range 100 {
		version = time.Now().UTC().Format(versionTime) + fmt.Sprint(rand.Uint32())
		if err = w.dir.Mkdir(version, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the new version: %w", err)
	}
	if err := w.fill(version, p); err != nil {
		return "", errors.Join(err, w.dir.RemoveAll(version))
	}
	return version, nil
}

func (w *writer) fill(version string, p payload) error {
	for _, dir := range p.dirs() {
		if err := w.dir.Mkdir(path.Join(version, dir), 0o700); err != nil {
			return err
		}
	}
	for name, f := range p {
		if err := w.create(path.Join(version, name), f); err != nil {
			return err
		}
	}
	for _, dir := range append(p.dirs(), ".") {
		dir = path.Join(version, dir)
		if w.gid >= 0 {
			w.ignore(dir, w.dir.Lchown(dir, -1, w.gid))
		}
		if err := w.dir.Chmod(dir, w.dirMode); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) create(name string, f file) error {
	out, err := w.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.data)
	if err == nil && (f.uid >= 0 || f.gid >= 0) {
		w.ignore(name, out.Chown(f.uid, f.gid))
	}
	if err == nil {
		err = out.Chmod(f.mode) // after chown, and whatever the umask is
	}
	return errors.Join(err, out.Close())
}

// ignore is for owners: a file system that has none is no reason to keep a pod
// from its configuration. The kubelet does the same.
func (w *writer) ignore(name string, err error) {
	if err != nil {
		w.log.V(1).Info("File keeps its owner", "file", name, "error", err.Error())
	}
}

func (w *writer) swap(version string) error {
	if err := w.dir.Remove(dataNext); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what an earlier write left: %w", err)
	}
	if err := w.dir.Symlink(version, dataNext); err != nil {
		return fmt.Errorf("link to the new version: %w", err)
	}
	// A directory in the link's place can't be renamed over.
	if fi, err := w.dir.Lstat(dataLink); err == nil && fi.IsDir() {
		if err := w.dir.Remove(dataLink); err != nil {
			return fmt.Errorf("make way for the new version: %w", err)
		}
	}
	if err := w.dir.Rename(dataNext, dataLink); err != nil {
		return fmt.Errorf("put the new version in place: %w", err)
	}
	return nil
}

// link makes the names that containers open. What is in the way of one goes, but
// never a directory with something in it: that could be a mount.
func (w *writer) link(names map[string]bool) error {
	for name := range names {
		target, err := w.dir.Readlink(name)
		if err == nil && target == path.Join(dataLink, name) {
			continue
		}
		if err := w.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make way for %s: %w", name, err)
		}
		if err := w.dir.Symlink(path.Join(dataLink, name), name); err != nil {
			return fmt.Errorf("link to %s: %w", name, err)
		}
	}
	return nil
}

// sweep removes links to files that are no more, and versions that do not count.
func (w *writer) sweep(names map[string]bool, version string) error {
	entries, err := fs.ReadDir(w.dir.FS(), ".")
	if err != nil {
		return fmt.Errorf("look for what is left over: %w", err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case names[name], name == version, name == dataLink:
		case name == dataNext:
			err = errors.Join(err, w.dir.Remove(name))
		case isVersion(name) && e.IsDir():
			err = errors.Join(err, w.removeVersion(name))
		case e.Type() == fs.ModeSymlink:
			if target, _ := w.dir.Readlink(name); target == path.Join(dataLink, name) {
				err = errors.Join(err, w.dir.Remove(name))
			}
		}
	}
	return err
}

// removeVersion does not go through a mount that someone made below it.
func (w *writer) removeVersion(name string) error {
	if mounted, err := w.mountedBelow(name); err != nil {
		return fmt.Errorf("remove version %s: look for mounts: %w", name, err)
	} else if mounted {
		return fmt.Errorf("remove version %s: %w in it", name, ErrMounted)
	}
	return w.dir.RemoveAll(name)
}

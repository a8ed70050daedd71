package podsource

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// maxManifest is the most that a manifest may have, as for the kubelet.
const maxManifest = 10 << 20

// visited is what one look at one file gave.
type visited struct {
	changed bool          // its content did
	read    bool          // its content was read
	gone    bool          // it is not there any more
	writing bool          // it was not read because it is being written
	again   time.Duration // look again after this time, or 0
}

// visit looks at one file and reads it when its stamp does not rule out that it
// changed.
func (f *Files) visit(e entry, now time.Time) visited {
	info, err := os.Stat(e.path)
	if errors.Is(err, fs.ErrNotExist) && !e.isLink {
		return visited{gone: true} // since the listing
	}
	if err == nil && info.IsDir() {
		if !f.warned[e.path] {
			f.cfg.Log.Info("sub-directories of the manifests are not read", "path", e.path)
		}
		f.warned[e.path] = true
		if f.known[e.path] == nil {
			return visited{}
		}
	}
	m := f.known[e.path]
	if m == nil {
		m = &file{}
		f.known[e.path] = m
	}
	if err == nil && m.settled && m.stamp == stampOf(info) {
		return visited{}
	}
	if err == nil && !info.Mode().IsRegular() {
		// Never open one: reading a pipe or a device may block or do harm.
		err = fmt.Errorf("%s: not a regular file but %s", e.path, info.Mode().Type())
	}
	if err != nil {
		f.unreadable(e.path, m, err)
		return visited{}
	}
	return f.read(e.path, m, now)
}

// unreadable keeps the content of a file that can't be read, and says so once.
func (f *Files) unreadable(path string, m *file, err error) {
	if m.err == nil || m.err.Error() != err.Error() {
		f.cfg.Log.Error(err, "manifest can't be read; its last good version keeps running", "path", path)
	}
	*m = file{pods: m.pods, objects: m.objects, exposed: m.exposed, err: err}
}

// read reads one regular file.
func (f *Files) read(path string, m *file, now time.Time) visited {
	data, at, mode, err := readManifest(path, now)
	if errors.Is(err, errBeingWritten) {
		return visited{writing: true, again: writerPoll}
	}
	if err != nil {
		f.unreadable(path, m, err)
		return visited{}
	}
	v := visited{read: true}
	m.stamp, m.settled = at, !at.isRecent(now)
	if !m.settled {
		v.again = recent
	}
	sum := sha256.Sum256(data)
	if sum == m.sum {
		f.warnIfExposed(path, m, mode)
		return v
	}
	m.sum = sum
	content, err := decode(data, Origin{Kind: SourceFile, Name: path, Node: f.cfg.NodeName}, f.objects != nil)
	switch {
	case err != nil:
		f.cfg.Log.Error(err, "manifest refused; its last good version keeps running", "path", path, "pods", len(m.pods))
		m.err = err
		return v
	case m.err != nil:
		f.cfg.Log.Info("manifest is good again", "path", path, "pods", len(content.Pods))
	}
	m.err, m.pods, m.objects = nil, content.Pods, content.objectsOf(path)
	f.warnIfExposed(path, m, mode)
	v.changed = true
	return v
}

// warnIfExposed tells, once until it is mended, of a Secret that is none.
func (f *Files) warnIfExposed(path string, m *file, mode fs.FileMode) {
	const readByOthers = 0o004
	exposed := mode&readByOthers != 0 &&
		slices.ContainsFunc(m.objects, func(o object) bool { return o.key.Kind == KindSecret })
	if exposed && !m.exposed {
		f.cfg.Log.Info("every user of this machine can read a Secret in a manifest; chmod o-r it", "path", path)
	}
	m.exposed = exposed
}

var errBeingWritten = errors.New("podsource: the file is being written")

// readManifest returns the content of a regular file, its stamp and mode from before
// the reading, so that a change during the reading shows at the next look.
func readManifest(path string, now time.Time) ([]byte, stamp, fs.FileMode, error) {
	// Non-blocking, for the file may have become a pipe since it was looked at.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, 0, fmt.Errorf("read manifest: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, stamp{}, 0, fmt.Errorf("read manifest: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, stamp{}, 0, fmt.Errorf("%s: not a regular file but %s", path, info.Mode().Type())
	}
	at := stampOf(info)
	if at.isRecent(now) && isBeingWritten(file) {
		return nil, stamp{}, 0, errBeingWritten
	}
	data, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, stamp{}, 0, fmt.Errorf("read manifest: %w", err)
	}
	if len(data) > maxManifest {
		return nil, stamp{}, 0, fmt.Errorf("%s: larger than %d bytes, the most a manifest may have", path, maxManifest)
	}
	return data, at, info.Mode(), nil
}

// stamp tells versions of a file apart without reading it.
type stamp struct {
	changed  int64 // Unix nanoseconds
	modified int64
	size     int64
	inode    uint64 // with device, where the system has them
	device   uint64
}

// isRecent reports whether the file may change once more without a new stamp.
// A change in the future is a clock that was set, and is not waited for.
func (s stamp) isRecent(now time.Time) bool {
	age := now.Sub(time.Unix(0, s.changed))
	return -recent < age && age < recent
}

package podsource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// FilesConfig says which manifest files to read.
type FilesConfig struct {
	// Path is a directory of manifests, or one manifest; required. It need not
	// exist yet. A relative path is made absolute at once, for it is part of
	// the pods' identity.
	Path     string
	NodeName string // required
	// RescanEvery is the time between two looks when nothing hints at a
	// change; default 20s. Without file notifications it is at most 1s.
	RescanEvery time.Duration
	// Objects takes the ConfigMaps and Secrets that stand in the manifests.
	// Without it they are faults, and so are pods that refer to any.
	Objects *Objects
	Log     logr.Logger // default discards
	Hooks   FilesHooks  // default no-ops
}

// FilesHooks report work as it happens.
type FilesHooks struct {
	// Scanned is called after each look, with the number of manifests there
	// and how many had to be read.
	Scanned func(took time.Duration, files, read int)
}

// FileError is what is wrong with one manifest file, or with the path itself,
// at the last look. It stays until the file is good or gone.
type FileError struct {
	File string
	Err  error
}

func (e FileError) Error() string { return e.Err.Error() }
func (e FileError) Unwrap() error { return e.Err }

const (
	// recent is how long a file's times can't tell yet whether it has changed
	// again: file systems count in coarse steps. Until then it is read again.
	recent = 2 * time.Second
	// writerPoll is the time between looks at a file that is being written.
	writerPoll = 20 * time.Millisecond
	// unwatchedPoll is the time between looks without notifications, and how
	// long a path must be away before its pods are given up: swapping a
	// directory by two renames leaves a moment with none.
	unwatchedPoll = time.Second
)

// Files is the [Source] of pods in manifest files, and of the [Objects] beside them.
//
// A directory's manifests are its regular files, also behind symbolic links, in
// the order of their names and whatever their extension. Names of dot files and
// of what editors leave behind are passed over, and so are sub-directories.
//
// Notifications (inotify, kqueue) only say that it is time to look; what counts
// is the look. It reads the files whose stat changed, so an idle look is one
// directory listing and a stat per file.
//
// A file that can't be read or has a fault keeps the pods of its last good
// version for as long as it is there. They are kept per file, not per document:
// a fault may have moved the borders between documents, so there is no telling
// which one is the old one. Files of the directory do not affect each other.
type Files struct {
	cfg     FilesConfig
	objects *objectSource // nil without Objects

	// Touched only by the goroutine in Run.
	known     map[string]*file
	warned    map[string]bool // sub-directories that were mentioned
	pathErr   error
	goneSince time.Time // when Path was first found missing, with something held
	spoken    bool
	writing   bool // a file was left out because it was being written

	faults struct {
		sync.Mutex
		list []FileError
	}
}

// file is what is known of one file.
type file struct {
	stamp   stamp
	settled bool              // stamp tells every later change
	sum     [sha256.Size]byte // of the content that was last read
	pods    []*corev1.Pod     // of the last good content
	objects []object          // of the same
	exposed bool              // everyone can read a Secret in it
	err     error
}

// holds reports whether the file's last good version has anything in it.
func (f *file) holds() bool { return len(f.pods) > 0 || len(f.objects) > 0 }

// NewFiles checks cfg and returns a source that has not started.
func NewFiles(cfg FilesConfig) (*Files, error) {
	if cfg.Path == "" || cfg.NodeName == "" {
		return nil, errors.New("podsource: FilesConfig needs Path and NodeName")
	}
	path, err := filepath.Abs(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("podsource: make %s absolute: %w", cfg.Path, err)
	}
	cfg.Path = path
	if cfg.RescanEvery <= 0 {
		cfg.RescanEvery = 20 * time.Second
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Scanned == nil {
		cfg.Hooks.Scanned = func(time.Duration, int, int) {}
	}
	return &Files{cfg: cfg, objects: cfg.Objects.join(), known: make(map[string]*file), warned: make(map[string]bool)}, nil
}

// Name is [SourceFile].
func (f *Files) Name() string { return SourceFile }

// Errors is what is wrong with the manifests now, sorted by file.
func (f *Files) Errors() []FileError {
	f.faults.Lock()
	defer f.faults.Unlock()
	return slices.Clone(f.faults.list)
}

// Run looks at the manifests and gives set every change, until ctx ends. A
// missing path is an empty set.
func (f *Files) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	w := newWatch(f.cfg.Path, f.cfg.Log)
	defer w.close()
	started := time.Now()
	for {
		// Attach before looking: a change in between then hints at a next look.
		next := f.cfg.RescanEvery
		if !w.attach() {
			next = min(next, unwatchedPoll)
		}
		changed, again := f.scan(time.Now())
		// The first set is taken for complete, so that a running pod which is
		// not in it ends. It waits a moment for files that are being written.
		incomplete := !f.spoken && (f.pathErr != nil && !changed || f.writing && time.Since(started) < recent)
		if !incomplete && (changed || !f.spoken) {
			f.spoken = true
			pods, objects := f.content()
			f.objects.set(objects) // first, for a pod finds the objects of its own file
			set(pods)
		}
		if again > 0 {
			next = min(next, again)
		}
		if !w.wait(ctx, next) {
			return nil
		}
	}
}

// content is that of all files, in the order of the files' names.
func (f *Files) content() (pods []*corev1.Pod, objects []object) {
	for _, path := range slices.Sorted(maps.Keys(f.known)) {
		pods = append(pods, f.known[path].pods...)
		objects = append(objects, f.known[path].objects...)
	}
	return pods, objects
}

// holds reports whether any file has anything in it.
func (f *Files) holds() bool {
	for _, m := range f.known {
		if m.holds() {
			return true
		}
	}
	return false
}

// scan takes one look. It reports whether the content changed, and when it
// wants to look again before time, or 0.
func (f *Files) scan(now time.Time) (changed bool, again time.Duration) {
	entries, err := f.list()
	if errors.Is(err, fs.ErrNotExist) {
		return f.missing(now, err)
	}
	f.goneSince = time.Time{}
	f.setPathErr(err)
	defer f.publishErrors()
	if err != nil {
		return false, 0 // a failed listing is not an empty one
	}
	read := 0
	f.writing = false
	there := make(map[string]bool, len(entries))
	for _, e := range entries {
		v := f.visit(e, now)
		if v.again > 0 && (again == 0 || v.again < again) {
			again = v.again
		}
		there[e.path] = !v.gone
		changed = changed || v.changed
		f.writing = f.writing || v.writing
		if v.read {
			read++
		}
	}
	for path, m := range f.known {
		if !there[path] {
			changed = changed || m.holds()
			delete(f.known, path)
		}
	}
	maps.DeleteFunc(f.warned, func(path string, _ bool) bool { return !there[path] })
	f.cfg.Hooks.Scanned(time.Since(now), len(f.known), read)
	return changed, again
}

// missing deals with a path that is not there.
func (f *Files) missing(now time.Time, err error) (changed bool, again time.Duration) {
	defer f.publishErrors()
	f.setPathErr(err)
	held := f.holds()
	if held && f.goneSince.IsZero() {
		f.goneSince = now
		return false, unwatchedPoll
	}
	if wait := unwatchedPoll - now.Sub(f.goneSince); held && wait > 0 {
		return false, wait
	}
	clear(f.known)
	changed = held || !f.spoken
	return changed, 0
}

// setPathErr logs a fault of the path itself when it is new.
func (f *Files) setPathErr(err error) {
	if err != nil && (f.pathErr == nil || f.pathErr.Error() != err.Error()) {
		f.cfg.Log.Error(err, "manifests can't be listed; they are picked up when they can", "path", f.cfg.Path)
	}
	f.pathErr = err
}

func (f *Files) publishErrors() {
	var list []FileError
	if f.pathErr != nil {
		list = append(list, FileError{f.cfg.Path, f.pathErr})
	}
	for _, path := range slices.Sorted(maps.Keys(f.known)) {
		if err := f.known[path].err; err != nil {
			list = append(list, FileError{path, err})
		}
	}
	f.faults.Lock()
	f.faults.list = list
	f.faults.Unlock()
}

// entry is one name that may be a manifest.
type entry struct {
	path   string
	isLink bool
}

// list finds the manifests' names, sorted.
func (f *Files) list() ([]entry, error) {
	info, err := os.Stat(f.cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("look at manifests: %w", err)
	}
	if !info.IsDir() {
		// The one who named it knows; no name is passed over.
		return []entry{{path: f.cfg.Path, isLink: true}}, nil
	}
	names, err := os.ReadDir(f.cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var entries []entry
	for _, name := range names {
		if !passedOver(name.Name()) {
			entries = append(entries, entry{filepath.Join(f.cfg.Path, name.Name()), name.Type()&fs.ModeSymlink != 0})
		}
	}
	return entries, nil
}

// passedOver reports whether a name is a dot file or what editors leave beside
// the file they save. The kubelet reads all but dot files, and so starts a
// second pod from a backup copy.
func passedOver(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") || name == "4913" {
		return true // 4913 is vim's test whether it may write here
	}
	switch filepath.Ext(name) {
	case ".swp", ".swx", ".swo", ".bak", ".orig", ".tmp":
		return true
	}
	return false
}

package podsource

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
)

const (
	// quiet is how long nothing must happen before a hint leads to a look:
	// most writers are done within it. Those who are not are noticed by
	// isBeingWritten, so it can be short.
	quiet = time.Millisecond
	// restless bounds the wait for quiet.
	restless = 100 * time.Millisecond
)

// watch hints that the manifests may have changed. It watches the directory
// itself, and its parent, in which the directory, a link to it or Kubernetes'
// "..data" link is swapped. It may miss anything without harm but delay.
type watch struct {
	path, parent string
	log          logr.Logger
	notify       *fsnotify.Watcher      // nil while there is none
	attached     map[string]os.FileInfo // what stood at the path when it was attached
	complained   bool
}

func newWatch(path string, log logr.Logger) *watch {
	return &watch{path: path, parent: filepath.Dir(path), log: log, attached: make(map[string]os.FileInfo)}
}

func (w *watch) close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

// attach makes the watch follow what stands at its paths now, and reports
// whether a change would be noticed.
func (w *watch) attach() bool {
	err := w.tryAttach()
	if err != nil && !w.complained {
		w.log.Info("no file notifications; looking once a second instead", "path", w.path, "reason", err.Error())
	}
	w.complained = err != nil
	return err == nil
}

func (w *watch) tryAttach() error {
	if w.notify == nil {
		notify, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.notify = notify
	}
	info, err := os.Stat(w.path)
	isDir := err == nil && info.IsDir()
	if isDir {
		if err := w.follow(w.path, info); err != nil {
			return err
		}
	}
	if isDir && runtime.GOOS != "linux" {
		// Elsewhere to watch a directory is to open each of its files. The
		// swap of the whole directory is then found by the slow look.
		return nil
	}
	info, err = os.Stat(w.parent)
	if err != nil {
		return err
	}
	return w.follow(w.parent, info)
}

// follow watches what is at path unless it is watched already: a watch stays
// with the old directory when another takes its name.
func (w *watch) follow(path string, now os.FileInfo) error {
	listed := slices.Contains(w.notify.WatchList(), path)
	if was := w.attached[path]; listed && was != nil && os.SameFile(was, now) {
		return nil
	}
	if listed {
		// An error means that it just ended by itself.
		_ = w.notify.Remove(path)
	}
	if err := w.notify.Add(path); err != nil {
		return err
	}
	w.attached[path] = now
	return nil
}

// wait returns true when it is time to look: after a hint and a quiet moment, or
// after the time given. It returns false when ctx ended.
func (w *watch) wait(ctx context.Context, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	var deadline time.Time // of the wait for quiet; zero before the first hint
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case event := <-w.events():
			if !w.matters(event.Name) {
				continue
			}
		case err := <-w.errors():
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.log.V(1).Info("file notification error", "path", w.path, "error", err.Error())
			}
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(min(restless, atMost))
		}
		timer.Reset(min(quiet, deadline.Sub(now)))
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watch) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

// matters tells the neighbours of the path, which share its parent, from what
// can change the manifests. Names with two dots are Kubernetes' own links, by
// which it swaps the content of a volume.
func (w *watch) matters(name string) bool {
	return name == w.path || filepath.Dir(name) == w.path || strings.HasPrefix(filepath.Base(name), "..")
}

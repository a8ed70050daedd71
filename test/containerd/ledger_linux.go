package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// ledger writes down the ID of every task that containerd makes. A cgroup
// bears its container's ID and nothing else that leads back to the daemon, so
// without the ledger a leaked one could not be told from another daemon's.
type ledger struct {
	watch *fsnotify.Watcher
	wg    sync.WaitGroup
}

// keepLedger follows the folder of task bundles. It goes on while containerd
// is stopped and started.
func keepLedger(at layout) (*ledger, error) {
	out, err := os.OpenFile(at.ids, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	watch, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		return nil, err
	}
	if err := watch.Add(at.bundles); err != nil {
		return nil, fmt.Errorf("watch %s: %w", at.bundles, err)
	}
	l := &ledger{watch: watch}
	l.wg.Go(func() {
		defer out.Close()
		for e := range watch.Events {
			if e.Has(fsnotify.Create) {
				fmt.Fprintln(out, filepath.Base(e.Name))
			}
		}
	})
	l.wg.Go(func() {
		for range watch.Errors {
			// An overflow loses IDs; those of running tasks are found in the
			// folder by knownIDs.
		}
	})
	return l, nil
}

func (l *ledger) close() {
	_ = l.watch.Close() // closes both channels
	l.wg.Wait()
}

// knownIDs are the tasks in the ledger and those whose bundle is there now.
func knownIDs(at layout) map[string]bool {
	ids := map[string]bool{}
	data, _ := os.ReadFile(at.ids)
	for id := range strings.FieldsSeq(string(data)) {
		ids[id] = true
	}
	entries, _ := os.ReadDir(at.bundles)
	for _, e := range entries {
		ids[e.Name()] = true
	}
	return ids
}

package containergc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/observed"
)

// removeLogDirs removes the log directories of pods that may go and of which the
// runtime has nothing left.
func (c *Collector) removeLogDirs(ctx context.Context, left map[observed.UID]bool) (int, error) {
	if c.cfg.LogDir == "" || c.cfg.Removable == nil {
		return 0, nil
	}
	return c.removeLogDirsIf(ctx, func(uid observed.UID) bool {
		return !left[uid] && c.cfg.Removable(uid)
	})
}

func (c *Collector) removeLogDirsIf(ctx context.Context, goes func(observed.UID) bool) (int, error) {
	entries, err := os.ReadDir(c.cfg.LogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list pod log directories: %w", err)
	}
	removed := 0
	var o outcome
	for _, e := range entries {
		uid, ok := logDirUID(e.Name())
		if !ok || !e.IsDir() || ctx.Err() != nil || !goes(uid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.cfg.LogDir, e.Name())); err != nil {
			o.fail(fmt.Errorf("remove pod log directory: %w", err))
			continue
		}
		removed++
	}
	return removed, o.err()
}

// logDirUID returns the UID in <namespace>_<name>_<uid>. Neither a namespace nor
// a pod name can have an underscore.
func logDirUID(name string) (observed.UID, bool) {
	parts := strings.SplitN(name, "_", 3)
	if len(parts) != 3 || parts[2] == "" || !dnsName(parts[0]) || !dnsName(parts[1]) {
		return "", false
	}
	return observed.UID(parts[2]), true
}

func dnsName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	})
}

// removeDeadLinks removes links to container logs that are gone. While the
// container is there and has not exited its log may be in the middle of a
// rotation, so its link stays.
func (c *Collector) removeDeadLinks(pods []observed.Pod) (int, error) {
	if c.cfg.ContainerLogDir == "" {
		return 0, nil
	}
	entries, err := os.ReadDir(c.cfg.ContainerLogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list links to container logs: %w", err)
	}
	var states map[observed.ContainerID]observed.State
	removed := 0
	var o outcome
	for _, e := range entries {
		path := filepath.Join(c.cfg.ContainerLogDir, e.Name())
		if e.Type() != fs.ModeSymlink || filepath.Ext(path) != ".log" {
			continue
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if states == nil {
			states = statesOf(pods)
		}
		if id, ok := linkContainer(e.Name()); ok && lives(states, id) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.fail(fmt.Errorf("remove dead link: %w", err))
			continue
		}
		removed++
	}
	return removed, o.err()
}

func statesOf(pods []observed.Pod) map[observed.ContainerID]observed.State {
	states := map[observed.ContainerID]observed.State{}
	for _, pod := range pods {
		for _, ctr := range pod.Containers {
			states[ctr.ID] = ctr.State
		}
	}
	return states
}

// linkContainer returns the container ID in <pod>_<ns>_<container>-<id>.log. The
// name is cut to 251 bytes before .log, so it may be the beginning of the ID.
func linkContainer(name string) (string, bool) {
	base := strings.TrimSuffix(name, ".log")
	i := strings.LastIndexByte(base, '-')
	if i < 0 || len(base)-i-1 < 6 {
		return "", false
	}
	return base[i+1:], true
}

func lives(states map[observed.ContainerID]observed.State, id string) bool {
	if state, ok := states[observed.ContainerID(id)]; ok {
		return state != observed.Exited
	}
	for known, state := range states {
		if strings.HasPrefix(string(known), id) && state != observed.Exited {
			return true
		}
	}
	return false
}

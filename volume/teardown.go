package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// TearDown removes what [Volumes.SetUp] and [Volumes.SubPath] made for the pod. The
// caller has made sure that none of its containers runs. Symlinks are removed, not
// followed, and the data of a hostPath volume is never touched. As long as anything
// else is mounted below the pod's directory nothing is unmounted or removed, and
// the error wraps [ErrMounted].
//
// All that it needs to know is on disk and in the kernel's table of mounts, so it
// can be cut off anywhere and repeated, by another process too. A pod without
// volumes is no error.
func (v *Volumes) TearDown(ctx context.Context, uid observed.UID) error {
	if err := checkName(string(uid)); err != nil {
		return fmt.Errorf("take down volumes: pod UID %w", err)
	}
	done, err := v.turns.take(ctx, uid)
	if err != nil {
		return err
	}
	defer done()
	start := time.Now()
	root, err := os.OpenRoot(v.pods)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
	}
	defer root.Close()
	fi, err := root.Lstat(string(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is not a directory, remove it by hand", filepath.Join(v.pods, string(uid)))
	}
	if err == nil {
		err = v.takeDown(ctx, root, uid)
	}
	v.cfg.Hooks.TornDown(time.Since(start), err)
	if err != nil {
		return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
	}
	v.cfg.Log.V(1).Info("Volumes taken down", "podUID", uid)
	return nil
}

func (v *Volumes) takeDown(ctx context.Context, root *os.Root, uid observed.UID) error {
	// The kernel reports mount points with all symlinks resolved.
	pods, err := filepath.EvalSymlinks(v.pods)
	if err != nil {
		return err
	}
	if err := v.unmountAll(filepath.Join(pods, string(uid))); err != nil {
		return err
	}
	// Markers first: a half-removed emptyDir must not look ready.
	for _, part := range []string{"plugins", subPathDir, "volumes"} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := root.RemoveAll(filepath.Join(string(uid), part)); err != nil {
			return err
		}
	}
	return nil
}

// unmountAll looks at the whole pod directory, not only at what is about to be
// removed: a mount that is left there is a sign that the pod is not done.
func (v *Volumes) unmountAll(dir string) error {
	mounts, err := v.kernel.mountsBelow(dir)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	ours, others := sortMounts(dir, mounts)
	if len(others) > 0 {
		return stillMounted(others)
	}
	if len(ours) == 0 {
		return nil
	}
	for _, at := range ours {
		if err := v.kernel.unmount(at); err != nil {
			return fmt.Errorf("unmount %s: %w", at, err)
		}
	}
	// Only what the table no longer has may be removed.
	left, err := v.kernel.mountsBelow(dir)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	if len(left) > 0 {
		return stillMounted(left)
	}
	return nil
}

func stillMounted(mounts []mountPoint) error {
	at := make([]string, len(mounts))
	for i, m := range mounts {
		at[i] = m.at
	}
	return fmt.Errorf("%w at %s: unmount it, then it is removed at the next try", ErrMounted, strings.Join(at, ", "))
}

// sortMounts tells which mounts below the pod's directory are this room's, in the
// order in which they are to be unmounted: subPath binds before the volumes that
// they show, later mounts first. What is mounted inside a subPath bind is a copy
// that came with it and goes with it.
func sortMounts(dir string, mounts []mountPoint) (ours []string, others []mountPoint) {
	var binds, volumes []string
	for _, m := range mounts {
		name := strings.Split(strings.TrimPrefix(m.at, dir+"/"), "/")
		switch {
		case len(name) == 4 && name[0] == subPathDir:
			binds = append(binds, m.at)
		case len(name) == 3 && name[0] == "volumes" && slices.Contains(memoryDirs, name[1]) && (m.fstype == tmpfs || m.fstype == hugetlbfs):
			volumes = append(volumes, m.at)
		case slices.ContainsFunc(binds, func(bind string) bool { return m.below(bind) }):
		default:
			others = append(others, m)
		}
	}
	slices.Reverse(binds)
	slices.Reverse(volumes)
	return append(binds, volumes...), others
}

// memoryDirs are the directories whose volumes may stand on memory.
var memoryDirs = []string{escape(pluginEmptyDir), escape(pluginSecret), escape(pluginProjected), escape(pluginDownwardAPI)}

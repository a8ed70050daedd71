package volume

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

// TearDown removes what [Volumes.SetUp] made for the pod. The caller has made
// sure that none of its containers runs. Symlinks are removed, not followed, and
// the data of a hostPath volume is never touched. As long as anything is mounted
// below the pod's volumes nothing is removed and the error wraps [ErrMounted].
// A pod without volumes is no error, so TearDown can be repeated at any point.
func (v *Volumes) TearDown(ctx context.Context, uid observed.UID) error {
	if err := checkName(string(uid)); err != nil {
		return fmt.Errorf("take down volumes: pod UID %w", err)
	}
	done, err := v.turns.take(ctx, uid)
	if err != nil {
		return err
	}
	defer done()

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
	if err != nil {
		return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
	}
	if !fi.IsDir() {
		return fmt.Errorf("take down volumes of pod %s: %s is not a directory, remove it by hand", uid, filepath.Join(v.pods, string(uid)))
	}
	if err := v.checkMounts(uid); err != nil {
		return err
	}
	// Markers first: a half-removed emptyDir must not look ready.
	for _, part := range []string{"plugins", "volumes"} {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
		}
		if err := root.RemoveAll(filepath.Join(string(uid), part)); err != nil {
			return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
		}
	}
	v.log.V(1).Info("Volumes taken down", "podUID", uid)
	return nil
}

// checkMounts looks at the whole pod directory, not only at what is about to be
// removed: a mount that is left there is a sign that the pod is not done.
func (v *Volumes) checkMounts(uid observed.UID) error {
	// The kernel reports mount points with all symlinks resolved.
	pods, err := filepath.EvalSymlinks(v.pods)
	if err != nil {
		return fmt.Errorf("take down volumes of pod %s: %w", uid, err)
	}
	dir := filepath.Join(pods, string(uid))
	mounts, err := v.mounts(dir)
	if err != nil {
		return fmt.Errorf("take down volumes of pod %s: look for mounts: %w", uid, err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("take down volumes of pod %s: %w at %s: unmount it, then it is removed at the next try", uid, ErrMounted, strings.Join(mounts, ", "))
	}
	return nil
}

package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

const dirMode = 0o750

// ErrNotOurs is wrapped by the error for a pod of which only a cgroup is known, with
// processes in it. Trying again soon helps nobody.
var ErrNotOurs = errors.New("processes run in its cgroup, and nothing else is known of it; if they are another agent's, give that one or this one a cgroupRoot of its own")

// podDir refuses a UID that is not one plain directory name: a static pod's comes
// from its manifest.
func (s *Syncer) podDir(uid observed.UID) (string, error) {
	name := string(uid)
	if !filepath.IsLocal(name) || filepath.Base(name) != name || name == "." {
		return "", fmt.Errorf("pod UID %q cannot be the name of a directory", name)
	}
	return filepath.Join(s.cfg.RootDir, "pods", name), nil
}

// makeDirs makes the directories that every pod has, as the kubelet lays them out.
func (s *Syncer) makeDirs(pod *corev1.Pod) error {
	dir, err := s.podDir(observed.UID(pod.UID))
	if err != nil {
		return fmt.Errorf("make the directories of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	for _, sub := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), dirMode); err != nil {
			return fmt.Errorf("make the directories of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// Dirs returns the UIDs of all pods that have a directory, a cgroup or a record of
// their resources, wanted or not; one may come twice. It is how pods are found that
// were removed while no agent ran.
func (s *Syncer) Dirs() ([]observed.UID, error) {
	var uids []observed.UID
	if s.cfg.Cgroups != nil {
		var err error
		if uids, err = s.cfg.Cgroups.All(); err != nil {
			return nil, err
		}
	}
	if s.cfg.Allocations != nil {
		uids = append(uids, s.cfg.Allocations.Pods()...)
	}
	entries, err := os.ReadDir(filepath.Join(s.cfg.RootDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return uids, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			uids = append(uids, observed.UID(e.Name()))
		}
	}
	return uids, nil
}

// Forget removes all that is kept of a pod that is neither desired nor running:
// volumes, its directory, what was reported of it. Ask podworkers first. It can
// be called again after an error, and for a pod that is not known.
func (s *Syncer) Forget(ctx context.Context, uid observed.UID) error {
	dir, err := s.podDir(uid)
	if err != nil {
		return fmt.Errorf("forget a pod: %w", err)
	}
	if err := s.checkOurs(ctx, uid, dir); err != nil {
		return fmt.Errorf("forget pod %s: %w", uid, err)
	}
	if err := s.cfg.Volumes.TearDown(ctx, uid); err != nil {
		return fmt.Errorf("forget pod %s: tear down volumes: %w", uid, err)
	}
	if err := s.giveBack(ctx, uid); err != nil {
		return fmt.Errorf("forget pod %s: %w", uid, err)
	}
	if s.cfg.Allocations != nil {
		if err := s.cfg.Allocations.Forget(uid, time.Now()); err != nil {
			return err // it names the pod
		}
	}
	s.cfg.Runtime.ForgetPod(uid)
	s.mu.Lock()
	delete(s.mu.failures, uid)
	s.mu.Unlock()
	if err := s.cfg.Statuses.Remove(uid); err != nil {
		return fmt.Errorf("forget pod %s: %w", uid, err)
	}
	// Volumes are gone, so what is left is files of our own, or of a kubelet whose
	// place we took. A mount below it would be somebody's data: the volume room
	// has refused in that case.
	for _, sub := range []string{"containers", "plugins", "volumes", "volumeDevices", "volume-subpaths", "etc-hosts", "userns"} {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil {
			return fmt.Errorf("forget pod %s: %w", uid, err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget pod %s: %w (look at what is left there and remove it)", uid, err)
	}
	return nil
}

// checkOurs keeps the processes of another agent's pod alive. Two agents on one
// machine may share the tree of cgroups; a pod of ours has a directory as well, and
// that is removed last.
func (s *Syncer) checkOurs(ctx context.Context, uid observed.UID, dir string) error {
	if _, err := os.Lstat(dir); s.cfg.Cgroups == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	busy, err := s.cfg.Cgroups.Busy(ctx, uid)
	if busy {
		return ErrNotOurs
	}
	return err
}

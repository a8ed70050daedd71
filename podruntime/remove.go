package podruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// RemoveContainer removes a container with its log files and its link. One that
// is gone already is removed. The files go first: without the container nobody
// would know them any more.
func (r *Runtime) RemoveContainer(ctx context.Context, c observed.Container) error {
	path := c.LogPath
	if path == "" { // a listing does not tell
		resp, err := r.cfg.CRI.ContainerStatus(ctx, string(c.ID), false)
		if gone(err) {
			path = resp.GetStatus().GetLogPath()
		} else {
			return criclient.Wrap(fmt.Sprintf("find the log of container %s (%s)", c.Name, c.ID), err)
		}
	}
	if err := r.removeLogs(c.ID, path); err != nil {
		return fmt.Errorf("remove logs of container %s (%s): %w", c.Name, c.ID, err)
	}
	if err := r.cfg.CRI.RemoveContainer(ctx, string(c.ID)); !gone(err) {
		return criclient.Wrap(fmt.Sprintf("remove container %s (%s)", c.Name, c.ID), err)
	}
	return nil
}

// RemoveSandbox stops a sandbox, which gives back its network, and removes it.
func (r *Runtime) RemoveSandbox(ctx context.Context, id observed.SandboxID) error {
	if err := r.cfg.CRI.StopPodSandbox(ctx, string(id)); !gone(err) {
		return criclient.Wrap(fmt.Sprintf("stop sandbox %s", id), err)
	}
	if err := r.cfg.CRI.RemovePodSandbox(ctx, string(id)); !gone(err) {
		return criclient.Wrap(fmt.Sprintf("remove sandbox %s", id), err)
	}
	return nil
}

// removeLogs removes the log at path, what rotation made of it, and the link. A
// path outside of the log directory is not one that this room has made, so it is
// left alone whatever the runtime says.
func (r *Runtime) removeLogs(id observed.ContainerID, path string) error {
	rel, err := filepath.Rel(r.cfg.LogDir, path)
	if path == "" || err != nil || !filepath.IsLocal(rel) || strings.Count(filepath.ToSlash(rel), "/") != 2 {
		return nil
	}
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if isLogOf(e.Name(), base) && !e.IsDir() {
			errs = append(errs, removeFile(filepath.Join(dir, e.Name())))
		}
	}
	if link := r.linkPath(path, string(id)); link != "" {
		errs = append(errs, removeFile(link))
	}
	return errors.Join(errs...)
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isLogOf reports whether name is the log file base or a rotated sibling, such as
// base.20260102-150405.gz.
func isLogOf(name, base string) bool {
	return name == base || strings.HasPrefix(name, base+".")
}

// linkPath is where the link to a log is, worked out from the log's own path:
// <logdir>/<namespace>_<pod>_<uid>/<container>/<n>.log. Empty: there is none.
func (r *Runtime) linkPath(log, id string) string {
	if r.cfg.ContainerLogDir == "" || id == "" || strings.ContainsRune(id, filepath.Separator) {
		return ""
	}
	dir := filepath.Dir(log)
	parts := strings.SplitN(filepath.Base(filepath.Dir(dir)), "_", 3)
	if len(parts) != 3 {
		return ""
	}
	name := fmt.Sprintf("%s_%s_%s-%s", parts[1], parts[0], filepath.Base(dir), id)
	const longest = 251 // leaves room for ".log" in a file name of 255 bytes
	return filepath.Join(r.cfg.ContainerLogDir, name[:min(len(name), longest)]+".log")
}

// linkLog makes the link to the log of a container that has just started. Only a
// log that exists gets one.
func (r *Runtime) linkLog(pod *corev1.Pod, container, id string, count int) error {
	if r.cfg.ContainerLogDir == "" {
		return nil
	}
	dir, err := r.podLogDir(pod)
	if err != nil {
		return err
	}
	target := filepath.Join(dir, container, strconv.Itoa(count)+".log")
	link := r.linkPath(target, id)
	if _, err := os.Stat(target); err != nil || link == "" {
		return err
	}
	if err := os.Symlink(target, link); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// subPathDir is where parts of volumes are bound, below the pod's directory.
const subPathDir = "volume-subpaths"

// SubPath says which part of a volume a container mounts.
type SubPath struct {
	Pod       *corev1.Pod
	Container string
	Index     int    // of the mount among the container's volumeMounts
	Volume    string // by its name in the pod
	Path      string // relative to the volume, variables expanded
	ReadOnly  bool   // the container must not write
}

// SubPath makes one file or directory of a volume that is set up available at a
// path of its own, which nothing that a container does can turn elsewhere. What is
// missing is created as a directory with the mode of the volume. Call it before
// each start of the container: a file that was replaced since the last start is
// another one, and is bound anew. [Volumes.TearDown] takes it away again.
//
// Symlinks in the volume are followed as long as they stay inside; the error for
// others wraps [ErrOutside]. No error names a path of the node.
func (v *Volumes) SubPath(ctx context.Context, req SubPath) (hostPath string, err error) {
	uid := observed.UID(req.Pod.UID)
	host, err := v.subPath(ctx, uid, req)
	if err != nil {
		return "", &Error{
			Pod: req.Pod.Namespace + "/" + req.Pod.Name, Volume: req.Volume,
			Err: fmt.Errorf("prepare subPath %q for container %s: %w", req.Path, req.Container, bare(err)),
		}
	}
	return host, nil
}

// bare takes the node's paths out of an error that a pod's owner gets to see.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", pe.Op, pe.Err)
	}
	return err
}

func (v *Volumes) subPath(ctx context.Context, uid observed.UID, req SubPath) (string, error) {
	for _, name := range []string{string(uid), req.Volume, req.Container} {
		if err := checkName(name); err != nil {
			return "", err
		}
	}
	if err := checkSubPath(req.Path); err != nil {
		return "", err
	}
	top, err := v.topOf(req.Pod, req.Volume)
	if err != nil {
		return "", err
	}
	done, err := v.turns.take(ctx, uid)
	if err != nil {
		return "", err
	}
	defer done()
	source, err := open(ctx, top, req.Path)
	if err != nil {
		return "", err
	}
	defer source.Close()
	dir := path.Join(string(uid), subPathDir, req.Volume, req.Container)
	return v.bind(source, dir, strconv.Itoa(req.Index), req.ReadOnly)
}

// checkSubPath has the words of the API's validation.
func checkSubPath(p string) error {
	switch {
	case p == "":
		return errors.New("a path is required")
	case path.IsAbs(p):
		return errors.New("must be a relative path")
	case slices.Contains(strings.Split(p, "/"), ".."):
		return errors.New("must not contain '..'")
	case strings.ContainsRune(p, 0), len(p) > maxPath:
		return errors.New("must be a path")
	}
	return nil
}

// topOf is the directory on the node that the volume is.
func (v *Volumes) topOf(pod *corev1.Pod, name string) (string, error) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.Name != name {
			continue
		}
		switch plugin := pluginOf(vol); {
		case vol.HostPath != nil:
			if !filepath.IsAbs(vol.HostPath.Path) {
				return "", fmt.Errorf("hostPath.path is %q, want an absolute path", vol.HostPath.Path)
			}
			return vol.HostPath.Path, nil
		case plugin == pluginEmptyDir, hasFiles(vol):
			return filepath.Join(v.pods, filepath.FromSlash(dirOf(observed.UID(pod.UID), plugin, name))), nil
		case vol.Image != nil:
			return "", errors.New("the runtime mounts parts of an image by itself")
		default:
			return "", unsupported(vol)
		}
	}
	return "", errors.New("the pod has no volume of that name")
}

// open finds the file. On a dead network file system that may take for ever, so it
// is left behind when ctx ends.
func open(ctx context.Context, top, rel string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	found := make(chan opened)
	go func() {
		f, err := openInside(ctx, top, rel)
		select {
		case found <- opened{f, err}:
		case <-ctx.Done():
			if err == nil {
				f.Close()
			}
		}
	}()
	select {
	case o := <-found:
		return o.file, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the volume does not answer (is its file system alive?): %w", ctx.Err())
	}
}

// bind makes the source visible at dir/name below the pods directory. What an
// earlier start of the container left there is kept if it is the same file.
func (v *Volumes) bind(source *os.File, dir, name string, readOnly bool) (string, error) {
	want, err := source.Stat()
	if err != nil {
		return "", err
	}
	root, err := v.openPods()
	if err != nil {
		return "", err
	}
	defer root.Close()
	if err := root.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	at := path.Join(dir, name)
	host := filepath.Join(v.pods, filepath.FromSlash(at))
	if has, err := root.Lstat(at); err == nil && os.SameFile(has, want) {
		return host, nil
	}
	if err := v.clear(root, at, host); err != nil {
		return "", err
	}
	if want.IsDir() {
		err = root.Mkdir(at, 0o750)
	} else {
		err = create(root, at)
	}
	if err != nil {
		return "", err
	}
	if err := v.kernel.bind(source, host, readOnly); err != nil {
		// It may be there and not read-only: the next call must not find it.
		if left := v.clear(root, at, host); left != nil {
			v.cfg.Log.Error(left, "Part of a volume stays where it was bound", "path", host)
		}
		return "", fmt.Errorf("bind: %w", err)
	}
	return host, nil
}

// clear makes room for a bind: whatever is mounted there goes, and the empty file
// or directory below it.
func (v *Volumes) clear(root *os.Root, at, host string) error {
	if _, err := root.Lstat(at); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(host)) // as the kernel's table has it
	if err != nil {
		return err
	}
	resolved := filepath.Join(parent, filepath.Base(host))
	mounts, err := v.kernel.mountsBelow(resolved)
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		if m.at != resolved {
			continue // goes with the one that it is in
		}
		if err := v.kernel.unmount(m.at); err != nil {
			return fmt.Errorf("unmount: %w", err)
		}
	}
	return root.Remove(at)
}

func create(root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

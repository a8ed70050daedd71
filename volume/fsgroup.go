package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The bits that the group of a volume gets on a file, on a file that is only read,
// and on a directory beside those.
const (
	groupFile     fs.FileMode = 0o660
	groupFileRead fs.FileMode = 0o440
	groupDir      fs.FileMode = 0o110 | fs.ModeSetgid
)

// When the pod hears about a change of owners that takes long.
const (
	slowAfter = 30 * time.Second
	slowEvery = 60 * time.Second
)

// groupOf returns the pod's fsGroup.
func groupOf(pod *corev1.Pod) (gid int, ok bool) {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}

// giveToGroup gives the volume, a directory below root, to the pod's fsGroup. As
// in the kubelet an emptyDir that stays with its old owner is no error: it is open
// to everyone. Only the end of ctx is.
func (v *Volumes) giveToGroup(ctx context.Context, root *os.Root, pod *corev1.Pod, dir, name string) error {
	gid, ok := groupOf(pod)
	if !ok {
		return nil
	}
	var seen atomic.Int64
	defer v.tellSlow(pod, name, &seen)()
	top, err := root.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("give the volume to group %d: %w", gid, err)
	}
	defer top.Close()
	c := chgrp{root: top, gid: gid, file: groupFile, done: func() { seen.Add(1) }}
	c.refused = func(file string, err error) {
		v.cfg.Log.V(1).Info("File keeps its owner or mode", "pod", pod.Namespace+"/"+pod.Name, "file", file, "error", err.Error())
	}
	policy := corev1.FSGroupChangeAlways
	if p := pod.Spec.SecurityContext.FSGroupChangePolicy; p != nil {
		policy = *p
	}
	if policy == corev1.FSGroupChangeOnRootMismatch && c.matches() {
		return nil
	}
	if err := c.walk(ctx, "."); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("give the volume to group %d: %w", gid, err)
		}
		v.cfg.Log.Error(err, "Volume keeps its owner", "pod", pod.Namespace+"/"+pod.Name, "volume", name)
	}
	return nil
}

// tellSlow tells the pod how far the change of owners is, if it takes long.
func (v *Volumes) tellSlow(pod *corev1.Pod, name string, seen *atomic.Int64) (stop func()) {
	return every(slowAfter, slowEvery, func() {
		v.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "VolumePermissionChangeInProgress",
			fmt.Sprintf("Setting the owner of volume %s takes long, %d files are done; fsGroupChangePolicy OnRootMismatch would look at its root only", name, seen.Load()))
	})
}

// chgrp gives a volume's files to a group.
type chgrp struct {
	root    *os.Root // the volume
	gid     int
	file    fs.FileMode // the bits that the group gets: groupFile or groupFileRead
	done    func()
	refused func(name string, err error)
}

// matches reports whether the directory at the top looks as if all had been done.
func (c *chgrp) matches() bool {
	fi, err := c.root.Lstat(".")
	if err != nil || !fi.IsDir() {
		return false
	}
	want := c.file | groupDir
	return hasGroup(fi, c.gid) && fi.Mode()&want == want
}

func hasGroup(fi fs.FileInfo, gid int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Gid == uint32(gid)
}

// walk does children before their directory, so that a top that [chgrp.matches]
// means that the walk came to its end. What the system refuses is told and passed
// over; a directory that can't be read is an error.
func (c *chgrp) walk(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fi, err := c.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed while we walked
	}
	if err != nil {
		return err
	}
	if fi.IsDir() {
		entries, err := c.list(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := c.walk(ctx, path.Join(name, e)); err != nil {
				return err
			}
		}
	}
	c.give(name, fi)
	return nil
}

func (c *chgrp) list(name string) ([]string, error) {
	f, err := c.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func (c *chgrp) give(name string, fi fs.FileInfo) {
	defer c.done()
	if err := c.root.Lchown(name, -1, c.gid); err != nil {
		c.refused(name, err)
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return // a link has no mode of its own
	}
	// The special bits are said again: chown takes setuid and setgid away.
	mode := fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | c.file
	if fi.IsDir() {
		mode |= groupDir
	}
	if err := c.root.Chmod(name, mode); err != nil {
		c.refused(name, err)
	}
}

// every calls tell after the first wait and then at each interval, until stop,
// which waits for a call that is under way.
func every(first, then time.Duration, tell func()) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		t := time.NewTimer(first)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				tell()
				t.Reset(then)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

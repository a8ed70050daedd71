package cgroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Ensure makes the pod's cgroup with the pod's [Limits] and returns the cgroup
// parent for its sandbox. One that something runs in is left as it is, since its
// values change by [Tree.Update] alone. One that is empty gets the limits again:
// whoever made it may have died in between.
func (t *Tree) Ensure(ctx context.Context, pod *corev1.Pod) (parent string, err error) {
	if !t.cfg.PerQOS {
		if top := t.names.top(); top != "/" {
			return top, nil
		}
		return "", nil
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	name, err := t.names.pod(podspec.QoS(pod), observed.UID(pod.UID))
	if err != nil {
		return "", err
	}
	if _, all := t.kernel.exists(name); all {
		if occupied, err := t.kernel.occupied(name); err == nil && occupied {
			return name, nil
		}
	}
	err = t.timed("create", func() error {
		if err := t.kernel.create(name); err != nil {
			return err
		}
		return t.kernel.set(name, t.onNode(Limits(pod, t.cfg), name))
	})
	if err != nil {
		return "", fmt.Errorf("create cgroup %s: %w", name, err)
	}
	return name, nil
}

// onNode bounds huge pages of every size the node has: by zero if the pod asks
// for none. What can't be bounded on this node is said, not refused, since the
// pod's pages were counted when it was admitted.
func (t *Tree) onNode(r Resources, name string) Resources {
	all := map[string]int64{}
	for _, size := range t.kernel.pageSizes() {
		all[size] = r.Hugepages[size]
	}
	for size := range r.Hugepages {
		if _, ok := all[size]; !ok {
			t.cfg.Log.Info("Huge pages of this size have no cgroup controller here, so the pod's use of them is not bounded", "cgroup", name, "size", size)
		}
	}
	r.Hugepages = all
	return r
}

// Update writes new values for a pod that runs. One call writes in no promised
// order: who grows one value and shrinks another makes two calls. It wraps
// [ErrNotFound] if the pod has no cgroup.
func (t *Tree) Update(ctx context.Context, pod *corev1.Pod, r Resources) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, err := t.one(observed.UID(pod.UID))
	if err != nil {
		return err
	}
	return t.set(name, r)
}

// Read returns the values that the pod's cgroup has now, without huge pages. On
// cgroup v2 the shares are the fewest that give its weight.
func (t *Tree) Read(uid observed.UID) (Resources, error) {
	name, err := t.one(uid)
	if err != nil {
		return Resources{}, err
	}
	r, err := t.kernel.read(name)
	if err != nil {
		return Resources{}, fmt.Errorf("read cgroup %s: %w", name, err)
	}
	return r, nil
}

// Usage is the memory that the pod uses, in bytes and with its page cache: a
// limit below it makes the kernel reclaim and kill.
func (t *Tree) Usage(uid observed.UID) (int64, error) {
	name, err := t.one(uid)
	if err != nil {
		return 0, err
	}
	n, err := t.kernel.usage(name)
	if err != nil {
		return 0, fmt.Errorf("read memory usage of cgroup %s: %w", name, err)
	}
	return n, nil
}

func (t *Tree) one(uid observed.UID) (string, error) {
	found, err := t.find(uid)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("find cgroup of pod %s: %w", uid, ErrNotFound)
	}
	return found[0], nil
}

// Exists reports whether the pod has a cgroup in any tier and hierarchy.
func (t *Tree) Exists(uid observed.UID) bool {
	found, err := t.find(uid)
	return err == nil && len(found) > 0
}

// All returns the pods that have a cgroup, sorted. Who knows which pods there
// should be finds the orphans among them.
func (t *Tree) All() ([]observed.UID, error) {
	if !t.cfg.PerQOS {
		return nil, nil
	}
	var uids []observed.UID
	for _, tier := range tiers {
		name := t.names.tier(tier)
		children, err := t.kernel.children(name)
		if err != nil {
			return nil, fmt.Errorf("list cgroup %s: %w", name, err)
		}
		for _, child := range children {
			if uid, ok := Parse(t.cfg.Driver, name+"/"+child); ok {
				uids = append(uids, uid)
			}
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// Busy reports whether a process runs in the pod's cgroup. Who finds a cgroup of a
// pod that nobody knows should ask: it may be another agent's, and no orphan on the
// word of its directory alone.
func (t *Tree) Busy(uid observed.UID) (bool, error) {
	found, err := t.find(uid)
	if err != nil {
		return false, err
	}
	for _, name := range found {
		pids, err := t.kernel.processes(name)
		if err != nil {
			return false, fmt.Errorf("list processes of cgroup %s: %w", name, err)
		}
		if len(pids) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// tries is how often a pod's processes are killed before Remove gives up.
const tries = 5

// Remove kills what still runs in the pod's cgroups and removes them from every
// hierarchy, with all that others may have put below them. A pod without a cgroup
// is no error. After an error the caller should wait longer each time: what the
// kernel does not let go of now it hardly does a second later.
func (t *Tree) Remove(ctx context.Context, uid observed.UID) error {
	found, err := t.find(uid)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range found {
		err := t.timed("destroy", func() error {
			if err := t.kill(ctx, name); err != nil {
				return err
			}
			return t.kernel.remove(name)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (t *Tree) kill(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		left, err := t.kernel.kill(name)
		switch {
		case err != nil || len(left) == 0:
			return err
		case try == tries:
			return fmt.Errorf("processes %v do not end on SIGKILL; /proc/<pid>/stack tells where the kernel holds them", left)
		}
		t.cfg.Log.V(1).Info("Killed processes that a pod left", "cgroup", name, "pids", left)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond << try):
		}
	}
}

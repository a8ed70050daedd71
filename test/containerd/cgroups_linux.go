package containerd

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CgroupRoot is a cgroup of the daemon's own, for an agent's cgroupRoot: pods of
// two agents on one machine must not meet in /kubepods.
func (d *Daemon) CgroupRoot() string { return "/" + d.at.network }

// hierarchies are the places where cgroups are mounted: one per controller for v1,
// and one for all for v2.
func hierarchies() []string {
	const top = "/sys/fs/cgroup"
	if exists(filepath.Join(top, "cgroup.controllers")) {
		return []string{top}
	}
	var found []string
	for _, m := range Mounts(top) {
		if exists(filepath.Join(m, "cgroup.procs")) {
			found = append(found, m)
		}
	}
	return found
}

// makeCgroupRoot makes it in every hierarchy.
func makeCgroupRoot(at layout) error {
	for _, h := range hierarchies() {
		if err := os.MkdirAll(filepath.Join(h, at.network), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// podCgroups are the pods' below the root, in every hierarchy, the deepest last.
func podCgroups(at layout) []string {
	return slices.DeleteFunc(cgroupTree(at), func(path string) bool {
		return !strings.Contains(filepath.Base(path), "pod") || strings.HasPrefix(filepath.Base(path), "kubepods")
	})
}

// cgroupTree is the root and all that is below it, the deepest last.
func cgroupTree(at layout) []string {
	var found []string
	for _, h := range hierarchies() {
		_ = filepath.WalkDir(filepath.Join(h, at.network), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() { // cgroups come and go while we look
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

// removeCgroupRoot tries once; what it could not is in Leftovers.
func removeCgroupRoot(at layout) {
	tree := cgroupTree(at)
	slices.Reverse(tree)
	for _, dir := range tree {
		_ = os.Remove(dir)
	}
}

// removePodCgroups tries once; what something runs in stays.
func removePodCgroups(at layout) {
	for _, pod := range podCgroups(at) {
		below, _ := filepath.Glob(pod + "/*/") // the pattern is well formed
		for _, dir := range append(below, pod) {
			_ = os.Remove(dir)
		}
	}
}

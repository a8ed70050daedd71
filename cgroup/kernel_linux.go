package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"
)

// needed are the controllers without which a pod's limits mean nothing.
var needed = []string{"cpu", "memory", "pids"}

type linux struct {
	driver Driver
	v2     bool
	// mounts are the roots of the hierarchies by controller. Cgroup v2 has one,
	// and its key is empty.
	mounts map[string]string
}

func openKernel(cfg Config) (kernel, error) {
	if cfg.Driver == Systemd && !systemd.IsRunningSystemd() {
		return nil, fmt.Errorf("cgroup: driver %s, but systemd is not the init system here (no /run/systemd/system); give the agent and the runtime the driver %s", Systemd, Cgroupfs)
	}
	k := &linux{driver: cfg.Driver, v2: cgroups.IsCgroup2UnifiedMode()}
	if k.v2 {
		k.mounts = map[string]string{"": fs2.UnifiedMountpoint}
		return k, nil
	}
	m, err := manager.New(unit(Cgroupfs, "/", &cgroups.Resources{}))
	if err != nil {
		return nil, fmt.Errorf("cgroup: find the hierarchies: %w; mount cgroup v2 at %s", err, fs2.UnifiedMountpoint)
	}
	k.mounts = m.GetPaths()
	return k, nil
}

func (k *linux) version() int {
	if k.v2 {
		return 2
	}
	return 1
}

// unit is the cgroup in the library's words. Systemd gets the names of two slices
// instead of a path.
func unit(driver Driver, name string, r *cgroups.Resources) *cgroups.Cgroup {
	r.SkipDevices = true     // devices are each container's affair,
	r.SkipFreezeOnSet = true // so nobody loses one while this is updated
	if driver != Systemd {
		return &cgroups.Cgroup{Path: name, Resources: r}
	}
	parent := path.Base(path.Dir(name))
	if parent == "/" {
		parent = "-.slice"
	}
	return &cgroups.Cgroup{Systemd: true, Parent: parent, Name: path.Base(name), Resources: r}
}

func (k *linux) manager(name string) (cgroups.Manager, error) {
	return manager.NewWithPaths(unit(k.driver, name, &cgroups.Resources{}), k.paths(name))
}

// paths are the cgroup's directories by controller.
func (k *linux) paths(name string) map[string]string {
	paths := make(map[string]string, len(k.mounts))
	for controller, mount := range k.mounts {
		paths[controller] = filepath.Join(mount, name)
	}
	return paths
}

func (k *linux) path(name, controller string) (string, error) {
	if k.v2 {
		controller = ""
	}
	mount, ok := k.mounts[controller]
	if !ok {
		return "", noController(controller)
	}
	return filepath.Join(mount, name), nil
}

func (k *linux) usable(name string) error {
	if k.v2 {
		return delegated(fs2.UnifiedMountpoint, name)
	}
	for _, controller := range needed {
		if _, ok := k.mounts[controller]; !ok {
			return noController(controller)
		}
	}
	return nil
}

func noController(name string) error {
	return fmt.Errorf("no hierarchy with the controller %s is mounted; mount -t cgroup -o %[1]s cgroup /sys/fs/cgroup/%[1]s, after booting with cgroup_enable=%[1]s if /proc/cgroups says it is disabled", name)
}

// delegated walks down a v2 hierarchy to where the first needed controller gets
// lost, since that is the place to mend.
func delegated(mount, name string) error {
	dir := mount
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		above := dir
		dir = filepath.Join(dir, part)
		text, err := cgroups.ReadFile(dir, "cgroup.controllers")
		if err != nil {
			return err
		}
		have := strings.Fields(text)
		missing := slices.DeleteFunc(slices.Clone(needed), func(c string) bool { return slices.Contains(have, c) })
		if len(missing) == 0 {
			continue
		}
		return notDelegated(above, missing)
	}
	return nil
}

func notDelegated(above string, missing []string) error {
	list := strings.Join(missing, ", ")
	text, err := cgroups.ReadFile(above, "cgroup.controllers")
	if err == nil {
		for _, c := range missing {
			if !slices.Contains(strings.Fields(text), c) {
				return fmt.Errorf("the controllers %s are not delegated to %s; whoever made that cgroup has to enable them (systemd: Delegate=yes; a container: a cgroup namespace with a writable hierarchy)", list, above)
			}
		}
	}
	if pids, err := cgroups.GetPids(above); err == nil && len(pids) > 0 {
		return fmt.Errorf("the controllers %s can't be enabled below %s, since it has processes of its own (pid %d is one); move them to a cgroup below it", list, above, pids[0])
	}
	return fmt.Errorf("the controllers %s are not enabled below %s; write +%s to its cgroup.subtree_control", list, above, strings.Join(missing, " +"))
}

func (k *linux) exists(name string) (some, all bool) {
	all = len(k.mounts) > 0
	for controller, dir := range k.paths(name) {
		there := cgroups.PathExists(dir)
		some = some || there
		switch controller {
		case "devices": // comes with the first container
		case "": // of a hybrid system: no controllers, and systemd leaves it out
			all = all && (there || !k.v2)
		default:
			all = all && there
		}
	}
	return some, all
}

func (k *linux) occupied(name string) (bool, error) {
	// One hierarchy speaks for all: runtimes put a container into each.
	dir, err := k.path(name, "memory")
	if err != nil {
		return false, err
	}
	pids, err := cgroups.GetPids(dir)
	if err != nil || len(pids) > 0 {
		return len(pids) > 0, err
	}
	below, err := subdirectories(dir)
	return len(below) > 0, err
}

func (k *linux) children(name string) ([]string, error) {
	all := map[string]bool{}
	for _, dir := range k.paths(name) {
		names, err := subdirectories(dir)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			all[n] = true
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}

// subdirectories of a directory that does not exist are none.
func subdirectories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (k *linux) create(name string) error {
	m, err := k.manager(name)
	if err != nil {
		return err
	}
	return m.Apply(-1) // no process joins it: containers have cgroups of their own
}

func (k *linux) set(name string, r Resources) error {
	m, err := k.manager(name)
	if err != nil {
		return err
	}
	return m.Set(k.native(r))
}

func (k *linux) processes(name string) ([]int, error) {
	found := map[int]bool{}
	for _, dir := range k.paths(name) {
		pids, err := cgroups.GetAllPids(dir)
		if err != nil && !gone(err) {
			return nil, err
		}
		for _, pid := range pids {
			found[pid] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// kill sends SIGKILL to what it finds. In a frozen v1 cgroup a process dies only
// when it thaws.
func (k *linux) kill(name string) ([]int, error) {
	pids, err := k.processes(name)
	switch {
	case err != nil:
		return nil, err
	case slices.Contains(pids, 0):
		return nil, errors.New("it has processes that can't be seen from this PID namespace; run the agent in the host's")
	case slices.Contains(pids, os.Getpid()):
		return nil, errors.New("this agent itself runs in it")
	}
	paths := k.paths(name)
	// Linux 5.14 ends them all at once, and what they fork in the meantime.
	if len(pids) > 0 && k.v2 && cgroups.WriteFile(paths[""], "cgroup.kill", "1") == nil {
		return pids, nil
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return pids, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	if len(pids) > 0 && !k.v2 {
		thaw(paths["freezer"])
	}
	return pids, nil
}

// thaw does what it can; processes that stay frozen are reported as survivors.
func thaw(freezer string) {
	if freezer == "" {
		return
	}
	_ = filepath.WalkDir(freezer, func(dir string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = cgroups.WriteFile(dir, "freezer.state", string(cgroups.Thawed))
		}
		return nil
	})
}

func (k *linux) remove(name string) error {
	if k.driver == Systemd {
		m, err := k.manager(name)
		if err != nil {
			return err
		}
		return m.Destroy()
	}
	paths := k.paths(name)
	var errs []error
	for _, controller := range slices.Sorted(maps.Keys(paths)) {
		errs = append(errs, cgroups.RemovePath(paths[controller]))
	}
	return errors.Join(errs...)
}

func (k *linux) pageSizes() []string {
	if k.v2 {
		text, err := cgroups.ReadFile(fs2.UnifiedMountpoint, "cgroup.controllers")
		if err != nil || !slices.Contains(strings.Fields(text), "hugetlb") {
			return nil
		}
	} else if _, ok := k.mounts["hugetlb"]; !ok {
		return nil
	}
	return cgroups.HugePageSizes()
}

// gone reports that a cgroup was removed while it was looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

package cgroup

import (
	"context"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
)

// Top is the cgroup that kubepods is in.
func (t *Tree) Top() string { return t.names.top() }

// MakeTop makes it, which the Tree itself never does.
func (t *Tree) MakeTop() error { return t.kernel.create(t.names.top()) }

// ScrapTop removes it with all there is below.
func (t *Tree) ScrapTop() error {
	if err := t.kill(context.Background(), t.names.top()); err != nil {
		return err
	}
	return t.kernel.remove(t.names.top())
}

// Dirs are the directories of a cgroup by controller.
func (t *Tree) Dirs(name string) map[string]string { return t.kernel.(*linux).paths(name) }

// PageSizes are the sizes that can be bounded here.
func (t *Tree) PageSizes() []string { return t.kernel.pageSizes() }

// SharesOf is what a cgroup v2 makes of shares.
func SharesOf(shares int64) int64 {
	return sharesOf(int64(cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares))))
}

// HasSystemd reports whether systemd is the init system.
func HasSystemd() bool { return systemd.IsRunningSystemd() }

// Unit, Native and Delegated are the pure parts of the Linux side.
var (
	Unit      = unit
	Delegated = delegated
)

// Usable says what is missing where these controllers alone are mounted on v1.
func Usable(controllers ...string) error {
	k := &linux{mounts: map[string]string{}}
	for _, c := range controllers {
		k.mounts[c] = "/sys/fs/cgroup/" + c
	}
	return k.usable("/kubepods")
}

// Native is [Resources] in the library's words.
func Native(v2 bool, r Resources) *cgroups.Resources { return (&linux{v2: v2}).native(r) }

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// ErrNotFound is wrapped when the pod has no cgroup.
var ErrNotFound = errors.New("cgroup: not found")

// Config of a [Tree]. The kubelet's defaults for PerQOS and CPUCFSQuota are true.
type Config struct {
	// Driver must be the runtime's own, else its containers land beside the
	// pod's cgroup and are not limited by it. Default Cgroupfs.
	Driver Driver
	// Root is the cgroup that kubepods is in, as a path like "/a/b" whichever the
	// driver is. It must exist. Default "/".
	Root string
	// PerQOS gives pods cgroups. Without it the Tree does nothing.
	PerQOS bool
	// CPUCFSQuota enforces CPU limits.
	CPUCFSQuota bool
	// CPUCFSPeriod is what a CPU limit is accounted over, default 100ms.
	CPUCFSPeriod time.Duration
	// PodPidsLimit bounds the processes of one pod; zero or less is no bound.
	PodPidsLimit int64
	MemoryQoS    MemoryQoS
	Log          logr.Logger // default discards
	Hooks        Hooks       // default no-ops
}

// MemoryQoS is what cgroup v2 does with memory beside the hard limit (KEP-2570).
// The zero value is the kubelet's default: nothing. Cgroup v1 ignores it.
type MemoryQoS struct {
	// Tiered keeps what pods request from being reclaimed: strictly for
	// Guaranteed pods, as long as possible for Burstable ones. The kubelet's
	// memoryReservationPolicy TieredReservation.
	Tiered bool
	// ThrottlingFactor, above 0 and at most 1, is how far between request and
	// limit allocations begin to be slowed down. 0: they are not.
	ThrottlingFactor float64
}

// Hooks report work as it happens.
type Hooks struct {
	// Done is called after each change of a cgroup; op is create, update or
	// destroy, the kubelet's operation_type.
	Done func(op string, took time.Duration, err error)
	// Reserved is called when tiered reservation was written, with the bytes
	// that all pods together are guaranteed and those they are to keep if possible.
	Reserved func(guaranteed, burstable int64)
}

// Tree is the cgroups of a node's pods.
type Tree struct {
	cfg    Config
	names  names
	kernel kernel

	// tiers takes turns at writing the tiers' values.
	tiers sync.Mutex
}

// kernel is what only Linux has. Every name is one that [names] made.
type kernel interface {
	// version is 1 or 2. A hybrid system is 1: its controllers are.
	version() int
	// usable returns an error that names the missing controller and the way out.
	usable(name string) error
	// exists reports whether the cgroup is in any hierarchy, and in all.
	exists(name string) (some, all bool)
	// occupied reports whether it has processes or cgroups below it.
	occupied(name string) (bool, error)
	// children are the names of the cgroups below it in any hierarchy.
	children(name string) ([]string, error)
	create(name string) error
	set(name string, r Resources) error
	read(name string) (Resources, error)
	// usage is the memory in use, in bytes.
	usage(name string) (int64, error)
	// processes are those in and below it; 0 is one that can't be seen from here.
	processes(name string) ([]int, error)
	// kill ends every process in and below it, and returns those it met.
	kill(name string) ([]int, error)
	remove(name string) error
	// pageSizes of huge pages that can be limited, in the kernel's words.
	pageSizes() []string
}

// New checks cfg and finds out which cgroup version the system has. It changes
// nothing.
func New(cfg Config) (*Tree, error) {
	if cfg.Driver == "" {
		cfg.Driver = Cgroupfs
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Done == nil {
		cfg.Hooks.Done = func(string, time.Duration, error) {}
	}
	if cfg.Hooks.Reserved == nil {
		cfg.Hooks.Reserved = func(int64, int64) {}
	}
	if p := cfg.CPUCFSPeriod; p < 0 || p > time.Second || p > 0 && p < time.Microsecond {
		return nil, fmt.Errorf("cgroup: Config.CPUCFSPeriod is %v, want 1µs to 1s", p)
	}
	if f := cfg.MemoryQoS.ThrottlingFactor; !(f >= 0 && f <= 1) {
		return nil, fmt.Errorf("cgroup: Config.MemoryQoS.ThrottlingFactor is %v, want 0 to 1", f)
	}
	n, err := newNames(cfg.Driver, cfg.Root)
	if err != nil {
		return nil, err
	}
	t := &Tree{cfg: cfg, names: n}
	if cfg.PerQOS {
		if t.kernel, err = openKernel(cfg); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Version is the cgroup version of the system, 1 or 2, and 0 without PerQOS.
func (t *Tree) Version() int {
	if !t.cfg.PerQOS {
		return 0
	}
	return t.kernel.version()
}

// Start makes the cgroups of the tiers where they are missing, and checks that
// the controllers which pods need work in them. It may be called again.
func (t *Tree) Start(ctx context.Context) error {
	if !t.cfg.PerQOS {
		return nil
	}
	if _, all := t.kernel.exists(t.names.top()); !all {
		return fmt.Errorf("cgroup: the root %s for pods does not exist in every hierarchy; create it before the agent starts, or correct cgroupRoot", t.names.top())
	}
	for _, tier := range tiers {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := t.names.tier(tier)
		err := t.timed("create", func() error {
			if err := t.kernel.create(name); err != nil {
				return err
			}
			return t.kernel.usable(name)
		})
		if err != nil {
			return fmt.Errorf("create cgroup %s: %w", name, err)
		}
		if tier == corev1.PodQOSGuaranteed {
			continue // kubepods itself, whose values are the node's
		}
		r := Resources{Hugepages: map[string]int64{}}
		for _, size := range t.kernel.pageSizes() {
			r.Hugepages[size] = unbounded
		}
		if tier == corev1.PodQOSBestEffort {
			r.CPUShares = new(leastShares)
		}
		if err := t.set(name, r); err != nil {
			return err
		}
	}
	return nil
}

// UpdateQOS writes the tiers' values for the pods that are active now. It is due
// after a pod came or went, and now and then.
func (t *Tree) UpdateQOS(pods []*corev1.Pod) error {
	if !t.cfg.PerQOS {
		return nil
	}
	t.tiers.Lock()
	defer t.tiers.Unlock()
	values := Tiers(pods, t.cfg)
	for _, tier := range tiers {
		if err := t.set(t.names.tier(tier), values[tier]); err != nil {
			return err
		}
	}
	if t.cfg.MemoryQoS.Tiered && t.kernel.version() == 2 {
		node := values[corev1.PodQOSGuaranteed]
		t.cfg.Hooks.Reserved(*node.MemoryMin, *node.MemoryLow)
	}
	return nil
}

// find returns the names under which the pod has a cgroup in any hierarchy:
// usually one, since only the tier is not known.
func (t *Tree) find(uid observed.UID) ([]string, error) {
	if !t.cfg.PerQOS {
		return nil, nil
	}
	var found []string
	for _, tier := range tiers {
		name, err := t.names.pod(tier, uid)
		if err != nil {
			return nil, err
		}
		if some, _ := t.kernel.exists(name); some {
			found = append(found, name)
		}
	}
	return found, nil
}

func (t *Tree) set(name string, r Resources) error {
	err := t.timed("update", func() error { return t.kernel.set(name, r) })
	if err != nil {
		return fmt.Errorf("update cgroup %s: %w", name, err)
	}
	return nil
}

func (t *Tree) timed(op string, do func() error) error {
	start := time.Now()
	err := do()
	t.cfg.Hooks.Done(op, time.Since(start), err)
	return err
}

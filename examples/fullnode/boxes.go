package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cgroup"
	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

// boxes are the pods' cgroups. They are opened at first use and not at start,
// since only the runtime knows who makes cgroups on this machine, and it may start
// after its agent.
type boxes struct {
	config  cgroup.Config // with the driver for runtimes that do not tell
	runtime configRuntime
	// active are the pods whose requests count for the tiers.
	active func() []*corev1.Pod
	log    logr.Logger
	wake   chan struct{} // room for one

	mu struct {
		sync.Mutex
		tree *cgroup.Tree // nil until opened
	}
}

// configRuntime tells who makes cgroups.
type configRuntime interface {
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

func newBoxes(cfg cgroup.Config, rt configRuntime, log logr.Logger) *boxes {
	return &boxes{config: cfg, runtime: rt, log: log, wake: make(chan struct{}, 1)}
}

// open returns the tree, made on the first call that can.
func (b *boxes) open(ctx context.Context) (*cgroup.Tree, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.tree != nil {
		return b.mu.tree, nil
	}
	cfg := b.config
	answer, err := b.runtime.RuntimeConfig(ctx)
	switch {
	case err == nil && answer.GetLinux() != nil:
		cfg.Driver = cgroup.Cgroupfs
		if answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
			cfg.Driver = cgroup.Systemd
		}
	case err != nil && !errors.Is(err, criclient.ErrUnimplemented): // containerd before 2.0 does not tell
		return nil, fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	}
	tree, err := cgroup.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := tree.Start(ctx); err != nil {
		return nil, fmt.Errorf("%w (cgroupsPerQOS: false does without)", err)
	}
	b.log.Info("cgroups for pods are ready", "perQOS", cfg.PerQOS, "driver", cfg.Driver, "root", cfg.Root, "version", tree.Version())
	b.mu.tree = tree
	return tree, nil
}

// Ensure makes the pod's cgroup.
func (b *boxes) Ensure(ctx context.Context, pod *corev1.Pod) (string, error) {
	tree, err := b.open(ctx)
	if err != nil {
		return "", err
	}
	defer b.changed()
	return tree.Ensure(ctx, pod)
}

// Remove removes the pod's cgroup.
func (b *boxes) Remove(ctx context.Context, uid observed.UID) error {
	tree, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer b.changed()
	return tree.Remove(ctx, uid)
}

// All are the pods that have one: none as long as none can be looked at.
func (b *boxes) All() ([]observed.UID, error) {
	b.mu.Lock()
	tree := b.mu.tree
	b.mu.Unlock()
	if tree == nil {
		return nil, nil
	}
	return tree.All()
}

// Busy reports whether a process runs in the pod's cgroup.
func (b *boxes) Busy(ctx context.Context, uid observed.UID) (bool, error) {
	tree, err := b.open(ctx)
	if err != nil {
		return false, err
	}
	return tree.Busy(uid)
}

func (b *boxes) changed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Run keeps the tiers' values at the sum of what their pods request. A burst of
// pods is one change.
func (b *boxes) Run(ctx context.Context) error {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		tree := b.mu.tree
		b.mu.Unlock()
		if tree == nil {
			continue
		}
		if err := tree.UpdateQOS(b.active()); err != nil {
			b.log.Error(err, "the cgroups of the QoS classes do not have the weight of their pods")
		}
	}
}

// Pod is the cgroup of one pod, for a resize; nil if it has none of its own.
func (b *boxes) Pod(pod *corev1.Pod) podruntime.PodCgroup {
	if !b.config.PerQOS {
		return nil
	}
	return podBox{b, pod}
}

// podBox shows a pod's cgroup in the words of podruntime.
type podBox struct {
	boxes *boxes
	pod   *corev1.Pod
}

func (p podBox) Usage(ctx context.Context) (int64, error) {
	tree, err := p.boxes.open(ctx)
	if err != nil {
		return 0, err
	}
	return tree.Usage(observed.UID(p.pod.UID))
}

func (p podBox) Limits(ctx context.Context) (now, want podruntime.PodLimits, err error) {
	tree, err := p.boxes.open(ctx)
	if err != nil {
		return now, want, err
	}
	in, err := tree.Read(observed.UID(p.pod.UID))
	if err != nil {
		return now, want, err
	}
	return podLimits(in), podLimits(cgroup.Limits(p.pod, p.boxes.config)), nil
}

// podLimits has zero for no limit.
func podLimits(r cgroup.Resources) podruntime.PodLimits {
	limit := func(n *int64) int64 { return max(ptr.Deref(n, 0), 0) }
	return podruntime.PodLimits{Memory: limit(r.Memory), CPUShares: limit(r.CPUShares), CPUQuota: limit(r.CPUQuota)}
}

func (p podBox) Set(ctx context.Context, l podruntime.PodLimits) error {
	tree, err := p.boxes.open(ctx)
	if err != nil {
		return err
	}
	var r cgroup.Resources
	if l.Memory != 0 {
		r.Memory = &l.Memory
	}
	if l.CPUShares != 0 {
		r.CPUShares = &l.CPUShares
	}
	if l.CPUQuota != 0 {
		r.CPUQuota, r.CPUPeriod = &l.CPUQuota, ptr.To(p.boxes.config.CPUCFSPeriod.Microseconds())
	}
	defer p.boxes.changed()
	return tree.Update(ctx, p.pod, r)
}

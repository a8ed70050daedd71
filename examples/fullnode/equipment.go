package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/admission"
	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/cgroup"
	"github.com/kubeletkit/kubeletkit/keyring"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podnet"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/userns"
)

// equipment is what pods get of the node: resources, names, users, credentials.
func (b *builder) equipment() error {
	c := &b.o.config
	b.machine = lookAtMachine(b.o.rootDir)
	if err := fits(c, b.machine, b.o.withCgroups()); err != nil {
		return err
	}
	if b.o.hasCgroups() {
		b.boxes = newBoxes(cgroup.Config{
			Driver: cgroup.Driver(c.CgroupDriver), Root: c.CgroupRoot, PerQOS: *c.CgroupsPerQOS,
			CPUCFSQuota: *c.CPUCFSQuota, CPUCFSPeriod: c.CPUCFSQuotaPeriod.Duration, PodPidsLimit: *c.PodPidsLimit,
			MemoryQoS: cgroup.MemoryQoS{Tiered: tiered(c), ThrottlingFactor: ptr.Deref(c.MemoryThrottlingFactor, 0)},
			Log:       b.logFor("cgroup"), Hooks: b.metrics.Cgroups(),
		}, b.door.runtime, b.logFor("cgroup"))
		b.boxes.active = func() []*corev1.Pod { return b.handler.active(nil) }
	}
	var err error
	if b.names, err = podnet.New(podnet.Config{
		ClusterDomain: c.ClusterDomain, ClusterDNS: c.ClusterDNS, ResolvConf: *c.ResolverConfig, NodeIPs: b.o.nodeIPs,
		Hooks: podnet.Hooks{Event: func(pod *corev1.Pod, eventType, reason, message string) {
			if reason == podnet.ReasonNoDNS {
				eventType = corev1.EventTypeNormal // without a cluster there is no cluster DNS to miss
			}
			b.event(pod, "", eventType, reason, message)
		}}, Log: b.logFor("podnet"),
	}); err != nil {
		return err
	}
	if err := b.userNamespaces(); err != nil {
		return err
	}
	if err := b.credentials(); err != nil {
		return err
	}
	hooks := b.metrics.Lifecycle()
	hooks.Event = func(call lifecycle.Call, eventType, reason, message string) {
		if call.Pod != nil && call.Container != nil {
			b.event(call.Pod, call.Container.Name, eventType, reason, message)
		}
	}
	b.alloc, err = allocation.New(allocation.Config{
		Dir: b.o.rootDir, LimitedSwap: c.MemorySwap.SwapBehavior == swapLimited, Log: b.logFor("allocation"), Hooks: b.allocationHooks(),
	})
	if err != nil {
		return err
	}
	if b.sysctls, err = admission.Sysctls(c.AllowedUnsafeSysctls, b.machine.kernel); err != nil {
		return fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	b.names.CheckResolvConf() //nolint:errcheck // the event says the same, and the node can go on
	b.lifecycle, err = lifecycle.New(lifecycle.Config{Exec: b.door.runtime, Log: b.logFor("lifecycle"), Hooks: hooks})
	return err
}

// fits says what of the configuration this machine does not have.
func fits(c *kubeletconfig.KubeletConfiguration, m machine, cgroups bool) error {
	var errs []error
	if cgroups && !m.cgroupV2 && *c.FailCgroupV1 {
		errs = append(errs, errors.New("this machine has cgroup v1, and failCgroupV1 is true"))
	}
	if m.swap > 0 && *c.FailSwapOn {
		errs = append(errs, errors.New("this machine has swap, and failSwapOn is true"))
	}
	if c.MemorySwap.SwapBehavior == swapLimited && !m.cgroupV2 {
		errs = append(errs, errors.New("memorySwap.swapBehavior LimitedSwap needs cgroup v2"))
	}
	return errors.Join(errs...)
}

func tiered(c *kubeletconfig.KubeletConfiguration) bool {
	return c.MemoryReservationPolicy == kubeletconfig.TieredReservationMemoryReservationPolicy
}

// resources is how requests and limits become the runtime's.
func (b *builder) resources() podruntime.ResourcePolicy {
	c := &b.o.config
	return podruntime.ResourcePolicy{
		NoCPUQuota: !*c.CPUCFSQuota, CPUPeriod: c.CPUCFSQuotaPeriod.Duration,
		CgroupV2: b.machine.cgroupV2, SingleProcessOOMKill: ptr.Deref(c.SingleProcessOOMKill, !b.machine.cgroupV2),
		MemoryQoS: podruntime.MemoryQoS{
			Tiered: tiered(c), ThrottlingFactor: ptr.Deref(c.MemoryThrottlingFactor, 0), Allocatable: b.machine.memory(),
		},
		Swap: podruntime.Swap{Controlled: b.machine.swapControlled, Limited: c.MemorySwap.SwapBehavior == swapLimited, Total: b.machine.swap},
	}
}

// subIDsWithin bounds the question which users the machine has for pods.
const subIDsWithin = 10 * time.Second

// userNamespaces takes stock of the users that running pods have.
func (b *builder) userNamespaces() error {
	if b.o.runtime == "fake" || runtime.GOOS != "linux" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), subIDsWithin)
	defer cancel()
	first, length, err := userns.HostRange(ctx)
	if err != nil {
		return err
	}
	b.users, err = userns.New(userns.Config{
		RootDir: b.o.rootDir, First: first, Length: length, IDsPerPod: uint32(*b.o.config.UserNamespaces.IDsPerPod),
		MaxPods: int(b.o.config.MaxPods), Log: b.logFor("userns"),
	})
	if err != nil {
		return err
	}
	if err := b.users.Recover(); err != nil {
		// One pod's file must not keep the node's other pods from their agent.
		b.logFor("userns").Error(err, "no pod gets users of its own before this is put right; those that have some keep them")
	}
	return nil
}

// credentials are those of the node and of the pods, for pulling images.
func (b *builder) credentials() error {
	work, _ := os.Getwd()       // none: there is no file to find there
	home, _ := os.UserHomeDir() // none: likewise
	cfg := keyring.Config{
		Secrets: b.objects, Files: keyring.NodeFiles(b.o.rootDir, work, home), BinDir: b.o.credentialProviderDir, Log: b.logFor("keyring"), Hooks: b.metrics.Credentials(),
	}
	if file := b.o.credentialProviders; file != "" {
		var err error
		if cfg.Providers, err = keyring.ReadProviders(file); err != nil {
			return fmt.Errorf("--image-credential-provider-config: %w", err)
		}
	}
	var err error
	b.keyring, err = keyring.New(cfg)
	return err
}

// objectsChanged brings the change to the pods that refer to what changed: those
// that wait for it can go on, and the volumes of the others are brought up to date.
func (b *builder) objectsChanged(keys []podsource.ObjectKey) {
	changed := map[podsource.ObjectKey]bool{}
	for _, k := range keys {
		changed[k] = true
	}
	for _, pod := range b.store.Pods() {
		touches := func(object podspec.Object) bool {
			return changed[podsource.ObjectKey{Kind: object.Kind, Namespace: pod.Namespace, Name: object.Name}]
		}
		if slices.ContainsFunc(pod.Spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool {
			return touches(podspec.Object{Kind: podspec.KindSecret, Name: s.Name})
		}) {
			b.puller.Forget(observed.UID(pod.UID)) // what failed with the old credentials says nothing of these
		}
		for object := range podspec.References(pod) {
			if touches(object) {
				b.workers.SyncAt(observed.UID(pod.UID), time.Now())
				break
			}
		}
	}
}

// nodeObject is what is known of the node without an API server.
func (b *builder) nodeObject() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.o.nodeName, Labels: b.o.labels}}
}

func (b *builder) allocationHooks() allocation.Hooks {
	hooks := b.metrics.Allocations(func() (map[allocation.Outcome]int, int) { return b.alloc.Counts() })
	hooks.Event = func(pod *corev1.Pod, eventType, reason, message string) { b.event(pod, "", eventType, reason, message) }
	return hooks
}

// runHook gives a pod on the host's network the node's address: it has none of its
// own, and an httpGet hook that names no host asks the pod.
func (b *builder) runHook(ctx context.Context, call lifecycle.Call) (string, error) {
	if call.PodIP == "" && call.Pod != nil && call.Pod.Spec.HostNetwork && len(b.o.nodeIPs) > 0 {
		call.PodIP = b.o.nodeIPs[0]
	}
	return b.lifecycle.Run(ctx, call)
}

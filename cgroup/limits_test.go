package cgroup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/cgroup"
)

// list reads "cpu=1 memory=64Mi".
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

const mi = 1 << 20

func TestLimits(t *testing.T) {
	cpuAndMemory := list("cpu", "500m", "memory", "64Mi")
	guaranteed := pod(container(cpuAndMemory, cpuAndMemory), container(cpuAndMemory, cpuAndMemory))
	sidecar := container(cpuAndMemory, cpuAndMemory)
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	quota := cgroup.Config{CPUCFSQuota: true}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		cfg  cgroup.Config
		want cgroup.Resources
	}{
		"Guaranteed is bounded by the sums": {guaranteed, quota, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(int64(100_000)), CPUPeriod: new(int64(100_000)), Memory: new(int64(128 * mi)),
		}},
		"a shorter period has a smaller quota": {guaranteed, cgroup.Config{CPUCFSQuota: true, CPUCFSPeriod: 10 * time.Millisecond}, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(int64(10_000)), CPUPeriod: new(int64(10_000)), Memory: new(int64(128 * mi)),
		}},
		"without quota the processor is not bounded": {guaranteed, cgroup.Config{}, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(128 * mi)),
		}},
		"processes are bounded if the node says so": {guaranteed, cgroup.Config{PodPidsLimit: 100}, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(128 * mi)), Pids: new(int64(100)),
		}},
		"no bound of processes is none": {pod(container(nil, nil)), cgroup.Config{PodPidsLimit: -1}, cgroup.Resources{CPUShares: new(int64(2))}},
		"BestEffort gets what is left":  {pod(container(nil, nil)), quota, cgroup.Resources{CPUShares: new(int64(2))}},
		"Burstable, one container without limits: no limit": {pod(container(list("cpu", "1"), list("cpu", "2", "memory", "64Mi")), container(nil, nil)), quota, cgroup.Resources{
			CPUShares: new(int64(1024)),
		}},
		"Burstable, memory is bounded alone if all containers bound it": {pod(container(nil, list("memory", "64Mi", "cpu", "1")), container(nil, list("memory", "32Mi"))), quota, cgroup.Resources{
			CPUShares: new(int64(2)), Memory: new(int64(96 * mi)),
		}},
		"an init container without a limit counts as well": {func() *corev1.Pod {
			p := pod(container(list("cpu", "100m"), list("cpu", "1")))
			p.Spec.InitContainers = []corev1.Container{container(nil, nil)}
			return p
		}(), quota, cgroup.Resources{CPUShares: new(int64(102))}},
		"the largest moment: init beside the sidecar before it, or the sidecar beside the containers": {func() *corev1.Pod {
			p := pod(container(cpuAndMemory, cpuAndMemory))
			big := list("cpu", "2", "memory", "16Mi")
			p.Spec.InitContainers = []corev1.Container{sidecar, container(big, big)}
			return p
		}(), quota, cgroup.Resources{
			CPUShares: new(int64(2560)), CPUQuota: new(int64(250_000)), CPUPeriod: new(int64(100_000)), Memory: new(int64(128 * mi)),
		}},
		"an ephemeral container changes nothing": {func() *corev1.Pod {
			p := guaranteed.DeepCopy()
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
			return p
		}(), cgroup.Config{}, cgroup.Resources{CPUShares: new(int64(1024)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(128 * mi))}},
		"overhead is in": {func() *corev1.Pod {
			p := guaranteed.DeepCopy()
			p.Spec.Overhead = list("cpu", "250m", "memory", "32Mi")
			return p
		}(), quota, cgroup.Resources{
			CPUShares: new(int64(1280)), CPUQuota: new(int64(125_000)), CPUPeriod: new(int64(100_000)), Memory: new(int64(160 * mi)),
		}},
		"pod-level values stand in for the sums": {func() *corev1.Pod {
			p := pod(container(list("cpu", "100m"), nil), container(nil, nil))
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "1", "memory", "32Mi"), Limits: list("cpu", "2", "memory", "64Mi")}
			return p
		}(), quota, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(int64(200_000)), CPUPeriod: new(int64(100_000)), Memory: new(int64(64 * mi)),
		}},
		"the least quota the kernel takes": {pod(container(nil, list("cpu", "1m"))), quota, cgroup.Resources{
			CPUShares: new(int64(2)), CPUQuota: new(int64(1000)), CPUPeriod: new(int64(100_000)),
		}},
		"huge pages by size, however the size is written": {func() *corev1.Pod {
			huge := list("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "4Mi", "hugepages-2048Ki", "2Mi", "hugepages-1Gi", "2Gi", "hugepages-64Ki", "64Ki", "hugepages-", "1")
			return pod(container(huge, huge))
		}(), cgroup.Config{}, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(1024 * mi)),
			Hugepages: map[string]int64{"2MB": 6 * mi, "1GB": 2048 * mi, "64KB": 64 << 10},
		}},
		"tiered reservation holds a Guaranteed pod's memory": {guaranteed, cgroup.Config{MemoryQoS: cgroup.MemoryQoS{Tiered: true, ThrottlingFactor: 0.9}}, cgroup.Resources{
			CPUShares: new(int64(1024)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(128 * mi)), MemoryMin: new(int64(128 * mi)),
		}},
		"and a Burstable pod's as long as it can": {pod(container(list("memory", "64Mi"), nil)), cgroup.Config{MemoryQoS: cgroup.MemoryQoS{Tiered: true}}, cgroup.Resources{
			CPUShares: new(int64(2)), MemoryLow: new(int64(64 * mi)),
		}},
		"a pod-level limit slows down before it is reached": {func() *corev1.Pod {
			p := pod(container(nil, nil))
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "64Mi"), Limits: list("memory", "128Mi")}
			return p
		}(), cgroup.Config{MemoryQoS: cgroup.MemoryQoS{ThrottlingFactor: 0.5}}, cgroup.Resources{
			CPUShares: new(int64(2)), Memory: new(int64(128 * mi)), MemoryHigh: new(int64(96 * mi)),
		}},
		"the class in the status wins, since a pod's class never changes": {func() *corev1.Pod {
			p := guaranteed.DeepCopy()
			p.Status.QOSClass = corev1.PodQOSBestEffort
			return p
		}(), quota, cgroup.Resources{CPUShares: new(int64(2))}},
		"absurd amounts do not wrap around": {pod(container(nil, list("cpu", "9E", "memory", "9E")), container(nil, list("cpu", "9E", "memory", "9E"))), cgroup.Config{MemoryQoS: cgroup.MemoryQoS{}}, cgroup.Resources{
			CPUShares: new(int64(2)), CPUQuota: new(cgroup.Unlimited), Memory: new(int64(1<<63 - 1)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, cgroup.Limits(tc.pod, tc.cfg)); diff != "" {
				t.Errorf("Limits (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTiers(t *testing.T) {
	both := list("cpu", "1", "memory", "64Mi")
	pods := []*corev1.Pod{
		pod(container(both, both)),
		pod(container(both, nil)),
		pod(container(list("cpu", "500m"), nil)),
		pod(container(nil, nil)),
	}
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		cfg  cgroup.Config
		want map[corev1.PodQOSClass]cgroup.Resources
	}{
		"no pods, the least shares": {nil, cgroup.Config{}, map[corev1.PodQOSClass]cgroup.Resources{
			corev1.PodQOSGuaranteed: {}, corev1.PodQOSBurstable: {CPUShares: new(int64(2))}, corev1.PodQOSBestEffort: {CPUShares: new(int64(2))},
		}},
		"Burstable pods share what they ask for": {pods, cgroup.Config{}, map[corev1.PodQOSClass]cgroup.Resources{
			corev1.PodQOSGuaranteed: {}, corev1.PodQOSBurstable: {CPUShares: new(int64(1536))}, corev1.PodQOSBestEffort: {CPUShares: new(int64(2))},
		}},
		"tiered reservation is written above the pods too": {pods, cgroup.Config{MemoryQoS: cgroup.MemoryQoS{Tiered: true}}, map[corev1.PodQOSClass]cgroup.Resources{
			corev1.PodQOSGuaranteed: {MemoryMin: new(int64(64 * mi)), MemoryLow: new(int64(64 * mi))},
			corev1.PodQOSBurstable:  {CPUShares: new(int64(1536)), MemoryLow: new(int64(64 * mi))},
			corev1.PodQOSBestEffort: {CPUShares: new(int64(2))},
		}},
		"the last pod takes the reservation with it": {nil, cgroup.Config{MemoryQoS: cgroup.MemoryQoS{Tiered: true}}, map[corev1.PodQOSClass]cgroup.Resources{
			corev1.PodQOSGuaranteed: {MemoryMin: new(int64(0)), MemoryLow: new(int64(0))},
			corev1.PodQOSBurstable:  {CPUShares: new(int64(2)), MemoryLow: new(int64(0))},
			corev1.PodQOSBestEffort: {CPUShares: new(int64(2))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, cgroup.Tiers(tc.pods, tc.cfg)); diff != "" {
				t.Errorf("Tiers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]cgroup.Config{
		"a driver nobody knows":               {Driver: "runc"},
		"a root that leads up":                {Root: "/.."},
		"a period below zero":                 {CPUCFSPeriod: -1},
		"a period the kernel has no word for": {CPUCFSPeriod: time.Nanosecond},
		"a period too long":                   {CPUCFSPeriod: time.Second + 1},
		"a factor above one":                  {MemoryQoS: cgroup.MemoryQoS{ThrottlingFactor: 1.1}},
	} {
		if _, err := cgroup.New(cfg); err == nil {
			t.Errorf("%s: New = nil error", name)
		}
	}
}

// Without PerQOS nothing is touched, on any system.
func TestWithoutPerQOS(t *testing.T) {
	for root, want := range map[string]string{"": "", "/": "", "/a": "/a"} {
		tree, err := cgroup.New(cgroup.Config{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Start(t.Context()); err != nil {
			t.Errorf("Start = %v", err)
		}
		p := pod(container(nil, nil))
		p.UID = "u"
		if parent, err := tree.Ensure(t.Context(), p); parent != want || err != nil {
			t.Errorf("root %q: Ensure = %q, %v, want %q", root, parent, err, want)
		}
		if err := tree.UpdateQOS([]*corev1.Pod{p}); err != nil {
			t.Errorf("UpdateQOS = %v", err)
		}
		if uids, err := tree.All(); len(uids) > 0 || err != nil {
			t.Errorf("All = %v, %v, want none", uids, err)
		}
		if err := tree.Remove(t.Context(), "u"); err != nil || tree.Exists("u") || tree.Version() != 0 {
			t.Errorf("Remove = %v, Exists = %v, Version = %d", err, tree.Exists("u"), tree.Version())
		}
	}
}

func BenchmarkLimits(b *testing.B) {
	both := list("cpu", "500m", "memory", "64Mi")
	p := pod()
	for i := range 10 {
		c := container(both, both)
		c.Name = fmt.Sprint(i)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	for b.Loop() {
		cgroup.Limits(p, cgroup.Config{CPUCFSQuota: true})
	}
}

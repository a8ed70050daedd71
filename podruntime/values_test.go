package podruntime_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

func TestBackoffDelays(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	type try struct {
		finished, now float64
		spec          uint64
		ok            bool
		wait          time.Duration // the delay afterwards
	}
	tests := []struct {
		name  string
		limit time.Duration
		tries []try
	}{
		{"the first restart is at once", 0, []try{{0, 0, 1, true, 10 * time.Second}}},
		{"the second waits for ten seconds after the exit", 0, []try{
			{0, 0, 1, true, 10 * time.Second}, {1, 1, 1, false, 10 * time.Second}, {1, 10.9, 1, false, 10 * time.Second}, {1, 11, 1, true, 20 * time.Second}}},
		{"an attempt that fails later has counted all the same", 0, []try{
			{0, 0, 1, true, 10 * time.Second}, {0, 10, 1, true, 20 * time.Second}, {0, 20, 1, true, 40 * time.Second}}},
		{"ten good minutes reset it", 0, []try{
			{0, 0, 1, true, 10 * time.Second}, {601, 601, 1, true, 10 * time.Second}}},
		{"just ten minutes do not", 0, []try{
			{0, 0, 1, true, 10 * time.Second}, {600, 600, 1, false, 10 * time.Second}}},
		{"another image or other resources start anew", 0, []try{
			{0, 0, 1, true, 10 * time.Second}, {1, 1, 2, true, 10 * time.Second}}},
		{"the cap holds", 15 * time.Second, []try{
			{0, 0, 1, true, 10 * time.Second}, {1, 11, 1, true, 15 * time.Second}, {12, 27, 1, true, 15 * time.Second}}},
		{"a cap below the initial delay is the delay", 3 * time.Second, []try{{0, 0, 1, true, 3 * time.Second}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := tt.limit
			if limit == 0 {
				limit = 300 * time.Second
			}
			var d podruntime.Delay
			for i, s := range tt.tries {
				var ok bool
				d, ok = d.Next(s.spec, at(s.finished), at(s.now), 10*time.Second, limit)
				if ok != s.ok || d.Wait() != s.wait {
					t.Errorf("try %d: may start = %v with %v afterwards, want %v with %v", i, ok, d.Wait(), s.ok, s.wait)
				}
				if until := at(s.finished).Add(s.wait); !ok && !d.Until().Equal(until) {
					t.Errorf("try %d waits until %v, want %v", i, d.Until(), until)
				}
			}
		})
	}
	t.Run("a finish time of another clock waits one delay at most", func(t *testing.T) {
		var d podruntime.Delay
		d, _ = d.Next(1, at(0), at(0), 10*time.Second, time.Minute)
		d, ok := d.Next(1, at(500), at(1), 10*time.Second, time.Minute)
		if ok || d.Until().After(at(11)) {
			t.Errorf("waits until %v, %v", d.Until(), ok)
		}
	})
}

func list(cpu, mem string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if mem != "" {
		l[corev1.ResourceMemory] = resource.MustParse(mem)
	}
	return l
}

func TestResources(t *testing.T) {
	const gi = 1 << 30
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		shares, quota    int64
		memory, oom      int64
	}{
		{"nothing asked", nil, nil, 2, 0, 0, 1000},
		{"half a processor", list("500m", ""), nil, 512, 0, 0, 999},
		{"a limit stands in for the request", nil, list("2", ""), 2048, 200_000, 0, 999},
		{"a request of zero does not", list("0", ""), list("2", ""), 2, 200_000, 0, 999},
		{"a tiny limit is one millisecond", nil, list("1m", ""), 2, 1000, 0, 999},
		{"a huge request is capped", list("100000", ""), nil, 262144, 0, 0, 999},
		{"memory limit", nil, list("", "1Gi"), 2, 0, gi, 750},
		{"a quarter of the node", list("", "1Gi"), nil, 2, 0, 0, 750},
		{"all of the node", list("", "4Gi"), nil, 2, 0, 0, 3},
		{"more than the node", list("", "40Gi"), nil, 2, 0, 0, 3},
		{"guaranteed", list("1", "1Gi"), list("1", "1Gi"), 1024, 100_000, gi, -997},
		{"absurd quantities", list("9223372036854775807", "9223372036854775807"), nil, 262144, 0, 0, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := pod("Always", "a")
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
			got := podruntime.LinuxResources(p, &p.Spec.Containers[0], podspec.Regular, 4*gi)
			if got.CpuShares != tt.shares || got.CpuQuota != tt.quota || got.CpuPeriod != 100_000 ||
				got.MemoryLimitInBytes != tt.memory || got.OomScoreAdj != tt.oom {
				t.Errorf("resources = %v", got)
			}
		})
	}
}

func TestOOMScores(t *testing.T) {
	const gi = 1 << 30
	p := pod("Always", "s:s", "i:i", "a", "b")
	set := func(name, mem string) *corev1.Container {
		c, _, _ := podspec.Find(p, name)
		c.Resources.Requests = list("", mem)
		return c
	}
	a, _, s, i := set("a", "2Gi"), set("b", "1Gi"), set("s", "1Mi"), set("i", "1Mi")
	for _, tt := range []struct {
		name string
		c    *corev1.Container
		kind podspec.Kind
		node int64
		want int64
	}{
		{"an app container by its request", a, podspec.Regular, 4 * gi, 500},
		{"a sidecar is no easier victim than the smallest app container", s, podspec.Init, 4 * gi, 750},
		{"a plain init container stands for itself", i, podspec.Init, 4 * gi, 999},
		{"a node of unknown size", a, podspec.Regular, 0, 999},
		{"a node beyond all sizes", a, podspec.Regular, math.MaxInt64, 999},
	} {
		if got := podruntime.LinuxResources(p, tt.c, tt.kind, tt.node).OomScoreAdj; got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	p.Spec.PriorityClassName = "system-node-critical"
	if got := podruntime.LinuxResources(p, a, podspec.Regular, 4*gi).OomScoreAdj; got != 500 {
		t.Errorf("the class without the priority: %d", got)
	}
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	if got := podruntime.LinuxResources(p, a, podspec.Regular, 4*gi).OomScoreAdj; got != -997 {
		t.Errorf("a node-critical static pod: %d", got)
	}
	p.Annotations, p.Spec.Priority = nil, ptr(int32(2_000_001_000))
	if got := podruntime.LinuxResources(p, a, podspec.Regular, 4*gi).OomScoreAdj; got != -997 {
		t.Errorf("a node-critical pod: %d", got)
	}
}

func TestPlanString(t *testing.T) {
	for _, tt := range []struct {
		plan podruntime.Plan
		want string
	}{
		{podruntime.Plan{}, "nothing to do"},
		{podruntime.Plan{Done: true, KillPod: true}, "ended"},
		{podruntime.Plan{CreateSandbox: true, Start: []podruntime.Start{{Name: "a"}}}, "create sandbox, start [a]"},
	} {
		if got := fmt.Sprint(tt.plan); got != tt.want {
			t.Errorf("%+v prints %q, want %q", tt.plan, got, tt.want)
		}
	}
}

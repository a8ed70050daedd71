package cgroup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cgroup"
)

// Systemd makes a slice from two names: its own, and the one it is in.
func TestUnitsOfSystemd(t *testing.T) {
	for name, tc := range map[string]struct {
		root         string
		qos          corev1.PodQOSClass
		parent, unit string
	}{
		"Guaranteed":   {"", corev1.PodQOSGuaranteed, "kubepods.slice", "kubepods-poda_b.slice"},
		"Burstable":    {"", corev1.PodQOSBurstable, "kubepods-burstable.slice", "kubepods-burstable-poda_b.slice"},
		"below a root": {"/r", corev1.PodQOSBestEffort, "r-kubepods-besteffort.slice", "r-kubepods-besteffort-poda_b.slice"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := cgroup.Name(cgroup.Systemd, tc.root, tc.qos, "a-b")
			if err != nil {
				t.Fatal(err)
			}
			u := cgroup.Unit(cgroup.Systemd, path, &cgroups.Resources{})
			if !u.Systemd || u.Parent != tc.parent || u.Name != tc.unit || u.Path != "" {
				t.Errorf("unit of %s = %q in %q, path %q, want %q in %q", path, u.Name, u.Parent, u.Path, tc.unit, tc.parent)
			}
		})
	}
	if u := cgroup.Unit(cgroup.Systemd, "/kubepods.slice", &cgroups.Resources{}); u.Parent != "-.slice" || u.Name != "kubepods.slice" {
		t.Errorf("the topmost slice is %q in %q, want it in -.slice", u.Name, u.Parent)
	}
	if u := cgroup.Unit(cgroup.Cgroupfs, "/kubepods/poda", &cgroups.Resources{}); u.Systemd || u.Path != "/kubepods/poda" {
		t.Errorf("cgroupfs: %+v, want a path", u)
	}
}

func TestNativeValues(t *testing.T) {
	all := cgroup.Resources{
		CPUShares: new(int64(1024)), CPUQuota: new(int64(50_000)), CPUPeriod: new(int64(100_000)),
		Memory: new(int64(64 * mi)), Pids: new(int64(10)), Hugepages: map[string]int64{"2MB": 4 * mi, "1GB": 0},
		MemoryMin: new(int64(0)), MemoryLow: new(int64(32 * mi)), MemoryHigh: new(cgroup.Unlimited),
	}
	pages := []*cgroups.HugepageLimit{{Pagesize: "1GB"}, {Pagesize: "2MB", Limit: 4 * mi}}
	for name, tc := range map[string]struct {
		v2   bool
		in   cgroup.Resources
		want cgroups.Resources
	}{
		"nothing given, nothing written": {true, cgroup.Resources{}, cgroups.Resources{}},
		"v1 has no protection of memory": {false, all, cgroups.Resources{
			CpuShares: 1024, CpuWeight: 100, CpuQuota: 50_000, CpuPeriod: 100_000, Memory: 64 * mi, PidsLimit: new(int64(10)), HugetlbLimit: pages,
		}},
		"v2": {true, all, cgroups.Resources{
			CpuWeight: 100, CpuQuota: 50_000, CpuPeriod: 100_000, Memory: 64 * mi, PidsLimit: new(int64(10)), HugetlbLimit: pages,
			Unified: map[string]string{"memory.min": "0", "memory.low": "33554432", "memory.high": "max"},
		}},
		"a period alone would take the quota away": {true, cgroup.Resources{CPUPeriod: new(int64(1000))}, cgroups.Resources{}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.SkipDevices, tc.want.SkipFreezeOnSet = true, true
			if diff := cmp.Diff(&tc.want, cgroup.Native(tc.v2, tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The weight of v2 is coarser than shares; what is read back has the same weight.
func TestSharesComeBackAsTheirWeight(t *testing.T) {
	for _, shares := range []int64{2, 3, 10, 102, 512, 1024, 4096, 100_000, 262_144} {
		back := cgroup.SharesOf(shares)
		if back > shares || cgroups.ConvertCPUSharesToCgroupV2Value(uint64(back)) != cgroups.ConvertCPUSharesToCgroupV2Value(uint64(shares)) {
			t.Errorf("%d shares come back as %d, which have another weight", shares, back)
		}
	}
}

func TestSystemdThatIsNotThere(t *testing.T) {
	if cgroup.HasSystemd() {
		return // the tree's tests run with it
	}
	_, err := cgroup.New(cgroup.Config{PerQOS: true, Driver: cgroup.Systemd})
	if err == nil || !strings.Contains(err.Error(), "cgroupfs") {
		t.Errorf("New = %v, want an error that names the other driver", err)
	}
}

func TestControllersThatAreNotMounted(t *testing.T) {
	if err := cgroup.Usable("cpu", "memory", "pids"); err != nil {
		t.Errorf("= %v, want nil: these three are enough", err)
	}
	err := cgroup.Usable("cpu", "memory")
	if err == nil || !strings.Contains(err.Error(), "mount -t cgroup -o pids cgroup /sys/fs/cgroup/pids") {
		t.Errorf("= %v, want the way out", err)
	}
}

func TestTieredReservation(t *testing.T) {
	var guaranteedBytes, burstableBytes int64
	cfg := cgroup.Config{
		MemoryQoS: cgroup.MemoryQoS{Tiered: true, ThrottlingFactor: 0.5},
		Hooks:     cgroup.Hooks{Reserved: func(g, b int64) { guaranteedBytes, burstableBytes = g, b }},
	}
	onEachDriver(t, cfg, func(t *testing.T, tree *cgroup.Tree) {
		wide := burstable("wide")
		wide.Spec.Resources = &corev1.ResourceRequirements{Requests: list("memory", "32Mi"), Limits: list("memory", "64Mi")}
		g, b, w := ensure(t, tree, guaranteed("g")), ensure(t, tree, burstable("b")), ensure(t, tree, wide)
		if err := tree.UpdateQOS([]*corev1.Pod{guaranteed("g"), burstable("b")}); err != nil {
			t.Fatal(err)
		}
		if tree.Version() != 2 {
			return // v1 has no such files, and nothing failed for that
		}
		up := func(dirs map[string]string) map[string]string { return map[string]string{"": filepath.Dir(dirs[""])} }
		for _, f := range []struct {
			dirs       map[string]string
			file, want string
		}{
			{g, "memory.min", "67108864"}, {g, "memory.low", "0"}, {g, "memory.high", "max"},
			{b, "memory.min", "0"}, {b, "memory.low", "33554432"}, {b, "memory.high", "max"},
			{w, "memory.high", "50331648"},
			{up(g), "memory.min", "67108864"}, {up(g), "memory.low", "33554432"},
			{up(b), "memory.min", "0"}, {up(b), "memory.low", "33554432"},
		} {
			if got := content(t, f.dirs, "", f.file); got != f.want {
				t.Errorf("%s/%s = %s, want %s", f.dirs[""], f.file, got, f.want)
			}
		}
		if guaranteedBytes != 64*mi || burstableBytes != 32*mi {
			t.Errorf("the hook heard %d and %d, want 64Mi and 32Mi", guaranteedBytes, burstableBytes)
		}
		if err := tree.UpdateQOS(nil); err != nil {
			t.Fatal(err)
		}
		if got := content(t, up(g), "", "memory.min"); got != "0" {
			t.Errorf("kubepods keeps %s bytes for pods that are gone", got)
		}
	})
}

// A process in the cgroup above keeps v2 from handing its controllers down.
func TestControllersThatAreNotHandedDown(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		if tree.Version() != 2 {
			return
		}
		root := filepath.Join("/kubeletkit-test-busy")
		dirs := map[string]string{"": filepath.Join("/sys/fs/cgroup", root)}
		p := start(t, "wait", dirs)
		defer func() {
			_ = p.Process.Kill()
			_ = p.Wait()
			if err := cgroups.RemovePath(dirs[""]); err != nil {
				t.Error(err)
			}
		}()
		busy, err := cgroup.New(cgroup.Config{PerQOS: true, Root: root})
		if err != nil {
			t.Fatal(err)
		}
		err = busy.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "processes of its own") || !strings.Contains(err.Error(), "memory") {
			t.Errorf("Start = %v, want an error that says who is in the way", err)
		}
	})
}

func TestControllersThatNobodyEnabled(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		if tree.Version() != 2 {
			return
		}
		dirs := ensure(t, tree, guaranteed("g"))
		below := filepath.Join(dirs[""], "a", "b")
		if err := os.MkdirAll(below, 0o755); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(below, "/sys/fs/cgroup")
		err := cgroup.Delegated("/sys/fs/cgroup", name)
		if err == nil || !strings.Contains(err.Error(), dirs[""]+"; write +cpu +memory +pids") {
			t.Errorf("= %v, want the place to mend", err)
		}
		if err := cgroup.Delegated(below, "/c"); err == nil {
			t.Error("a cgroup that does not exist is usable")
		}
		if err := os.Mkdir(filepath.Join(below, "c"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := cgroup.Delegated(below, "/c"); err == nil || !strings.Contains(err.Error(), "not delegated to "+below) {
			t.Errorf("= %v, want that the part of the tree that is visible has no controllers", err)
		}
	})
}

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cgroup"
	"github.com/kubeletkit/kubeletkit/observed"
)

// named gives the pod a UID.
func named(uid string, p *corev1.Pod) *corev1.Pod {
	p.UID = types.UID(uid)
	return p
}

func guaranteed(uid string) *corev1.Pod {
	r := list("cpu", "500m", "memory", "64Mi")
	return named(uid, pod(container(r, r)))
}

func bestEffort(uid string) *corev1.Pod { return named(uid, pod(container(nil, nil))) }

func burstable(uid string) *corev1.Pod {
	return named(uid, pod(container(list("cpu", "250m", "memory", "32Mi"), list("memory", "64Mi"))))
}

func ensure(t *testing.T, tree *cgroup.Tree, p *corev1.Pod) (dirs map[string]string) {
	t.Helper()
	parent, err := tree.Ensure(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return tree.Dirs(parent)
}

// content reads a file of the kernel's: v1 has it in the controller's directory.
func content(t *testing.T, dirs map[string]string, v1, v2 string) string {
	t.Helper()
	name := v2
	dir, unified := dirs[""], len(dirs) == 1
	if !unified {
		controller, _, _ := strings.Cut(v1, ".")
		name, dir = v1, dirs[controller]
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(text))
}

func exist(dirs map[string]string) (n int) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			n++
		}
	}
	return n
}

// TestWhatIsMounted says on what the tests below ran.
func TestWhatIsMounted(t *testing.T) {
	tree, err := cgroup.New(cgroup.Config{PerQOS: true})
	if err != nil {
		t.Logf("NOT RUN: %v", err)
		return
	}
	if v := tree.Version(); v == 2 {
		t.Logf("cgroup v2, systemd %v, huge pages %v", cgroup.HasSystemd(), tree.PageSizes())
	} else {
		t.Logf("cgroup v%d, systemd %v, huge pages %v; the same tests on v2: cd test && go run ./vm", v, cgroup.HasSystemd(), tree.PageSizes())
	}
	if want := os.Getenv(must); want != "" && want != fmt.Sprint("v", tree.Version()) {
		t.Errorf("cgroup v%d is mounted, want %s", tree.Version(), want)
	}
}

func TestPodsGetTheirLimits(t *testing.T) {
	cfg := cgroup.Config{CPUCFSQuota: true, PodPidsLimit: 500}
	onEachDriver(t, cfg, func(t *testing.T, tree *cgroup.Tree) {
		for _, p := range []*corev1.Pod{guaranteed("g-1"), burstable("b-1"), bestEffort("e_1")} {
			ensure(t, tree, p)
			got, err := tree.Read(observed.UID(p.UID))
			if err != nil {
				t.Fatal(err)
			}
			want := cgroup.Limits(p, cfg)
			shown := cgroup.Resources{CPUQuota: new(cgroup.Unlimited), CPUPeriod: new(int64(100_000)), Memory: new(cgroup.Unlimited)}
			shown.CPUShares, shown.Pids = want.CPUShares, want.Pids
			if want.CPUQuota != nil {
				shown.CPUQuota, shown.CPUPeriod = want.CPUQuota, want.CPUPeriod
			}
			if want.Memory != nil {
				shown.Memory = want.Memory
			}
			if tree.Version() == 2 {
				shown.CPUShares = new(cgroup.SharesOf(*want.CPUShares))
				shown.MemoryMin, shown.MemoryLow, shown.MemoryHigh = new(int64(0)), new(int64(0)), new(cgroup.Unlimited)
			}
			if diff := cmp.Diff(shown, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", p.UID, diff)
			}
		}
	})
}

// The files themselves, so that the way to read them is not all there is.
func TestKernelFiles(t *testing.T) {
	onEachDriver(t, cgroup.Config{CPUCFSQuota: true, PodPidsLimit: 500}, func(t *testing.T, tree *cgroup.Tree) {
		dirs := ensure(t, tree, guaranteed("g"))
		for _, f := range []struct{ v1, is1, v2, is2 string }{
			{"cpu.shares", "512", "cpu.weight", "59"},
			{"cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"},
			{"memory.limit_in_bytes", "67108864", "memory.max", "67108864"},
			{"pids.max", "500", "pids.max", "500"},
		} {
			want := f.is1
			if tree.Version() == 2 {
				want = f.is2
			}
			if got := content(t, dirs, f.v1, f.v2); got != want {
				t.Errorf("%s, %s = %q, want %q", f.v1, f.v2, got, want)
			}
		}
	})
}

func TestHugePages(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		r := list("cpu", "1", "memory", "64Mi", "hugepages-2Mi", "4Mi")
		dirs := ensure(t, tree, named("h", pod(container(r, r))))
		if !slices.Contains(tree.PageSizes(), "2MB") {
			return // Ensure did not fail for it, which is all it promises here
		}
		plain := ensure(t, tree, guaranteed("plain"))
		for _, c := range []struct {
			dirs map[string]string
			want string
		}{{dirs, "4194304"}, {plain, "0"}} {
			if got := content(t, c.dirs, "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"); got != c.want {
				t.Errorf("huge pages of 2 MiB = %s, want %s", got, c.want)
			}
		}
	})
}

func TestStartTwiceAndOverAnEarlierNode(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		ensure(t, tree, burstable("b"))
		if err := tree.UpdateQOS([]*corev1.Pod{burstable("b")}); err != nil {
			t.Fatal(err)
		}
		if err := tree.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if uids, err := tree.All(); err != nil || len(uids) != 1 {
			t.Errorf("All = %v, %v, want the pod that was there", uids, err)
		}
	})
}

func TestStartNeedsItsRoot(t *testing.T) {
	tree, err := cgroup.New(cgroup.Config{PerQOS: true, Root: fmt.Sprintf("/kubeletkit-test-missing-%d", os.Getpid())})
	if err != nil {
		t.Logf("NOT RUN: %v", err)
		return
	}
	t.Cleanup(func() { _ = tree.ScrapTop() })
	if err := tree.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "cgroupRoot") {
		t.Errorf("Start = %v, want an error that names cgroupRoot", err)
	}
	if exist(tree.Dirs(tree.Top())) > 0 {
		t.Errorf("Start made %s", tree.Top())
	}
}

func TestAnOccupiedCgroupKeepsItsValues(t *testing.T) {
	onEachDriver(t, cgroup.Config{CPUCFSQuota: true}, func(t *testing.T, tree *cgroup.Tree) {
		p := guaranteed("g")
		dirs := ensure(t, tree, p)
		memory := func() int64 {
			r, err := tree.Read("g")
			if err != nil {
				t.Fatal(err)
			}
			return *r.Memory
		}
		resized := cgroup.Resources{Memory: new(int64(128 * mi))}
		if err := tree.Update(t.Context(), p, resized); err != nil {
			t.Fatal(err)
		}
		if got := memory(); got != 128*mi {
			t.Fatalf("memory = %d after Update, want 128Mi", got)
		}
		// Nothing is in it yet: whoever made it may have died before the limits.
		ensure(t, tree, p)
		if got := memory(); got != 64*mi {
			t.Errorf("memory = %d, want an empty cgroup to get its limits", got)
		}
		start(t, "wait", below(dirs, "sandbox"))
		if err := tree.Update(t.Context(), p, resized); err != nil {
			t.Fatal(err)
		}
		ensure(t, tree, p)
		if got := memory(); got != 128*mi {
			t.Errorf("memory = %d, want what Update wrote while the pod runs", got)
		}
	})
}

func TestUpdateWritesOnlyWhatIsGiven(t *testing.T) {
	onEachDriver(t, cgroup.Config{CPUCFSQuota: true, PodPidsLimit: 100}, func(t *testing.T, tree *cgroup.Tree) {
		p := guaranteed("g")
		ensure(t, tree, p)
		before, err := tree.Read("g")
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			write  cgroup.Resources
			expect func(*cgroup.Resources)
		}{
			{cgroup.Resources{}, func(*cgroup.Resources) {}},
			{cgroup.Resources{CPUPeriod: new(int64(50_000))}, func(*cgroup.Resources) {}}, // not without a quota
			{cgroup.Resources{CPUQuota: new(int64(150_000)), CPUPeriod: new(int64(100_000))}, func(r *cgroup.Resources) { r.CPUQuota = new(int64(150_000)) }},
			{cgroup.Resources{CPUQuota: new(cgroup.Unlimited)}, func(r *cgroup.Resources) { r.CPUQuota = new(cgroup.Unlimited) }},
			{cgroup.Resources{CPUShares: new(int64(2))}, func(r *cgroup.Resources) { r.CPUShares = new(int64(2)) }},
			{cgroup.Resources{Memory: new(int64(256 * mi))}, func(r *cgroup.Resources) { r.Memory = new(int64(256 * mi)) }},
			{cgroup.Resources{Memory: new(cgroup.Unlimited)}, func(r *cgroup.Resources) { r.Memory = new(cgroup.Unlimited) }},
			{cgroup.Resources{Pids: new(cgroup.Unlimited)}, func(r *cgroup.Resources) { r.Pids = new(cgroup.Unlimited) }},
		} {
			if err := tree.Update(t.Context(), p, step.write); err != nil {
				t.Fatalf("Update: %v", err)
			}
			step.expect(&before)
			after, err := tree.Read("g")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Fatalf("after an update (-want +got):\n%s", diff)
			}
		}
	})
}

func TestTheLimitHolds(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		r := list("cpu", "1", "memory", "32Mi")
		dirs := ensure(t, tree, named("g", pod(container(r, r))))
		glutton := start(t, "eat 128", below(dirs, "app"))
		said, _ := glutton.out.ReadString('\n')
		if err := glutton.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("128 MiB in a pod of 32: said %q, ended with %v, want it killed", said, err)
		}
		modest := start(t, "eat 1", below(dirs, "app"))
		if said, _ := modest.out.ReadString('\n'); !strings.HasPrefix(said, "sated") {
			t.Errorf("1 MiB in a pod of 32: said %q", said)
		}
	})
}

func TestUsage(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		if _, err := tree.Usage("nobody"); !errors.Is(err, cgroup.ErrNotFound) {
			t.Errorf("Usage of no pod = %v, want ErrNotFound", err)
		}
		if err := tree.Update(t.Context(), guaranteed("nobody"), cgroup.Resources{}); !errors.Is(err, cgroup.ErrNotFound) {
			t.Errorf("Update of no pod = %v, want ErrNotFound", err)
		}
		if _, err := tree.Read("nobody"); !errors.Is(err, cgroup.ErrNotFound) {
			t.Errorf("Read of no pod = %v, want ErrNotFound", err)
		}
		dirs := ensure(t, tree, guaranteed("g"))
		start(t, "wait", below(dirs, "app"))
		if n, err := tree.Usage("g"); err != nil || n <= 0 || n > 64*mi {
			t.Errorf("Usage = %d, %v, want more than nothing and less than the limit", n, err)
		}
	})
}

func TestRemove(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		dirs := ensure(t, tree, bestEffort("gone"))
		stays := ensure(t, tree, bestEffort("stays"))
		// What a foreign hand put below the pod, two deep and running.
		foreign := start(t, "wait", below(below(dirs, "foreign.scope"), "deep"))
		neighbour := start(t, "wait", below(stays, "app"))
		if err := tree.Remove(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		if err := foreign.Wait(); err == nil {
			t.Error("the process in the removed cgroup ended by itself")
		}
		if n := exist(dirs); n > 0 || tree.Exists("gone") {
			t.Errorf("%d directories are left of the removed cgroup", n)
		}
		if exist(stays) == 0 || neighbour.Process.Signal(syscall.Signal(0)) != nil || !tree.Exists("stays") {
			t.Error("the pod beside it was touched")
		}
		if err := tree.Remove(t.Context(), "gone"); err != nil {
			t.Errorf("Remove of what is gone = %v, want nil", err)
		}
		for _, uid := range []observed.UID{"", "..", "../besteffort", "x/../podstays"} {
			if err := tree.Remove(t.Context(), uid); err == nil {
				t.Errorf("Remove(%q) = nil, want an error", uid)
			}
		}
		if exist(stays) == 0 {
			t.Error("a UID that is none led to another pod")
		}
	})
}

func TestRemoveWhatIsFrozen(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		dirs := ensure(t, tree, bestEffort("cold"))
		app := below(dirs, "app")
		frozen := start(t, "wait", app)
		file, word, warm := filepath.Join(app["freezer"], "freezer.state"), "FROZEN", "THAWED"
		if tree.Version() == 2 {
			file, word, warm = filepath.Join(app[""], "cgroup.freeze"), "1", "0"
		}
		// Else a test that failed could not even be ended.
		t.Cleanup(func() { _ = os.WriteFile(file, []byte(warm), 0) })
		if err := os.WriteFile(file, []byte(word), 0); err != nil {
			t.Fatal(err)
		}
		if err := tree.Remove(t.Context(), "cold"); err != nil {
			t.Fatal(err)
		}
		if err := frozen.Wait(); err == nil || exist(dirs) > 0 {
			t.Errorf("the frozen process ended with %v, %d directories are left", err, exist(dirs))
		}
	})
}

func TestHalfACgroup(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		p := guaranteed("half")
		dirs := ensure(t, tree, p)
		for controller, dir := range dirs {
			if controller == "memory" {
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
		if uids, err := tree.All(); err != nil || !slices.Contains(uids, "half") || !tree.Exists("half") {
			t.Errorf("All = %v, %v, want what is left of the cgroup to be found", uids, err)
		}
		ensure(t, tree, p)
		if r, err := tree.Read("half"); err != nil || *r.Memory != 64*mi {
			t.Errorf("Read = %v, %v, want the whole cgroup with its limits", r.Memory, err)
		}
	})
}

func TestAll(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		var want []observed.UID
		for _, p := range []*corev1.Pod{guaranteed("g-1"), burstable("b_1"), bestEffort("é.slice"), bestEffort("e-1")} {
			ensure(t, tree, p)
			want = append(want, observed.UID(p.UID))
		}
		// A directory that no pod has made.
		tier := filepath.Dir(tree.Dirs(must1(tree.Ensure(t.Context(), bestEffort("e-1"))))[memoryOf(tree)])
		if err := os.Mkdir(filepath.Join(tier, "other"), 0o755); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		got, err := tree.All()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("All: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestBusyIsWhereSomethingRuns(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		start(t, "wait", below(ensure(t, tree, guaranteed("busy")), "container"))
		ensure(t, tree, burstable("empty"))
		for uid, want := range map[observed.UID]bool{"busy": true, "empty": false, "none": false} {
			if got, err := tree.Busy(uid); err != nil || got != want {
				t.Errorf("Busy(%s) = %v, %v, want %v", uid, got, err, want)
			}
		}
	})
}

func must1(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

func memoryOf(tree *cgroup.Tree) string {
	if tree.Version() == 2 {
		return ""
	}
	return "memory"
}

func TestQOSTiers(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		tier := func(p *corev1.Pod) map[string]string {
			return tree.Dirs(filepath.Dir(must1(tree.Ensure(t.Context(), p))))
		}
		b, e := tier(burstable("b")), tier(bestEffort("e"))
		if got := content(t, e, "cpu.shares", "cpu.weight"); got != "2" && got != "1" {
			t.Errorf("besteffort starts with %s, want the least there is", got)
		}
		for _, step := range []struct {
			pods   []*corev1.Pod
			v1, v2 string
		}{
			{[]*corev1.Pod{guaranteed("g"), burstable("b"), bestEffort("e")}, "256", "35"},
			{[]*corev1.Pod{burstable("b"), burstable("c")}, "512", "59"},
			{nil, "2", "1"},
		} {
			if err := tree.UpdateQOS(step.pods); err != nil {
				t.Fatal(err)
			}
			want, least := step.v1, "2"
			if tree.Version() == 2 {
				want, least = step.v2, "1"
			}
			if got := content(t, b, "cpu.shares", "cpu.weight"); got != want {
				t.Errorf("burstable has %s, want %s", got, want)
			}
			if got := content(t, e, "cpu.shares", "cpu.weight"); got != least {
				t.Errorf("besteffort has %s, want %s", got, least)
			}
		}
	})
}

// An agent that found itself in a pod's cgroup would be the first it kills.
func TestRemoveSparesTheAgent(t *testing.T) {
	onEachDriver(t, cgroup.Config{}, func(t *testing.T, tree *cgroup.Tree) {
		controller := "pids"
		if tree.Version() == 2 {
			controller = ""
		}
		dir := ensure(t, tree, bestEffort("self"))[controller]
		own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		home := tree.Dirs(own[controller])[controller]
		if err := cgroups.WriteCgroupProc(dir, os.Getpid()); err != nil {
			t.Fatal(err)
		}
		err = tree.Remove(t.Context(), "self")
		if err := cgroups.WriteCgroupProc(home, os.Getpid()); err != nil {
			t.Fatal(err)
		}
		if err == nil || !strings.Contains(err.Error(), "this agent") {
			t.Errorf("Remove = %v, want an error that says who is in it", err)
		}
		if err := tree.Remove(t.Context(), "self"); err != nil {
			t.Errorf("Remove afterwards = %v", err)
		}
	})
}

// Workers of different pods do not take turns.
func TestManyPodsLeaveNothing(t *testing.T) {
	var done, failed atomic.Int64
	cfg := cgroup.Config{Hooks: cgroup.Hooks{Done: func(op string, _ time.Duration, err error) {
		if op == "destroy" {
			done.Add(1)
		}
		if err != nil {
			failed.Add(1)
		}
	}}}
	onEachDriver(t, cfg, func(t *testing.T, tree *cgroup.Tree) {
		const workers, each = 6, 10
		done.Store(0)
		failed.Store(0)
		inParallel := func(do func(uid string) error) {
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for i := range each {
						if err := do(fmt.Sprint("pod-", w, "-", i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		}
		inParallel(func(uid string) error {
			_, err := tree.Ensure(t.Context(), burstable(uid))
			return errors.Join(err, tree.UpdateQOS([]*corev1.Pod{burstable(uid)}))
		})
		if uids, err := tree.All(); err != nil || len(uids) != workers*each {
			t.Fatalf("All = %d pods, %v, want %d", len(uids), err, workers*each)
		}
		inParallel(func(uid string) error { return tree.Remove(t.Context(), observed.UID(uid)) })
		if left, err := tree.All(); err != nil || len(left) > 0 {
			t.Errorf("All = %v, %v, want none", left, err)
		}
		if done.Load() != workers*each || failed.Load() > 0 {
			t.Errorf("the hook heard of %d removals and %d failures, want %d and none", done.Load(), failed.Load(), workers*each)
		}
	})
}

package containergc_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/containergc"
	"github.com/kubeletkit/kubeletkit/observed"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// pod builds a pod from words: "app1 exited" is the instance of app created one
// minute after t0, "s2 ready" and "s2 dead" are sandboxes. The third word of a
// container is its sandbox, s0 by default.
func pod(uid string, words ...string) observed.Pod {
	p := observed.Pod{UID: observed.UID(uid), Namespace: "default", Name: uid}
	for _, w := range words {
		f := strings.Fields(w)
		n := f[0][len(f[0])-1] - '0'
		name, at := f[0][:len(f[0])-1], t0.Add(time.Duration(n)*time.Minute)
		if f[1] == "ready" || f[1] == "dead" {
			p.Sandboxes = append(p.Sandboxes, observed.Sandbox{ID: observed.SandboxID(uid + "/" + f[0]), Attempt: uint32(n), Ready: f[1] == "ready", CreatedAt: at})
			continue
		}
		c := observed.Container{ID: observed.ContainerID(uid + "/" + f[0]), Name: name, CreatedAt: at, Sandbox: observed.SandboxID(uid + "/s0"), RestartCount: int(n)}
		for s := observed.Unknown; s <= observed.Exited; s++ {
			if s.String() == f[1] {
				c.State = s
			}
		}
		if len(f) > 2 {
			c.Sandbox = observed.SandboxID(uid + "/" + f[2])
		}
		p.Containers = append(p.Containers, c)
	}
	p.Sort()
	return p
}

func ids(r containergc.Removal) string {
	var list []string
	for _, c := range r.Containers {
		list = append(list, string(c.ID))
	}
	for _, s := range r.Sandboxes {
		list = append(list, string(s.ID))
	}
	return strings.Join(list, " ")
}

func TestPlan(t *testing.T) {
	std := containergc.DefaultPolicy()
	policy := func(perName, total int) containergc.Policy {
		return containergc.Policy{MaxPerPodContainer: perName, MaxContainers: total}
	}
	crash := pod("a", "s0 ready", "app1 exited", "app2 exited", "app3 exited", "app4 running")
	cases := []struct {
		name     string
		policy   containergc.Policy
		pods     []observed.Pod
		gone     string // UIDs that are removable
		notReady bool
		want     string
	}{
		{name: "nothing there", policy: std},
		{name: "one dead instance is kept beside the running one", policy: std, pods: []observed.Pod{crash}, want: "a/app1 a/app2"},
		{name: "the zero policy is the default one", pods: []observed.Pod{crash}, want: "a/app1 a/app2"},
		{name: "two are kept", policy: policy(2, -1), pods: []observed.Pod{crash}, want: "a/app1"},
		{name: "none is kept", policy: policy(0, -1), pods: []observed.Pod{crash}, want: "a/app1 a/app2 a/app3"},
		{name: "no limit", policy: policy(-1, -1), pods: []observed.Pod{crash}},
		{name: "names and pods are counted apart", policy: std,
			pods: []observed.Pod{pod("a", "s0 ready", "app1 exited", "init1 exited"), pod("b", "s0 ready", "app1 exited")}},
		{name: "a young container is spared, and not counted", policy: containergc.Policy{MinAge: 7 * time.Minute, MaxPerPodContainer: 1, MaxContainers: -1},
			pods: []observed.Pod{crash}, want: "a/app1 a/app2"},
		{name: "all are young", policy: containergc.Policy{MinAge: time.Hour, MaxPerPodContainer: 0, MaxContainers: -1}, pods: []observed.Pod{crash}, gone: "a"},
		{name: "unknown and old created ones are dead", policy: std,
			pods: []observed.Pod{pod("a", "s0 ready", "app1 created", "app2 unknown", "app3 exited")}, want: "a/app1 a/app2"},
		{name: "a container about to start is not", policy: policy(0, -1),
			pods: []observed.Pod{pod("a", "s0 ready", "app1 exited", "app2 created")}, want: "a/app1"},

		{name: "the total is shared evenly, one each at least", policy: policy(-1, 2),
			pods: []observed.Pod{pod("a", "s0 ready", "app1 exited", "app2 exited", "app5 exited"), pod("b", "s0 ready", "app3 exited")}, want: "a/app1 a/app2"},
		{name: "then the oldest go", policy: policy(-1, 1),
			pods: []observed.Pod{pod("a", "s0 ready", "app1 exited", "app5 exited"), pod("b", "s0 ready", "app3 exited")}, want: "a/app1 b/app3"},
		{name: "both limits", policy: policy(1, 1),
			pods: []observed.Pod{pod("a", "s0 ready", "app1 exited", "app5 exited"), pod("b", "s0 ready", "app3 exited")}, want: "a/app1 b/app3"},
		{name: "a total of none", policy: policy(-1, 0), pods: []observed.Pod{crash}, want: "a/app1 a/app2 a/app3"},

		{name: "of a removable pod all goes that does not run", policy: std, gone: "a",
			pods: []observed.Pod{pod("a", "s0 dead", "app1 exited", "app2 created", "b3 unknown"), pod("b", "s0 dead", "app1 exited")},
			want: "a/app1 a/app2 a/b3 a/s0"},
		{name: "what runs stays, and its sandbox", policy: std, gone: "a",
			pods: []observed.Pod{pod("a", "s0 dead", "s1 dead", "app1 exited s0", "app2 running s1")}, want: "a/app1 a/s0"},
		{name: "before all sources are heard nothing is removable", policy: std, gone: "a", notReady: true,
			pods: []observed.Pod{pod("a", "s0 dead", "app1 exited", "app2 exited")}, want: "a/app1"},

		{name: "the newest sandbox of a pod that stays is kept", policy: std, pods: []observed.Pod{pod("a", "s0 dead", "s1 dead", "s2 dead")}, want: "a/s0 a/s1"},
		{name: "a sandbox with a container is kept", policy: std,
			pods: []observed.Pod{pod("a", "s0 dead", "s1 dead", "s2 ready", "app1 exited s1")}, want: "a/s0"},
		{name: "unless the container goes", policy: std,
			pods: []observed.Pod{pod("a", "s0 dead", "s1 dead", "s2 ready", "app1 exited s0", "app2 exited s1")}, want: "a/app1 a/s0"},
		{name: "a ready sandbox is never removed", policy: std, gone: "a", pods: []observed.Pod{pod("a", "s0 ready", "s1 ready")}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := containergc.Plan(containergc.Input{
				Now: t0.Add(10 * time.Minute), Pods: c.pods, Policy: c.policy, AllSourcesReady: !c.notReady,
				Removable: func(uid observed.UID) bool {
					if c.notReady {
						t.Error("Removable was asked too early")
					}
					return c.gone != "" && strings.Contains(c.gone, string(uid))
				},
			})
			if ids(got) != c.want {
				t.Errorf("got  %s\nwant %s", ids(got), c.want)
			}
		})
	}
	if got := containergc.Plan(containergc.Input{Now: t0.Add(-time.Hour), Pods: []observed.Pod{crash}}); len(got.Containers) != 2 {
		t.Errorf("after the clock was set back: %v", got)
	}
}

func TestExtra(t *testing.T) {
	p := pod("a", "s0 ready", "app1 exited", "app2 exited", "app3 running", "b1 exited", "b2 unknown")
	cases := []struct {
		perName int
		all     bool
		want    string
	}{
		{1, false, "a/app1"},
		{0, false, "a/app1"}, // the newest exit code is still to be reported
		{2, false, ""},
		{-1, false, ""},
		{1, true, "a/app2 a/app1 a/b1"},
		{-1, true, "a/app2 a/app1 a/b1"},
	}
	for _, c := range cases {
		got := ids(containergc.Removal{Containers: containergc.Extra(p, containergc.Policy{MaxPerPodContainer: c.perName, MaxContainers: -1}, c.all)})
		if got != c.want {
			t.Errorf("Extra(%d, %v) = %s, want %s", c.perName, c.all, got, c.want)
		}
	}
}

// TestPlanInvariants checks what must hold for whatever a runtime has.
func TestPlanInvariants(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		var pods []observed.Pod
		for i := range rnd.IntN(5) {
			var words []string
			for n := range rnd.IntN(4) {
				words = append(words, fmt.Sprintf("s%d %s", n, []string{"ready", "dead"}[rnd.IntN(2)]))
			}
			for n := range rnd.IntN(8) {
				words = append(words, fmt.Sprintf("%s%d %v s%d", []string{"app", "b"}[rnd.IntN(2)], n, observed.State(rnd.IntN(4)), rnd.IntN(4)))
			}
			pods = append(pods, pod(fmt.Sprint(i), words...))
		}
		in := containergc.Input{Now: t0.Add(time.Hour), Pods: pods, AllSourcesReady: true,
			Policy:    containergc.Policy{MaxPerPodContainer: rnd.IntN(4) - 1, MaxContainers: rnd.IntN(10) - 1},
			Removable: func(uid observed.UID) bool { return uid == "1" || uid == "3" }}
		r := containergc.Plan(in)
		gone := map[observed.ContainerID]bool{}
		for _, c := range r.Containers {
			if c.State == observed.Running || gone[c.ID] {
				t.Fatalf("%v is removed although it runs, or twice", c)
			}
			gone[c.ID] = true
		}
		for _, s := range r.Sandboxes {
			if s.Ready {
				t.Fatalf("ready sandbox %s is removed", s.ID)
			}
			for _, p := range pods {
				for _, c := range p.Containers {
					if c.Sandbox == s.ID && !gone[c.ID] {
						t.Fatalf("sandbox %s is removed with %s in it", s.ID, c.ID)
					}
				}
			}
		}
	}
}

func TestRemovalString(t *testing.T) {
	r := containergc.Plan(containergc.Input{Now: t0.Add(time.Hour), Pods: []observed.Pod{pod("a", "s0 dead", "s1 ready", "app1 exited", "app2 exited s1")}})
	want := "container app of pod default/a: exited, a/app1\nsandbox of pod default/a: attempt 0, a/s0\n"
	if diff := cmp.Diff(want, r.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkPlan(b *testing.B) {
	var pods []observed.Pod
	for i := range 100 {
		p := observed.Pod{UID: observed.UID(fmt.Sprint(i)), Namespace: "default", Name: fmt.Sprint(i),
			Sandboxes: []observed.Sandbox{{ID: observed.SandboxID(fmt.Sprint(i)), Ready: true}}}
		for n := range 200 {
			p.Containers = append(p.Containers, observed.Container{ID: observed.ContainerID(fmt.Sprint(i, "-", n)), Name: "app", State: observed.Exited,
				Sandbox: p.Sandboxes[0].ID, CreatedAt: t0.Add(-time.Duration(n) * time.Second)})
		}
		pods = append(pods, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := containergc.Plan(containergc.Input{Now: t0, Pods: pods}); len(r.Containers) != 100*199 {
			b.Fatalf("%d containers", len(r.Containers))
		}
	}
}

func ExamplePlan() {
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	web := observed.Pod{
		UID: "0a1b", Namespace: "default", Name: "web",
		Sandboxes: []observed.Sandbox{{ID: "sandbox", Ready: true}},
		Containers: []observed.Container{ // newest first
			{ID: "c3", Name: "app", State: observed.Running, CreatedAt: at(3)},
			{ID: "c2", Name: "app", State: observed.Exited, CreatedAt: at(2)},
			{ID: "c1", Name: "app", State: observed.Exited, CreatedAt: at(1)},
		},
	}
	fmt.Print(containergc.Plan(containergc.Input{Now: at(4), Pods: []observed.Pod{web}}))
	// Output:
	// container app of pod default/web: exited, c1
}

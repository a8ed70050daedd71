package allocation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/observed"
)

func at(second int) time.Time { return time.Unix(int64(1_000_000+second), 0) }

// needs makes resources out of "cpu request/limit memory request/limit", such as
// "1/2 64Mi/128Mi". A dash is none.
func needs(text string) corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q string) {
		if q == "-" {
			return
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(q)
	}
	for i, pair := range strings.Fields(text) {
		name := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[i]
		request, limit, _ := strings.Cut(pair, "/")
		set(&r.Requests, name, request)
		set(&r.Limits, name, limit)
	}
	return r
}

// show is the opposite of needs.
func show(r corev1.ResourceRequirements) string {
	one := func(list corev1.ResourceList, name corev1.ResourceName) string {
		q, ok := list[name]
		if !ok {
			return "-"
		}
		return q.String()
	}
	return fmt.Sprintf("%s/%s %s/%s", one(r.Requests, corev1.ResourceCPU), one(r.Limits, corev1.ResourceCPU),
		one(r.Requests, corev1.ResourceMemory), one(r.Limits, corev1.ResourceMemory))
}

// pod makes generation 1 of a pod with a container per text, c0, c1 and so on.
func pod(uid string, texts ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid), Generation: 1}}
	for i, text := range texts {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: needs(text)})
	}
	return p
}

// resized is the next generation of a pod.
func resized(p *corev1.Pod, texts ...string) *corev1.Pod {
	next := p.DeepCopy()
	next.Generation++
	for i, text := range texts {
		next.Spec.Containers[i].Resources = needs(text)
	}
	return next
}

// node is a room with a memory of what its hooks said.
type node struct {
	*allocation.Allocations
	t    *testing.T
	dir  string
	said []string
}

func newNode(t *testing.T, dir string) *node {
	t.Helper()
	n := &node{t: t, dir: dir}
	n.open(allocation.Config{Dir: dir})
	return n
}

func (n *node) open(cfg allocation.Config) {
	n.t.Helper()
	cfg.Hooks = allocation.Hooks{
		Event: func(p *corev1.Pod, eventType, reason, message string) {
			words, text, _ := strings.Cut(message, ": ")
			var got struct {
				Generation int64  `json:"generation"`
				Error      string `json:"error"`
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				n.t.Errorf("event %q: %v", message, err)
			}
			n.said = append(n.said, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %d %s", p.UID, eventType, reason, words, got.Generation, got.Error)))
		},
		Requested: func(p *corev1.Pod, resource, requirement, operation string) {
			n.said = append(n.said, fmt.Sprintf("%s asks: %s %s %s", p.UID, operation, resource, requirement))
		},
		Decided: func(d allocation.Decision) {
			n.said = append(n.said, fmt.Sprintf("%s: %s after %v, deferred %v", d.Pod.UID, d.Outcome, d.Waited, d.WasDeferred))
		},
		Ended: func(p *corev1.Pod, took time.Duration, err error) {
			n.said = append(n.said, fmt.Sprintf("%s ended after %v: %v", p.UID, took, err))
		},
	}
	var err error
	if n.Allocations, err = allocation.New(cfg); err != nil {
		n.t.Fatal(err)
	}
}

// set hands the pod over and returns whether it waits.
func (n *node) set(p *corev1.Pod, second int) bool {
	n.t.Helper()
	waits, err := n.Set(p, at(second))
	if err != nil {
		n.t.Fatal(err)
	}
	return waits
}

func (n *node) wantSaid(want ...string) {
	n.t.Helper()
	if !slices.Equal(n.said, want) {
		n.t.Errorf("said:\n  %s\nwant:\n  %s", strings.Join(n.said, "\n  "), strings.Join(want, "\n  "))
	}
	n.said = nil
}

// wantRuns compares what the pod's containers have as this node runs it.
func (n *node) wantRuns(p *corev1.Pod, want ...string) {
	n.t.Helper()
	var got []string
	for _, c := range n.Apply(p).Spec.Containers {
		got = append(got, show(c.Resources))
	}
	if !slices.Equal(got, want) {
		n.t.Errorf("runs with %v, want %v", got, want)
	}
}

func (n *node) wantConditions(uid observed.UID, want ...string) {
	n.t.Helper()
	var got []string
	for _, c := range n.Conditions(uid) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d %s %s", strings.TrimPrefix(string(c.Type), "PodResize"), c.Status, c.ObservedGeneration, c.Reason, c.Message)))
	}
	if !slices.Equal(got, want) {
		n.t.Errorf("conditions = %q, want %q", got, want)
	}
}

func yes(*corev1.Pod) allocation.Answer { return allocation.Answer{OK: true} }

func later(message string) func(*corev1.Pod) allocation.Answer {
	return func(*corev1.Pod) allocation.Answer { return allocation.Answer{Message: message} }
}

func never(message string) func(*corev1.Pod) allocation.Answer {
	return func(*corev1.Pod) allocation.Answer { return allocation.Answer{Infeasible: true, Message: message} }
}

func (n *node) evaluate(second int, admit func(*corev1.Pod) allocation.Answer) []allocation.Decision {
	n.t.Helper()
	all, err := n.Evaluate(at(second), admit)
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func runs(names ...string) observed.Pod {
	var seen observed.Pod
	for _, name := range names {
		seen.Containers = append(seen.Containers, observed.Container{Name: name, State: observed.Running})
	}
	return seen
}

// give records what a pod's containers were given, as a runtime that accepts all.
func (n *node) give(p *corev1.Pod) {
	n.t.Helper()
	for _, c := range p.Spec.Containers {
		if err := n.SetActuated(observed.UID(p.UID), c.Name, c.Resources); err != nil {
			n.t.Fatal(err)
		}
	}
}

func TestTheLifeOfAResize(t *testing.T) {
	n, p := newNode(t, t.TempDir()), pod("u", "1/2 1Gi/1Gi", "1/1 1Gi/1Gi")
	if n.set(p, 0) || n.Apply(p) != p {
		t.Error("a new pod waits for something")
	}
	if r, ok := n.Actuated("u", "c0"); !ok || show(r) != "1/2 1Gi/1Gi" {
		t.Errorf("actuated = %s, %v", show(r), ok)
	}
	n.wantSaid()

	next := resized(p, "2/2 1Gi/2Gi", "1/1 1Gi/1Gi")
	if !n.set(next, 10) {
		t.Error("the resize does not wait")
	}
	n.wantRuns(next, "1/2 1Gi/1Gi", "1/1 1Gi/1Gi")
	if got := show(next.Spec.Containers[0].Resources); got != "2/2 1Gi/2Gi" {
		t.Errorf("the desired pod was changed: %s", got)
	}
	n.wantConditions("u")
	n.wantSaid("u asks: increase cpu requests", "u asks: increase memory limits")
	if !n.set(next, 11) {
		t.Error("it does not wait any more")
	}
	n.wantSaid() // nothing new

	n.evaluate(12, later("too little cpu"))
	n.evaluate(13, later("too little cpu"))
	n.wantConditions("u", "Pending True 2 Deferred too little cpu")
	n.wantSaid("u Warning ResizeDeferred Pod resize Deferred 2 too little cpu",
		"u: Deferred after 2s, deferred false", "u: Deferred after 3s, deferred true")
	n.wantRuns(next, "1/2 1Gi/1Gi", "1/1 1Gi/1Gi")

	if d := n.evaluate(20, yes); len(d) != 1 || d[0].Pod != next || d[0].Outcome != allocation.Accepted {
		t.Errorf("decisions = %+v", d)
	}
	n.wantRuns(next, "2/2 1Gi/2Gi", "1/1 1Gi/1Gi")
	n.wantConditions("u", "InProgress True 2")
	n.wantSaid("u Normal ResizeStarted Pod resize started 2", "u: Accepted after 10s, deferred true")
	if d := n.evaluate(21, yes); len(d) != 0 {
		t.Errorf("decided once more: %+v", d)
	}

	n.Progress(next, runs("c0", "c1"), errors.New("no room"), at(22))
	n.Progress(next, runs("c0", "c1"), errors.New("no room"), at(23))
	n.wantConditions("u", "InProgress True 2 Error no room")
	n.wantSaid("u Warning ResizeError Pod resize error 2 no room", "u ended after 2s: no room")
	n.Progress(next, runs("c0", "c1"), nil, at(24)) // it is restarted for it, say
	n.wantConditions("u", "InProgress True 2")
	n.give(next)
	n.Progress(next, runs("c0", "c1"), nil, at(25))
	n.wantConditions("u")
	n.wantSaid("u Normal ResizeCompleted Pod resize completed 2", "u ended after 5s: <nil>")
	n.Progress(next, runs("c0", "c1"), nil, at(26))
	n.wantSaid()
}

func TestWhatEndsAWait(t *testing.T) {
	p := pod("u", "1/1 1Gi/1Gi")
	next := resized(p, "2/2 1Gi/1Gi")
	begin := func(t *testing.T, answer func(*corev1.Pod) allocation.Answer) *node {
		n := newNode(t, "")
		n.set(p, 0)
		n.set(next, 10)
		n.evaluate(11, answer)
		n.said = nil
		return n
	}
	t.Run("the old amounts again", func(t *testing.T) {
		n := begin(t, later("full"))
		if n.set(resized(next, "1/1 1Gi/1Gi"), 20) {
			t.Error("it waits")
		}
		n.wantSaid("u: Reverted after 10s, deferred true")
		n.wantConditions("u")
	})
	t.Run("the end of the pod", func(t *testing.T) {
		n := begin(t, later("full"))
		if err := n.Forget("u", at(20)); err != nil {
			t.Fatal(err)
		}
		n.wantSaid("u: Terminated after 10s, deferred true")
		if _, ok := n.Actuated("u", "c0"); ok || n.Apply(next) != next || n.Conditions("u") != nil {
			t.Error("something is left")
		}
	})
	t.Run("the end of its containers, though it stays desired", func(t *testing.T) {
		n := begin(t, later("full"))
		n.End("u", at(20))
		n.End("u", at(21))
		n.wantSaid("u: Terminated after 10s, deferred true")
		n.wantConditions("u")
		n.wantRuns(next, "1/1 1Gi/1Gi")
		over := resized(next, "3/3 1Gi/1Gi")
		over.Status.Phase = corev1.PodSucceeded
		if n.set(over, 22) || len(n.evaluate(23, yes)) != 0 {
			t.Error("a pod that has ended is resized")
		}
	})
	t.Run("the end of one under way", func(t *testing.T) {
		n := begin(t, yes)
		n.End("u", at(20))
		n.wantSaid()
		if _, under := n.Counts(); under != 0 || n.Conditions("u") != nil {
			t.Error("it goes on")
		}
	})
	t.Run("an answer that can never change, until the spec does", func(t *testing.T) {
		n := begin(t, never("too much"))
		n.wantConditions("u", "Pending True 2 Infeasible too much")
		if n.set(next, 12) || len(n.evaluate(20, yes)) != 0 {
			t.Error("it still waits")
		}
		again := resized(next, "3/3 1Gi/1Gi")
		if !n.set(again, 21) {
			t.Error("another resize does not wait")
		}
		n.said = nil
		n.evaluate(22, never("too much"))
		n.wantSaid("u Warning ResizeInfeasible Pod resize Infeasible 3 too much", "u: Infeasible after 1s, deferred false")
	})
	t.Run("the same again, with news", func(t *testing.T) {
		n := begin(t, later("full"))
		n.set(resized(next, "3/3 1Gi/1Gi"), 20)
		n.said = nil
		n.evaluate(21, later("full"))
		n.wantSaid("u Warning ResizeDeferred Pod resize Deferred 3 full", "u: Deferred after 1s, deferred true")
		n.evaluate(22, never("full"))
		n.wantSaid("u Warning ResizeInfeasible Pod resize Infeasible 3 full", "u: Infeasible after 2s, deferred true")
	})
	t.Run("a change while the answer is found", func(t *testing.T) {
		n := begin(t, later("full"))
		again := resized(next, "3/3 1Gi/1Gi")
		d := n.evaluate(20, func(*corev1.Pod) allocation.Answer {
			n.set(again, 20)
			return allocation.Answer{OK: true}
		})
		if len(d) != 0 {
			t.Errorf("decided about a spec of before: %+v", d)
		}
		n.wantRuns(again, "1/1 1Gi/1Gi")
	})
}

func TestTwoResizesOfOnePod(t *testing.T) {
	n, p := newNode(t, ""), pod("u", "1/1 1Gi/1Gi")
	n.set(p, 0)
	second := resized(p, "2/2 1Gi/1Gi")
	n.set(second, 10)
	n.evaluate(11, yes)
	third := resized(second, "3/3 1Gi/1Gi")
	n.set(third, 20)
	n.evaluate(21, later("full"))
	n.wantConditions("u", "Pending True 3 Deferred full", "InProgress True 2")
	if waiting, under := n.Counts(); waiting[allocation.Deferred] != 1 || len(waiting) != 1 || under != 1 {
		t.Errorf("Counts = %v, %d", waiting, under)
	}
	n.wantRuns(third, "2/2 1Gi/1Gi")
	n.give(second)
	n.Progress(n.Apply(third), runs("c0"), nil, at(30))
	n.wantConditions("u", "Pending True 3 Deferred full")
}

func TestTheOrderOfTheQueue(t *testing.T) {
	prio := func(p *corev1.Pod, n int32) *corev1.Pod { p.Spec.Priority = &n; return p }
	before := map[string]*corev1.Pod{}
	for _, uid := range []string{"less", "more", "much-prio", "guaranteed", "older"} {
		before[uid] = pod(uid, "1/2 1Gi/2Gi")
	}
	before["guaranteed"] = pod("guaranteed", "1/1 1Gi/1Gi")
	prio(before["much-prio"], 100)
	prio(before["less"], -5)
	n := newNode(t, "")
	for _, p := range before {
		n.set(p, 0)
	}
	n.set(resized(before["older"], "2/2 1Gi/2Gi"), 5)
	n.set(resized(before["more"], "2/2 1Gi/2Gi"), 10)
	n.set(resized(before["much-prio"], "1/2 2Gi/2Gi"), 11)
	n.set(resized(before["guaranteed"], "2/2 1Gi/1Gi"), 12)
	n.set(resized(before["less"], "1/3 1Gi/2Gi"), 13) // a limit is no request
	var order []string
	n.evaluate(20, func(p *corev1.Pod) allocation.Answer {
		order = append(order, string(p.UID))
		return allocation.Answer{OK: true}
	})
	if got, want := strings.Join(order, " "), "less much-prio guaranteed older more"; got != want {
		t.Errorf("order = %s, want %s", got, want)
	}
}

func TestARestartChangesNothing(t *testing.T) {
	dir := t.TempDir()
	n := newNode(t, dir)
	waits, under, idle := pod("waits", "1/1 1Gi/1Gi"), pod("under", "1/1 1Gi/1Gi"), pod("idle", "1/1 1Gi/1Gi")
	for _, p := range []*corev1.Pod{waits, under, idle} {
		n.set(p, 0)
	}
	waits, under = resized(waits, "2/2 1Gi/1Gi"), resized(under, "2/2 1Gi/1Gi")
	n.set(under, 10)
	n.evaluate(11, yes)
	n.set(waits, 12)
	n.evaluate(13, later("full"))
	for _, p := range []*corev1.Pod{waits, under} {
		p.Status.Conditions = n.Conditions(observed.UID(p.UID))
	}
	lost := under.DeepCopy()
	lost.UID, lost.Status.Conditions = "lost", nil // its condition was never reported
	n.set(pod("lost", "1/1 1Gi/1Gi"), 0)
	n.set(lost, 10)
	n.evaluate(14, func(p *corev1.Pod) allocation.Answer { return allocation.Answer{OK: p == lost} })

	n = newNode(t, dir)
	if !n.set(waits, 100) || n.set(under, 100) || n.set(idle, 100) || n.set(lost, 100) {
		t.Error("not the one waits that waited")
	}
	n.said = nil
	n.wantRuns(waits, "1/1 1Gi/1Gi")
	n.wantRuns(under, "2/2 1Gi/1Gi")
	n.wantConditions("waits", "Pending True 2 Deferred full")
	n.wantConditions("under", "InProgress True 2")
	n.wantConditions("idle")
	n.Progress(lost, observed.Pod{}, nil, at(100)) // it does not run, so nothing is under way
	n.wantConditions("lost")
	n.Progress(lost, runs("c0"), nil, at(100))
	n.wantConditions("lost", "InProgress True 2")
	n.evaluate(101, later("full")) // no event: that was told before
	for _, line := range n.said {
		if strings.Contains(line, "Warning") {
			t.Errorf("told again: %s", line)
		}
	}
	if r, ok := n.Actuated("under", "c0"); !ok || show(r) != "1/1 1Gi/1Gi" {
		t.Errorf("actuated = %s, %v", show(r), ok)
	}
	if err := n.Forget("waits", at(102)); err != nil {
		t.Fatal(err)
	}
	if n = newNode(t, dir); n.Apply(waits) != waits {
		t.Error("a forgotten pod has a record")
	}
}

func TestApply(t *testing.T) {
	n, p := newNode(t, ""), pod("u", "1/1 1Gi/1Gi", "-/- -/-")
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: needs("1/1 1Gi/1Gi")}}
	p.Spec.Resources = &corev1.ResourceRequirements{Limits: needs("4/4 4Gi/4Gi").Limits}
	p.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("2Mi")
	n.set(p, 0)
	next := resized(p, "2/2 2Gi/2Gi", "1/1 1Gi/1Gi")
	next.Spec.InitContainers[0].Resources = needs("3/3 3Gi/3Gi")
	next.Spec.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("8")
	next.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	next.Spec.Containers = append(next.Spec.Containers, corev1.Container{Name: "new", Resources: needs("1/1 1Gi/1Gi")})
	next.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	n.set(next, 1)
	got := n.Apply(next)
	n.wantRuns(next, "1/1 1Gi/1Gi", "-/- -/-", "1/1 1Gi/1Gi")
	if r := got.Spec.InitContainers[0].Resources; show(r) != "1/1 1Gi/1Gi" {
		t.Errorf("init container = %s", show(r))
	}
	if cpu := got.Spec.Resources.Limits[corev1.ResourceCPU]; cpu.String() != "4" {
		t.Errorf("pod limit = %s", cpu.String())
	}
	if pages := got.Spec.Containers[0].Resources.Limits["hugepages-2Mi"]; pages.String() != "4Mi" {
		t.Errorf("huge pages = %s: they are not resized, so they are what the spec says", pages.String())
	}
	if _, ok := n.Actuated("u", "new"); !ok {
		t.Error("a new container has no record")
	}
	if _, ok := n.Actuated("u", "e"); ok {
		t.Error("an ephemeral container has a record")
	}
	if r, ok := n.Actuated("u", allocation.PodItself); !ok || show(r) != "-/4 -/4Gi" {
		t.Errorf("the pod was given %s, %v", show(r), ok)
	}
}

func TestWhatIsInForce(t *testing.T) {
	for _, tt := range []struct {
		name string
		give string // the containers that were given their new amounts
		runs string
		done bool
	}{
		{"all of it", "c0 c1", "c0 c1", true},
		{"half of it", "c0", "c0 c1", false},
		{"a container that does not run gets it when it starts", "c0", "c0", true},
		{"of a pod that does not run, whatever was given", "", "", true},
	} {
		n, p := newNode(t, ""), pod("u", "1/1 1Gi/1Gi", "1/1 1Gi/1Gi")
		n.set(p, 0)
		next := resized(p, "2/2 1Gi/1Gi", "2/2 1Gi/1Gi")
		n.set(next, 1)
		n.evaluate(2, yes)
		for _, name := range strings.Fields(tt.give) {
			if err := n.SetActuated("u", name, needs("2/2 1Gi/1Gi")); err != nil {
				t.Fatal(err)
			}
		}
		n.Progress(next, runs(strings.Fields(tt.runs)...), nil, at(3))
		if got := len(n.Conditions("u")) == 0; got != tt.done {
			t.Errorf("%s: done = %v", tt.name, got)
		}
	}
	t.Run("the pod itself, too", func(t *testing.T) {
		n, p := newNode(t, ""), pod("u", "1/1 1Gi/1Gi")
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: needs("4/4 4Gi/4Gi").Limits}
		n.set(p, 0)
		next := resized(p)
		next.Spec.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("8")
		if !n.set(next, 1) {
			t.Error("a resize of the pod does not wait")
		}
		n.evaluate(2, yes)
		n.Progress(next, runs("c0"), nil, at(3))
		n.wantConditions("u", "InProgress True 2")
		if err := n.SetActuated("u", allocation.PodItself, *next.Spec.Resources); err != nil {
			t.Fatal(err)
		}
		n.Progress(next, runs("c0"), nil, at(4))
		n.wantConditions("u")
	})
}

func TestSwapFollowsFromTheMemoryRequestAtTheStart(t *testing.T) {
	const reason = "swap_limitation"
	for _, tt := range []struct {
		name          string
		before, after string
		change        func(*corev1.Pod)
		ok            bool
	}{
		{"a request that gives swap cannot change", "500m/1 1Gi/2Gi", "500m/1 2Gi/2Gi", nil, false},
		{"nor can one come that gives swap", "500m/1 2Gi/2Gi", "500m/1 1Gi/2Gi", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2") }, false},
		{"a limit can", "500m/1 1Gi/2Gi", "500m/1 1Gi/3Gi", nil, true},
		{"processors can", "500m/1 1Gi/2Gi", "1/2 1Gi/2Gi", nil, true},
		{"with a restart it can", "500m/1 1Gi/2Gi", "500m/1 2Gi/2Gi", func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: corev1.RestartContainer}}
		}, true},
		{"a critical pod has no swap", "500m/1 1Gi/2Gi", "500m/1 2Gi/2Gi", func(p *corev1.Pod) { p.Spec.Priority = new(int32); *p.Spec.Priority = 2_000_000_000 }, true},
	} {
		n := &node{t: t}
		n.open(allocation.Config{LimitedSwap: true})
		p := pod("u", tt.before)
		p.Status.QOSClass = corev1.PodQOSBurstable
		if tt.change != nil {
			tt.change(p)
		}
		n.set(p, 0)
		n.set(resized(p, tt.after), 1)
		d := n.evaluate(2, yes)
		if len(d) != 1 || (d[0].Outcome == allocation.Accepted) != tt.ok || (d[0].Reason == reason) == tt.ok {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}

func TestWhatNobodyMayAskOfARunningPod(t *testing.T) {
	podLevel := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { r := needs(text); p.Spec.Resources = &r }
	}
	for _, tt := range []struct {
		name          string
		before, after string
		was, is       func(*corev1.Pod)
		want          string
	}{
		{"Guaranteed stays Guaranteed", "1/1 1Gi/1Gi", "1/2 1Gi/1Gi", nil, nil,
			"the pod is Guaranteed, and would be Burstable; the QoS class cannot change with a resize"},
		{"and nothing becomes it", "1/2 1Gi/1Gi", "2/2 1Gi/1Gi", nil, nil,
			"the pod is Burstable, and would be Guaranteed; the QoS class cannot change with a resize"},
		{"whoever asks for nothing goes on so", "-/- -/-", "1/- -/-", nil, nil,
			"the pod is BestEffort, and would be Burstable; the QoS class cannot change with a resize"},
		{"a limit stays", "1/2 1Gi/2Gi", "1/2 1Gi/-", nil, nil,
			"the memory limit of container c0 was taken away; a resize can only give another amount"},
		{"a request stays", "1/2 1Gi/2Gi", "-/2 1Gi/2Gi", nil, nil,
			"the cpu request of container c0 was taken away; a resize can only give another amount"},
		{"the pod's limit stays", "1/2 1Gi/2Gi", "1/2 1Gi/2Gi", podLevel("1/4 1Gi/4Gi"), podLevel("1/- 1Gi/4Gi"),
			"the cpu limit of the pod was taken away; a resize can only give another amount"},
		{"a first limit may come", "1/- 1Gi/-", "1/2 1Gi/2Gi", nil, nil, ""},
		{"an equal amount is no change of class", "1/1 1Gi/1Gi", "2/2 1024Mi/1Gi", nil, nil, ""},
	} {
		n := newNode(t, "")
		p := pod("u", tt.before)
		if tt.was != nil {
			tt.was(p)
		}
		p.Status.QOSClass = corev1.PodQOSBurstable // what was reported does not count
		n.set(p, 0)
		next := resized(p, tt.after)
		if tt.is != nil {
			tt.is(next)
		}
		n.set(next, 1)
		d := n.evaluate(2, yes)
		if len(d) != 1 || (d[0].Outcome == allocation.Infeasible) != (tt.want != "") || d[0].Message != tt.want {
			t.Errorf("%s: %+v, want %q", tt.name, d, tt.want)
		}
	}
}

// kubeletFile is a file as a kubelet writes it.
func kubeletFile(data string) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "(string)%s", data)
	text, _ := json.Marshal(data)
	return fmt.Sprintf(`{"data":%s,"checksum":%d}`, text, h.Sum32())
}

const kubeletData = `{"entries":{"u":{"ContainerResources":{"c0":{"limits":{"cpu":"1"},"requests":{"cpu":"500m","memory":"1Gi"}}},` +
	`"PodLevelResources":null,"EmptyDirVolumeLimits":{"cache":"1Gi"}}}}`

func TestTheFilesOfAKubelet(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "allocated_pods_state")
	// The number is a kubelet's own for this text.
	if got := kubeletFile(kubeletData); !strings.HasSuffix(got, `"checksum":387967942}`) {
		t.Errorf("file = %s", got)
	}
	if err := os.WriteFile(file, []byte(kubeletFile(kubeletData)), 0o600); err != nil {
		t.Fatal(err)
	}
	n, p := newNode(t, dir), pod("u", "2/2 1Gi/-")
	if !n.set(p, 0) {
		t.Error("a resize does not wait")
	}
	n.wantRuns(p, "500m/1 1Gi/-")
	n.evaluate(1, yes)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := kubeletFile(`{"entries":{"u":{"ContainerResources":{"c0":{"limits":{"cpu":"2"},"requests":{"cpu":"2","memory":"1Gi"}}},` +
		`"PodLevelResources":null,"EmptyDirVolumeLimits":{"cache":"1Gi"}}}}`)
	if string(data) != want {
		t.Errorf("file = %s\nwant   %s", data, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v", info.Mode(), err)
	}
}

func TestAFileThatCannotBeReliedOn(t *testing.T) {
	good := kubeletFile(kubeletData)
	for name, text := range map[string]string{
		"empty":            "",
		"no JSON":          "{",
		"another checksum": strings.Replace(good, `"checksum":`, `"checksum":1`, 1),
		"other data":       strings.Replace(good, "500m", "600m", 1),
		"data of no JSON":  kubeletFile("{"),
		"a wrong quantity": kubeletFile(strings.Replace(kubeletData, "500m", "half", 1)),
	} {
		for _, file := range []string{"allocated_pods_state", "actuated_pods_state"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := allocation.New(allocation.Config{Dir: dir})
			if !errors.Is(err, allocation.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Join(dir, file)) {
				t.Errorf("%s %s: error = %v", name, file, err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "actuated_pods_state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := allocation.New(allocation.Config{Dir: dir}); err == nil || errors.Is(err, allocation.ErrCorrupt) {
		t.Errorf("an unreadable file: %v", err)
	}
}

func TestWhatCannotBeWrittenDidNotHappen(t *testing.T) {
	dir := t.TempDir()
	n, p := newNode(t, dir), pod("u", "1/1 1Gi/1Gi")
	n.set(p, 0)
	next := resized(p, "2/2 1Gi/1Gi")
	n.set(next, 1)
	for _, file := range []string{".allocated_pods_state", ".actuated_pods_state"} { // in the way
		if err := os.RemoveAll(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, file), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := n.Evaluate(at(2), yes); err == nil || len(d) != 0 || !strings.Contains(err.Error(), "default/pod-u") {
		t.Errorf("Evaluate = %v, %v", d, err)
	}
	n.wantRuns(next, "1/1 1Gi/1Gi")
	if err := n.SetActuated("u", "c0", needs("9/9")); err == nil {
		t.Error("SetActuated succeeded")
	}
	if r, _ := n.Actuated("u", "c0"); show(r) != "1/1 1Gi/1Gi" {
		t.Errorf("actuated = %s", show(r))
	}
	if err := n.SetActuated("u", "c0", needs("1000m/1 1Gi/1024Mi")); err != nil {
		t.Errorf("what has not changed was written: %v", err)
	}
	if _, err := n.Set(pod("v", "1/1"), at(3)); err == nil || n.Forget("u", at(4)) == nil {
		t.Error("no error")
	}
	for _, file := range []string{".allocated_pods_state", ".actuated_pods_state"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if d := n.evaluate(5, yes); len(d) != 0 {
		t.Errorf("a forgotten pod was decided about: %v", d)
	}
	if err := n.Forget("u", at(6)); err != nil {
		t.Errorf("Forget again = %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(kubeletData)
	f.Add(`{"entries":{"":{"ContainerResources":{"":{}}}}}`)
	f.Add(`{"entries":{"u":{"PodLevelResources":{"limits":{"memory":"1e3"}},"EmptyDirVolumeLimits":[1]}}}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, data string) {
		for _, text := range []string{data, kubeletFile(data)} {
			list, err := allocation.Decode([]byte(text))
			if err != nil {
				if !errors.Is(err, allocation.ErrCorrupt) {
					t.Errorf("error = %v", err)
				}
				continue
			}
			once, err := allocation.Encode(list)
			if err != nil {
				t.Fatal(err)
			}
			again, err := allocation.Decode(once)
			if err != nil {
				t.Fatalf("%v of what was written: %s", err, once)
			}
			if twice, err := allocation.Encode(again); err != nil || string(twice) != string(once) {
				t.Errorf("written again it is %s, %v; was %s", twice, err, once)
			}
		}
	})
}

func Example() {
	a, err := allocation.New(allocation.Config{}) // no directory: nothing outlives the process
	if err != nil {
		panic(err)
	}
	now := time.Unix(0, 0)
	p := pod("u", "500m/1 64Mi/64Mi")
	a.Set(p, now) //nolint:errcheck // without files nothing fails
	next := resized(p, "1/2 64Mi/64Mi")
	waits, _ := a.Set(next, now)
	fmt.Println("waits:", waits, "runs with", show(a.Apply(next).Spec.Containers[0].Resources))
	decisions, _ := a.Evaluate(now, func(*corev1.Pod) allocation.Answer { return allocation.Answer{OK: true} })
	fmt.Println(decisions[0].Outcome, "runs with", show(a.Apply(next).Spec.Containers[0].Resources))
	// Output:
	// waits: true runs with 500m/1 64Mi/64Mi
	// Accepted runs with 1/2 64Mi/64Mi
}

// At a start the hall would stand still for two writes of all records per pod.
func TestABatchIsOneWrite(t *testing.T) {
	dir := t.TempDir()
	a, err := allocation.New(allocation.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	onDisk := func() int {
		again, err := allocation.New(allocation.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return len(again.Pods())
	}
	pod := func(uid types.UID) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: needs("1/2 1Gi/1Gi")}}
		return p
	}
	err = a.Batch(func() {
		for _, uid := range []types.UID{"a", "b", "c"} {
			if _, err := a.Set(pod(uid), at(0)); err != nil {
				t.Fatal(err)
			}
		}
		if n := onDisk(); n != 0 {
			t.Errorf("%d pods are on disk before the end of the batch", n)
		}
		if _, ok := a.Actuated("a", "c"); !ok {
			t.Error("the first pod is not known to the others")
		}
	})
	if n := onDisk(); err != nil || n != 3 {
		t.Errorf("after the batch: %d pods on disk, %v", n, err)
	}

	// What is given to a container does not wait.
	err = a.Batch(func() {
		if _, err := a.Set(pod("d"), at(1)); err != nil {
			t.Fatal(err)
		}
		if err := a.SetActuated("a", "c", needs("2/2 1Gi/1Gi")); err != nil {
			t.Fatal(err)
		}
		if n := onDisk(); n != 4 {
			t.Errorf("%d pods on disk, want all four", n)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "granted") {
		t.Errorf("Batch on a disk that can't be written = %v", err)
	}
}

package criclient_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func observe(t testing.TB, rt criclient.Runtime) *criclient.Observer {
	t.Helper()
	o, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: rt})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func inspect(t *testing.T, o *criclient.Observer, last observed.Pod) observed.Pod {
	t.Helper()
	p, err := o.InspectPod(t.Context(), last)
	if err != nil {
		t.Fatalf("InspectPod = %v", err)
	}
	return p
}

func summary(pods ...observed.Pod) string {
	var b strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&b, "%s:", p.UID)
		for _, s := range p.Sandboxes {
			fmt.Fprintf(&b, " %s(ready=%v)", s.ID, s.Ready)
		}
		for _, c := range p.Containers {
			fmt.Fprintf(&b, " %s(%v)", c.ID, c.State)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestObserverNeedsARuntime(t *testing.T) {
	if _, err := criclient.NewObserver(criclient.ObserverConfig{}); err == nil {
		t.Error("NewObserver without a runtime = nil error")
	}
	if _, err := observe(t, newWorld()).InspectPod(t.Context(), observed.Pod{}); err == nil {
		t.Error("InspectPod without a UID = nil error")
	}
}

func TestRunningAndAllPods(t *testing.T) {
	w := newWorld()
	w.sandbox("s1", "u1", 10, true, "10.0.0.1")
	w.sandbox("s0", "u1", 5, false)
	w.container("c1", "u1", "app", "s1", 12, running)
	w.container("c0", "u1", "app", "s0", 6, exited)
	w.container("c2", "u1", "new", "s1", 13, created)
	w.sandbox("s2", "u2", 10, false)
	w.container("c3", "u2", "app", "s2", 11, exited)
	w.container("c4", "u3", "app", "no such sandbox", 11, running)
	w.sandbox("stranger", "", 1, true)
	w.container("strange", "", "", "stranger", 1, running)
	o := observe(t, w)

	pods, err := o.RunningPods(t.Context())
	if want := "u1: s1(ready=true) c1(running)\nu3: c4(running)\n"; err != nil || summary(pods...) != want {
		t.Errorf("RunningPods = %v\n%s\nwant\n%s", err, summary(pods...), want)
	}
	pods, err = o.AllPods(t.Context())
	want := "u1: s1(ready=true) s0(ready=false) c2(created) c1(running) c0(exited)\nu2: s2(ready=false) c3(exited)\nu3: c4(running)\n"
	if err != nil || summary(pods...) != want {
		t.Errorf("AllPods = %v\n%s\nwant\n%s", err, summary(pods...), want)
	}
	if pods[0].Namespace != "default" || pods[0].Name != "web" {
		t.Errorf("pod = %s/%s", pods[0].Namespace, pods[0].Name)
	}
	w.noFilters = true
	if got, err := o.RunningPods(t.Context()); err != nil || summary(got...) != "u1: s1(ready=true) c1(running)\nu3: c4(running)\n" {
		t.Errorf("RunningPods of a runtime without filters = %v\n%s", err, summary(got...))
	}
	if len(w.asked) != 0 {
		t.Errorf("listing asked for the status of %v", w.asked)
	}
	for _, list := range []string{"ListContainers", "ListPodSandbox"} {
		w.fail = map[string]error{list: status.Error(codes.Unavailable, "away")}
		if pods, err := o.RunningPods(t.Context()); !errors.Is(err, criclient.ErrUnavailable) || pods != nil {
			t.Errorf("RunningPods with a failed %s = %v, %v", list, pods, err)
		}
		if pods, err := o.AllPods(t.Context()); !errors.Is(err, criclient.ErrUnavailable) || pods != nil {
			t.Errorf("AllPods with a failed %s = %v, %v", list, pods, err)
		}
		if _, err := o.InspectPod(t.Context(), observed.Pod{UID: "u1"}); !errors.Is(err, criclient.ErrUnavailable) {
			t.Errorf("InspectPod with a failed %s = %v", list, err)
		}
	}
}

// Ready sandboxes with large annotations can fill more than a message, and no
// filter divides them.
func TestSandboxesTooLargeForAnyListAreSeenByTheirContainers(t *testing.T) {
	rt := critest.New(critest.Config{MaxAnswer: 4 << 10})
	rt.AddImage("app:1", critest.Behavior{})
	add := func(uid string, start, stop bool) {
		pod := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}, Labels: podLabels(uid),
			Annotations: map[string]string{"large": strings.Repeat("x", 3<<10)},
		}
		sandbox, err := rt.RunPodSandbox(t.Context(), pod, "")
		if err != nil {
			t.Fatal(err)
		}
		config := &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app:1"}, Labels: podLabels(uid),
		}
		id, err := rt.CreateContainer(t.Context(), sandbox, config, pod)
		if err == nil && start {
			err = rt.StartContainer(t.Context(), id)
		}
		if err == nil && stop {
			err = rt.StopPodSandbox(t.Context(), sandbox)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, uid := range []string{"a", "b", "c"} {
		add(uid, true, false)
	}
	add("d", true, true)
	o := observe(t, rt)
	for name, tc := range map[string]struct {
		list func(context.Context) ([]observed.Pod, error)
		want string
	}{
		"running": {o.RunningPods, "a b c"},
		"all":     {o.AllPods, "a b c d"},
	} {
		pods, err := tc.list(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range pods {
			if len(p.Sandboxes) != 1 || len(p.Containers) != 1 || p.HasReadySandbox() != p.HasRunning() {
				t.Errorf("%s: pod %s = %+v", name, p.UID, p)
			}
			got = append(got, string(p.UID))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s = %v, want %s", name, got, tc.want)
		}
	}
	rt.Inject(critest.Fault{Method: "ListPodSandbox", Match: func(c critest.Call) bool { return c.ID != "" }, Err: status.Error(codes.Unavailable, "away")})
	if pods, err := o.RunningPods(t.Context()); !errors.Is(err, criclient.ErrUnavailable) {
		t.Errorf("RunningPods = %v, %v when one can't be asked, want ErrUnavailable", pods, err)
	}
}

func TestInspectPodFillsEverything(t *testing.T) {
	w := newWorld()
	s := w.sandbox("s1", "u1", 10, true, "10.0.0.1", "fd00::1", "no address")
	s.Metadata, s.RuntimeHandler = &runtimeapi.PodSandboxMetadata{Attempt: 3}, "gvisor"
	c := w.container("c1", "u1", "app", "s1", 20, exited)
	c.LogPath, c.Message = "/var/log/pods/x/app/2.log", "it broke"
	want := observed.Pod{
		UID: "u1", Namespace: "default", Name: "web",
		Sandboxes: []observed.Sandbox{{
			ID: "s1", Attempt: 3, Ready: true, CreatedAt: time.Unix(0, 10),
			IPs: []string{"10.0.0.1", "fd00::1"}, NetworkReported: true, RuntimeHandler: "gvisor",
		}},
		Containers: []observed.Container{{
			ID: "c1", Sandbox: "s1", Name: "app", RestartCount: 2, State: observed.Exited,
			Image: "app:1", ImageID: "sha256:1", ImageRef: "app@sha256:1", Hash: "abc",
			CreatedAt: time.Unix(0, 20), StartedAt: time.Unix(0, 21), FinishedAt: time.Unix(0, 22),
			ExitCode: 1, Reason: "Error", Message: "it broke", LogPath: "/var/log/pods/x/app/2.log",
			Annotations: map[string]string{observed.AnnotationHash: "abc", observed.AnnotationRestartCount: "2"},
		}},
	}
	if diff := cmp.Diff(want, inspect(t, observe(t, w), observed.Pod{UID: "u1"})); diff != "" {
		t.Errorf("InspectPod (-want +got):\n%s", diff)
	}
}

func TestInspectPodOnTheHostNetwork(t *testing.T) {
	w := newWorld()
	s := w.sandbox("s1", "u1", 10, true, "192.0.2.1")
	s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	got := inspect(t, observe(t, w), observed.Pod{UID: "u1"}).Sandboxes[0]
	if !got.HostNetwork || len(got.IPs) != 0 || !got.NetworkReported {
		t.Errorf("sandbox = %+v, want host network and no address", got)
	}
}

func TestInspectPodAsksOnlyForWhatCanHaveChanged(t *testing.T) {
	w := newWorld()
	w.sandbox("s0", "u1", 5, false)
	w.sandbox("s1", "u1", 10, true, "10.0.0.1")
	for i := range 20 {
		w.container(fmt.Sprintf("old%02d", i), "u1", "app", "s1", int64(20+i), exited)
	}
	w.container("now", "u1", "app", "s1", 100, running)
	o := observe(t, w)
	first := inspect(t, o, observed.Pod{UID: "u1"})
	if got, want := w.takeAsked(), []string{"now", "old19", "s0", "s1"}; !slices.Equal(got, want) {
		t.Errorf("a first look asked for %v, want %v", got, want)
	}
	if len(first.Containers) != 21 || first.Containers[1].FinishedAt.IsZero() {
		t.Errorf("first look = %s", summary(first))
	}
	second := inspect(t, o, first)
	if got, want := w.takeAsked(), []string{"now", "s1"}; !slices.Equal(got, want) {
		t.Errorf("a second look asked for %v, want %v", got, want)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("second look differs (-first +second):\n%s", diff)
	}

	// An old instance that container GC has removed is not worth a question.
	delete(w.containers, "old00")
	third := inspect(t, o, second)
	if got, want := w.takeAsked(), []string{"now", "s1"}; !slices.Equal(got, want) || len(third.Containers) != 20 {
		t.Errorf("after a removal: asked for %v, want %v; %d containers, want 20", got, want, len(third.Containers))
	}

	// What is known from a listing only is not known.
	pods, err := o.AllPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(third, inspect(t, o, pods[0])); diff != "" {
		t.Errorf("a look after a listing differs (-third +fourth):\n%s", diff)
	}
}

func TestAnEmptyListIsNoProof(t *testing.T) {
	w := newWorld()
	w.sandbox("s1", "u1", 10, true, "10.0.0.1")
	w.container("run", "u1", "app", "s1", 20, running)
	w.container("done", "u1", "init", "s1", 15, exited)
	o := observe(t, w)
	before := inspect(t, o, observed.Pod{UID: "u1"})

	w.listEmpty = true
	if diff := cmp.Diff(before, inspect(t, o, before)); diff != "" {
		t.Errorf("an empty list changed the pod (-before +after):\n%s", diff)
	}
	w.listEmpty, w.noFilters = false, true
	w.container("other", "u0", "app", "s9", 1, running)
	w.container("another", "u2", "app", "s9", 1, running)
	if diff := cmp.Diff(before, inspect(t, o, before)); diff != "" {
		t.Errorf("a list without filters changed the pod (-before +after):\n%s", diff)
	}
	w.listEmpty = true
	w.containers["run"].State, w.containers["run"].FinishedAt = exited, 30
	if got, _ := inspect(t, o, before).Container("app"); got.State != observed.Exited || got.Sandbox != "s1" {
		t.Errorf("container missing from the list = %+v, want exited in s1", got)
	}
	w.fail["run"] = status.Error(codes.Unknown, "still loading")
	if p, err := o.InspectPod(t.Context(), before); err == nil || p.Exists() || !strings.Contains(err.Error(), "run") || !strings.Contains(err.Error(), "default/web") {
		t.Errorf("InspectPod = %s, %v, want an error that names the container and the pod", summary(p), err)
	}
	w.sandboxes, w.containers, w.fail = nil, nil, nil
	gone := inspect(t, o, before)
	if gone.Exists() || gone.UID != "u1" || gone.Name != "web" {
		t.Errorf("pod of which nothing is left = %+v", gone)
	}
}

func TestWhatGoesDuringTheLookIsLeftOut(t *testing.T) {
	w := newWorld()
	w.sandbox("s1", "u1", 10, true)
	w.sandbox("s2", "u1", 11, true)
	w.container("c1", "u1", "app", "s1", 20, running)
	w.container("c2", "u1", "app", "s2", 21, running)
	w.vanished["c1"], w.vanished["s1"] = true, true
	if got, want := summary(inspect(t, observe(t, w), observed.Pod{UID: "u1"})), "u1: s2(ready=true) c2(running)\n"; got != want {
		t.Errorf("InspectPod = %s, want %s", got, want)
	}
}

func TestAFinishedPodKeepsItsAddresses(t *testing.T) {
	w := newWorld()
	w.sandbox("s1", "u1", 10, true, "10.0.0.1")
	o := observe(t, w)
	last := inspect(t, o, observed.Pod{UID: "u1"})
	w.sandbox("s1", "u1", 10, false)
	last = inspect(t, o, last)
	for range 2 { // also on the looks after that
		if got := last.Sandboxes[0]; got.Ready || !slices.Equal(got.IPs, []string{"10.0.0.1"}) {
			t.Errorf("ended sandbox = %+v, want its address kept", got)
		}
		last = inspect(t, o, last)
	}
	w.sandbox("s2", "u1", 20, true)
	if got := inspect(t, o, last).IPs(); len(got) != 0 {
		t.Errorf("addresses = %v, want none: the new sandbox has none yet", got)
	}
	delete(w.sandboxes, "s2")
	w.sandbox("s1", "u1", 10, true)
	if got := inspect(t, o, last).Sandboxes[0]; !got.Ready || len(got.IPs) != 0 {
		t.Errorf("sandbox that came back = %+v, want ready and without the address it had", got)
	}
}

func TestAStatusWithoutAStatusIsAnError(t *testing.T) {
	w := newWorld()
	w.sandbox("s1", "u1", 10, true)
	if _, err := observe(t, hollow{w}).InspectPod(t.Context(), observed.Pod{UID: "u1"}); !errors.Is(err, criclient.ErrMalformed) {
		t.Errorf("InspectPod = %v, want ErrMalformed", err)
	}
}

// hollow answers every status call with nothing in it.
type hollow struct{ *world }

func (hollow) PodSandboxStatus(context.Context, string, bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return nil, nil
}

func TestGarbageInListsIsLeftOut(t *testing.T) {
	uid := podLabels("u1")
	rt := given{
		sandboxes: []*runtimeapi.PodSandbox{
			nil, {}, {Labels: uid}, {Id: "s1", Labels: uid, CreatedAt: -5}, {Id: "s1", Labels: uid}, {Id: "s2", Labels: uid, State: 7}, {Id: "other"},
		},
		containers: []*runtimeapi.Container{
			nil, {}, {Labels: uid}, {Id: "c1", Labels: uid, State: 99, CreatedAt: -1 << 63}, {Id: "c1", Labels: uid},
			{Id: "c2", Labels: uid, Metadata: &runtimeapi.ContainerMetadata{Name: "m", Attempt: 4}, Annotations: map[string]string{observed.AnnotationRestartCount: "-3"}},
		},
	}
	pods, err := observe(t, rt).AllPods(t.Context())
	if want := "u1: s1(ready=true) s2(ready=false) c1(unknown) c2(created)\n"; err != nil || len(pods) != 1 || sortedSummary(pods[0]) != want {
		t.Fatalf("AllPods = %v, %s, want %s", err, summary(pods...), want)
	}
	for _, c := range pods[0].Containers {
		if !c.CreatedAt.IsZero() {
			t.Errorf("%s was created at %v", c.ID, c.CreatedAt)
		}
		if c.ID == "c2" && (c.Name != "m" || c.RestartCount != 4) {
			t.Errorf("c2 = %+v, want name and count of its metadata", c)
		}
	}
}

func sortedSummary(p observed.Pod) string {
	slices.SortFunc(p.Sandboxes, func(a, b observed.Sandbox) int { return strings.Compare(string(a.ID), string(b.ID)) })
	slices.SortFunc(p.Containers, func(a, b observed.Container) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return summary(p)
}

type given struct {
	*world
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

func (l given) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return l.sandboxes, nil
}

func (l given) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return l.containers, nil
}

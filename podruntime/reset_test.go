package podruntime_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

// restartsAll lets exit code 42 of the named container restart the whole pod.
func restartsAll(p *corev1.Pod, name string) *corev1.Pod {
	return withPolicy(p, name, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRule{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{42}},
	})
}

// restarting is a pod of which it was reported that all its containers restart.
func restarting(p *corev1.Pod) *corev1.Pod {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	return p
}

func TestPlansOfARestartOfAllContainers(t *testing.T) {
	id := func(id observed.ContainerID) func(*observed.Container) {
		return func(c *observed.Container) { c.ID = id }
	}
	recalled := func(c *observed.Container) { c.Hash = "" }
	runPlans(t, []planCase{
		{name: "an exit asks for it, the one that asked goes last and init containers after the others",
			pod:  restartsAll(pod("Never", "i:i0", "s:s", "a", "b"), "a"),
			seen: seen(ex("a", 42), run("b"), run("s"), ex("i0", 0)), want: "reset [b, i0, s, a]"},
		{name: "an init container that asks goes after all regular ones",
			pod:  restartsAll(pod("Never", "i:i0", "i:i1", "a", "b"), "i1"),
			seen: seen(ex("i1", 42), ex("i0", 0), run("b")), want: "reset [b, i0, i1]"},
		{name: "two that ask are both last",
			pod:  restartsAll(restartsAll(pod("Never", "i:i0", "a", "b"), "i0"), "a"),
			seen: seen(ex("a", 42), run("b"), ex("i0", 42)), want: "reset [b, a, i0]"},
		{name: "another exit does not ask for it",
			pod: restartsAll(pod("Never", "a", "b"), "a"), seen: seen(ex("a", 1), run("b")), want: "nothing to do"},
		{name: "one that was begun goes on",
			pod: restarting(pod("Never", "i:i0", "a")), seen: seen(ex("i0", 0)), want: "reset [i0]"},
		{name: "one that was begun is over when nothing is held, and everything starts again",
			pod: restarting(pod("Never", "i:i0", "a")), seen: seen(), want: "start [i0]"},
		{name: "older instances go as well, before the newest",
			pod:  restartsAll(pod("Never", "a", "b"), "a"),
			seen: seen(ex("a", 42), run("b"), was(ex("a", 42), id("a-old")), was(ex("b", 1), id("b-old"))), want: "reset [b, b, a, a]"},
		{name: "an exit that is only remembered asks for nothing",
			pod: restartsAll(pod("Never", "a", "b"), "a"), seen: seen(was(ex("a", 42), recalled), run("b")), want: "start [a]"},
		{name: "an ephemeral container is left alone",
			pod: restartsAll(pod("Never", "e:e", "a"), "a"), seen: seen(ex("a", 42), run("e")), want: "reset [a]"},
		{name: "nothing restarts in a pod that is being deleted",
			pod: deleted(restartsAll(pod("Never", "a", "b"), "a")), seen: seen(ex("a", 42), run("b")), want: "nothing to do"},
		{name: "a sandbox that is lost restarts everything anyway",
			pod: restartsAll(pod("Always", "a", "b"), "a"), seen: deadSandbox(ex("a", 42), run("b")), want: "kill pod, create sandbox, start [a, b]"},
		{name: "it is the only thing to do",
			pod:  restartsAll(pod("Always", "a", "b", "e:e"), "a"),
			seen: seen(ex("a", 42), was(run("b"), func(c *observed.Container) { c.Hash = "other" })), want: "reset [b, a]"},
	})
	plan := podruntime.ComputePodActions(restartsAll(pod("Never", "a", "b"), "a"), seen(ex("a", 42), run("b")), podruntime.Inputs{})
	if plan.Done || plan.Reset[0].Source || !plan.Reset[1].Source {
		t.Errorf("plan = %+v", plan)
	}
}

func TestAllContainersRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		code := map[string]critest.Behavior{"i0": critest.Exit(0, time.Millisecond), "b": {IgnoreTERM: true}}
		n.rt.AddImage("img:1", critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior { return code[c.Metadata.Name] }})
		p := with(hooked(restartsAll(pod("Never", "i:i0", "s:s", "a", "b"), "a"), "b"), 600)
		h := &hookLog{}
		n.hook = h.run
		n.must(p)
		time.Sleep(time.Second)
		n.converge(p)
		n.wantRunning(p, "a#0 b#0 s#0")
		sandbox, _ := n.see(p).Sandbox()
		id, _ := n.rt.FindContainer("uid-1", "a")
		if err := n.rt.Kill(id, 42); err != nil {
			t.Fatal(err)
		}
		n.calls()
		n.takeEvents()

		n.rt.FailNext("RemoveContainer", errors.New("busy"))
		if _, _, err := n.sync(t.Context(), p); err == nil {
			t.Error("a failed removal is no error")
		}
		start := time.Now()
		n.must(p)
		n.wantCalls("StopContainer b 2", "RemoveContainer b", "RemoveContainer b", "RemoveContainer i0", "StopContainer s 2", "RemoveContainer s", "RemoveContainer a")
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		for _, e := range n.takeEvents() {
			if !strings.HasSuffix(e, "Normal Killing: killing") {
				t.Errorf("event %q", e)
			}
		}
		n.must(p)
		time.Sleep(time.Second)
		n.converge(p)
		n.wantRunning(p, "a#1 b#1 s#1")
		if again, _ := n.see(p).Sandbox(); again.ID != sandbox.ID {
			t.Error("the sandbox was replaced")
		}
		if i0, _ := n.see(p).Container("i0"); i0.RestartCount != 1 {
			t.Errorf("the init container = %+v, want its second run", i0)
		}
		h.want(t, "b postStart", "b postStart") // no preStop without grace
	})
}

// Without it a container that asks for a restart whenever it starts would keep the
// node busy as fast as it can.
func TestWhoRestartsAllAgainAndAgainIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior {
			if c.Metadata.Name == "a" {
				return critest.Exit(42, time.Second)
			}
			return critest.Behavior{}
		}})
		p := restartsAll(pod("Never", "a", "b"), "a")
		var waits []time.Duration
		var reset time.Time
		for len(waits) < 4 {
			plan, result, err := n.sync(t.Context(), p)
			switch f := result.Failures["a"]; {
			case len(plan.Reset) > 0:
				reset = time.Now()
			case f.Reason == "CrashLoopBackOff":
				n.wantRunning(p, fmt.Sprintf("b#%d", len(waits)+1)) // it does not wait
				time.Sleep(time.Until(f.RetryAt))
			case err != nil:
				t.Fatal(err)
			default:
				if !reset.IsZero() {
					waits = append(waits, time.Since(reset).Round(time.Second))
				}
				time.Sleep(time.Second + time.Millisecond) // it ends
			}
		}
		if got := fmt.Sprint(waits); got != "[0s 10s 20s 40s]" {
			t.Errorf("waits = %s", got)
		}
	})
}

func TestARestartCountThatOnlyTheStatusKnows(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status corev1.ContainerStatus
		want   string
	}{
		{"counts on", corev1.ContainerStatus{Name: "a", RestartCount: 4}, "a#5"},
		{"counts the first instance", corev1.ContainerStatus{Name: "a", ContainerID: "fake://x"}, "a#1"},
		{"does not count one that never was", corev1.ContainerStatus{Name: "a"}, "a#0"},
		{"has counted one after a restart of all containers", counted(3, "RestartingAllContainers", ""), "a#3"},
		{"has counted one after a run that nobody saw end", counted(3, "ContainerStatusUnknown", ""), "a#3"},
		{"counts the instance that it has", counted(3, "RestartingAllContainers", "fake://x"), "a#4"},
		{"counts on after an end that was seen", counted(3, "Error", ""), "a#4"},
		{"is its own", corev1.ContainerStatus{Name: "b", RestartCount: 4}, "a#0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, p := newNode(t), pod("Always", "a")
			p.Status.ContainerStatuses = []corev1.ContainerStatus{tt.status}
			n.must(p)
			n.wantRunning(p, tt.want)
		})
	}
}

// counted is a status of a that waits, after an end with the reason.
func counted(n int32, reason, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: "a", ContainerID: id, RestartCount: n,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason}},
	}
}

// imageVolume adds a volume that is an image, and mounts it in the containers.
func imageVolume(p *corev1.Pod, name, image string, containers ...string) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: image, PullPolicy: corev1.PullAlways},
	}})
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; slices.Contains(containers, c.Name) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
	}
	return p
}

func TestImageVolumes(t *testing.T) {
	pulls := func(n *node) string {
		var all []string
		for _, c := range n.rt.Calls() {
			if c.Method == "PullImage" {
				all = append(all, c.Request.(*runtimeapi.PullImageRequest).Image.Image)
			}
		}
		return strings.Join(all, " ")
	}
	t.Run("are there when a spec is asked for, each pulled once by its own policy", func(t *testing.T) {
		n := newNode(t)
		p := imageVolume(imageVolume(pod("Always", "a", "b", "c"), "data", "data:1", "b", "c"), "more", "more:1", "c")
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "unused", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "unused:1"}}})
		var got []string
		n.spec = func(s podruntime.Start) (podruntime.ContainerSpec, error) {
			got = append(got, fmt.Sprint(s.Name, " ", len(s.Images), " ", s.Images["data"].ID != ""))
			return podruntime.ContainerSpec{}, nil
		}
		n.must(p)
		if want := "[a 0 false b 1 true c 2 true]"; fmt.Sprint(got) != want {
			t.Errorf("specs = %v, want %s", got, want)
		}
		if got := pulls(n); got != "img:1 data:1 more:1" {
			t.Errorf("pulls = %s", got)
		}
		if n.counts["volume data of b: <nil>"] != 1 || n.counts["volume data of c: <nil>"] != 1 || n.counts["volume more of c: <nil>"] != 1 {
			t.Errorf("counts = %v", n.counts)
		}
		id, _ := n.rt.FindContainer("uid-1", "c")
		if err := n.rt.Kill(id, 1); err != nil {
			t.Fatal(err)
		}
		n.rt.ForgetCalls()
		n.must(p)
		if got := pulls(n); got != "data:1 more:1" {
			t.Errorf("pulls of a restart = %s, want policy Always", got)
		}
	})
	t.Run("fail only the containers that mount them", func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Behavior{})
		n.rt.Inject(critest.Fault{Method: "PullImage", Err: errors.New("no such host")})
		p := imageVolume(pod("Always", "a", "b", "c"), "data", "data:1", "a", "c")
		_, result, _ := n.sync(t.Context(), p)
		for _, name := range []string{"a", "c"} {
			if f := result.Failures[name]; f.Reason != "ErrImagePull" || f.Message != "image of volume data: no such host" {
				t.Errorf("failure of %s = %+v", name, f)
			}
		}
		n.wantRunning(p, "b#0")
		if got := pulls(n); got != "data:1" {
			t.Errorf("pulls = %s, want one for both", got)
		}
		_, result, _ = n.sync(t.Context(), p)
		if f := result.Failures["a"]; f.Reason != "ImagePullBackOff" || f.RetryAt.IsZero() {
			t.Errorf("second failure = %+v", f)
		}
	})
	t.Run("are named when the runtime does not make the container", func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Behavior{})
		n.rt.AddImage("data:1", critest.Behavior{})
		for _, name := range []string{"a", "b"} {
			n.rt.Inject(critest.Fault{Method: "CreateContainer", Container: name, Err: errors.New("mkdir : no such file")})
		}
		_, result, _ := n.sync(t.Context(), imageVolume(pod("Always", "a", "b"), "data", "data:1", "a"))
		if f := result.Failures["a"]; f.Reason != "CreateContainerError" || !strings.Contains(f.Message, "mkdir : no such file (the container mounts an image as a volume, ") {
			t.Errorf("failure = %+v", f)
		}
		if f := result.Failures["b"]; f.Message != "mkdir : no such file" {
			t.Errorf("failure of the other = %+v", f)
		}
	})
}

func TestAContainerThatMustNotBeRootIsNotMade(t *testing.T) {
	n, p := newNode(t), pod("Always", "a", "b")
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(0))}
	_, result, _ := n.sync(t.Context(), p)
	if f := result.Failures["a"]; f.Reason != "CreateContainerConfigError" || !strings.Contains(f.Message, "breaks non-root policy") {
		t.Errorf("failure = %+v", f)
	}
	n.wantRunning(p, "b#0")
}

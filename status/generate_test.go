package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

var (
	t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	t1 = t0.Add(time.Minute)
	t2 = t0.Add(2 * time.Minute)
)

// newPod has one regular container per name, an init container per "init:name"
// and a sidecar per "side:name".
func newPod(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1", Generation: 3}}
	pod.Spec.RestartPolicy = policy
	always := corev1.ContainerRestartPolicyAlways
	for _, n := range names {
		kind, name, ok := strings.Cut(n, ":")
		if !ok {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: n, Image: n + ":1"})
			continue
		}
		c := corev1.Container{Name: name, Image: name + ":1"}
		if kind == "side" {
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	return pod
}

// seen makes the observed pod with a ready sandbox, containers newest first.
func seen(containers ...observed.Container) observed.Pod {
	for i := range containers {
		containers[i].Sandbox = "s0"
		containers[i].CreatedAt = t0.Add(-time.Duration(i) * time.Second)
	}
	return observed.Pod{
		UID: "u1", Namespace: "default", Name: "web",
		Sandboxes:  []observed.Sandbox{{ID: "s0", Ready: true, CreatedAt: t0, IPs: []string{"10.0.0.7"}, NetworkReported: true}},
		Containers: containers,
	}
}

func noSandbox(containers ...observed.Container) observed.Pod {
	p := seen(containers...)
	p.Sandboxes = nil
	return p
}

func runs(name, id string) observed.Container {
	return observed.Container{ID: observed.ContainerID(id), Name: name, State: observed.Running, Image: name + ":1", StartedAt: t0}
}

func ended(name, id string, code int32) observed.Container {
	return observed.Container{ID: observed.ContainerID(id), Name: name, State: observed.Exited, Image: name + ":1", ExitCode: code, StartedAt: t0, FinishedAt: t1}
}

func inState(c observed.Container, s observed.State) observed.Container {
	c.State = s
	return c
}

func counted(c observed.Container, n int) observed.Container {
	c.RestartCount = n
	return c
}

func input(pod *corev1.Pod, s observed.Pod) status.Input {
	return status.Input{Pod: pod, Seen: s, Now: t2, RuntimeName: "fake", HostIPs: []string{"192.0.2.1"}}
}

// short is a container status in a few words.
func short(cs corev1.ContainerStatus) string {
	word := func(s corev1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "running"
		case s.Terminated != nil:
			return "ended " + s.Terminated.Reason + " " + s.Terminated.ContainerID
		case s.Waiting != nil:
			return strings.TrimSpace("waiting " + s.Waiting.Reason)
		}
		return "none"
	}
	out := word(cs.State) + " | last " + word(cs.LastTerminationState)
	if cs.RestartCount > 0 {
		out += " | restarts " + string(rune('0'+cs.RestartCount))
	}
	if cs.Ready {
		out += " | ready"
	}
	return out
}

func statusOf(t *testing.T, st corev1.PodStatus, name string) corev1.ContainerStatus {
	t.Helper()
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for _, cs := range list {
			if cs.Name == name {
				return cs
			}
		}
	}
	t.Fatalf("no status of container %s", name)
	return corev1.ContainerStatus{}
}

func TestContainerStates(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	crash := map[string]status.Failure{"app": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}, "i": {Reason: "ErrImagePull"}}
	cases := []struct {
		name     string
		pod      *corev1.Pod
		before   []observed.Pod // each makes one status, without failures
		seen     observed.Pod
		failures map[string]status.Failure
		deleted  bool
		terminal bool
		c        string
		want     string
	}{
		{name: "not created yet", pod: newPod(always, "app"), seen: seen(), c: "app",
			want: "waiting ContainerCreating | last none"},
		{name: "not created yet, with init containers", pod: newPod(always, "init:i", "app"), seen: seen(), c: "app",
			want: "waiting PodInitializing | last none"},
		{name: "the init container itself waits for initialization", pod: newPod(always, "init:i", "app"), seen: seen(), c: "i",
			want: "waiting PodInitializing | last none"},
		{name: "created", pod: newPod(always, "app"), seen: seen(inState(runs("app", "a"), observed.Created)), c: "app",
			want: "waiting | last none"},
		{name: "running", pod: newPod(always, "app"), seen: seen(runs("app", "a")), c: "app",
			want: "running | last none | ready"},
		{name: "exited 0 without a reason of the runtime", pod: newPod(always, "app"), seen: seen(ended("app", "a", 0)), c: "app",
			want: "ended Completed fake://a | last none"},
		{name: "exited 1 without a reason of the runtime", pod: newPod(always, "app"), seen: seen(ended("app", "a", 1)), c: "app",
			want: "ended Error fake://a | last none"},
		{name: "the second instance is the last state, the third is nothing", pod: newPod(always, "app"),
			seen: seen(counted(runs("app", "c"), 2), counted(ended("app", "b", 1), 1), ended("app", "a", 1)), c: "app",
			want: "running | last ended Error fake://b | restarts 2 | ready"},
		{name: "the last state survives the removal of its record", pod: newPod(always, "app"),
			before: []observed.Pod{seen(counted(runs("app", "b"), 1), ended("app", "a", 1))},
			seen:   seen(counted(runs("app", "b"), 1)), c: "app",
			want: "running | last ended Error fake://a | restarts 1 | ready"},
		{name: "the end reported before becomes the last state of the next instance", pod: newPod(always, "app"),
			before: []observed.Pod{seen(ended("app", "a", 1))},
			seen:   seen(counted(runs("app", "b"), 1)), c: "app",
			want: "running | last ended Error fake://a | restarts 1 | ready"},
		{name: "a new instance after an end is a restart even if its count was lost", pod: newPod(always, "app"),
			before: []observed.Pod{seen(counted(ended("app", "a", 1), 4))},
			seen:   seen(runs("app", "b")), c: "app",
			want: "running | last ended Error fake://a | restarts 5 | ready"},
		{name: "the same end seen twice is no restart", pod: newPod(always, "app"),
			before: []observed.Pod{seen(counted(ended("app", "a", 1), 4))},
			seen:   seen(counted(ended("app", "a", 1), 4)), c: "app",
			want: "ended Error fake://a | last none | restarts 4"},
		{name: "the restart count never falls", pod: newPod(always, "app"),
			before: []observed.Pod{seen(counted(runs("app", "a"), 4))},
			seen:   seen(counted(runs("app", "a"), 2)), c: "app",
			want: "running | last none | restarts 4 | ready"},
		{name: "an end is kept when the record is gone", pod: newPod(never, "app"),
			before: []observed.Pod{seen(ended("app", "a", 3))}, seen: seen(), c: "app",
			want: "ended Error fake://a | last none"},
		{name: "a running container that vanished has ended", pod: newPod(always, "app"),
			before: []observed.Pod{seen(runs("app", "a"))}, seen: seen(), c: "app",
			want: "waiting ContainerCreating | last ended ContainerStatusUnknown fake://a | restarts 1"},
		{name: "its end is counted once", pod: newPod(always, "app"),
			before: []observed.Pod{seen(runs("app", "a")), seen()}, seen: seen(), c: "app",
			want: "waiting ContainerCreating | last ended ContainerStatusUnknown fake://a | restarts 1"},
		{name: "it counts even after an older end", pod: newPod(always, "app"),
			before: []observed.Pod{seen(counted(runs("app", "b"), 1), ended("app", "a", 0))}, seen: seen(), c: "app",
			want: "waiting ContainerCreating | last ended ContainerStatusUnknown fake://b | restarts 2"},
		{name: "vanished from a deleted pod is no restart", pod: newPod(always, "app"), deleted: true,
			before: []observed.Pod{seen(runs("app", "a"))}, seen: seen(), c: "app",
			want: "waiting ContainerCreating | last ended ContainerStatusUnknown fake://a"},
		{name: "unknown after running has ended", pod: newPod(always, "app"),
			before: []observed.Pod{seen(runs("app", "a"))}, seen: seen(inState(runs("app", "a"), observed.Unknown)), c: "app",
			want: "ended ContainerStatusUnknown fake://a | last none"},
		{name: "and stays so", pod: newPod(always, "app"),
			before: []observed.Pod{seen(runs("app", "a")), seen(inState(runs("app", "a"), observed.Unknown))},
			seen:   seen(inState(runs("app", "a"), observed.Unknown)), c: "app",
			want: "ended ContainerStatusUnknown fake://a | last none"},
		{name: "unknown from the start waits", pod: newPod(always, "app"),
			seen: seen(inState(runs("app", "a"), observed.Unknown)), c: "app",
			want: "waiting | last none"},
		{name: "a failed start of a container that never ran", pod: newPod(always, "app"), seen: seen(), failures: crash, c: "app",
			want: "waiting CrashLoopBackOff | last none"},
		{name: "a failed start moves the end to the last state", pod: newPod(always, "app"), seen: seen(ended("app", "a", 1)), failures: crash, c: "app",
			want: "waiting CrashLoopBackOff | last ended Error fake://a"},
		{name: "no failure leaves the end where it is", pod: newPod(always, "app"), seen: seen(ended("app", "a", 1)), c: "app",
			want: "ended Error fake://a | last none"},
		{name: "no failure is shown for what may not restart", pod: newPod(never, "app"), seen: seen(ended("app", "a", 1)), failures: crash, c: "app",
			want: "ended Error fake://a | last none"},
		{name: "nor for what has succeeded under OnFailure", pod: newPod(onFailure, "app"), seen: seen(ended("app", "a", 0)), failures: crash, c: "app",
			want: "ended Completed fake://a | last none"},
		{name: "nor when the record of the end is gone", pod: newPod(never, "app"),
			before: []observed.Pod{seen(ended("app", "a", 1))}, seen: seen(), failures: crash, c: "app",
			want: "ended Error fake://a | last none"},
		{name: "nor for a running one", pod: newPod(always, "app"), seen: seen(runs("app", "a")), failures: crash, c: "app",
			want: "running | last none | ready"},
		{name: "nor in a deleted pod", pod: newPod(always, "app"), deleted: true, seen: seen(ended("app", "a", 1)), failures: crash, c: "app",
			want: "ended Error fake://a | last none"},
		{name: "nor in a pod that is being stopped", pod: newPod(always, "app"), terminal: true, seen: seen(ended("app", "a", 1)), failures: crash, c: "app",
			want: "ended Error fake://a | last none"},
		{name: "an init container that is through shows no failure", pod: newPod(always, "init:i", "app"), seen: seen(ended("i", "a", 0)), failures: crash, c: "i",
			want: "ended Completed fake://a | last none | ready"},
		{name: "an init container that failed does", pod: newPod(always, "init:i", "app"), seen: seen(ended("i", "a", 2)), failures: crash, c: "i",
			want: "waiting ErrImagePull | last ended Error fake://a"},
		{name: "an init container forgotten before the app ran must have succeeded", pod: newPod(always, "init:i", "app"), seen: seen(runs("app", "a")), c: "i",
			want: "ended Completed  | last none | ready"},
		{name: "even if its start had failed before", pod: newPod(always, "init:i", "app"), seen: seen(runs("app", "a")), failures: crash, c: "i",
			want: "ended Completed  | last none | ready"},
		{name: "but an exit code that was seen is not replaced", pod: newPod(onFailure, "init:i", "app"),
			before: []observed.Pod{seen(ended("i", "i", 3))}, seen: seen(runs("app", "a")), c: "i",
			want: "ended Error fake://i | last none"},
		{name: "a sidecar forgotten then has not", pod: newPod(always, "side:i", "app"), seen: seen(runs("app", "a")), c: "i",
			want: "waiting PodInitializing | last none"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var last corev1.PodStatus
			for _, s := range c.before {
				in := input(c.pod, s)
				in.Last = last
				last = status.Generate(in)
			}
			if c.deleted {
				c.pod.DeletionTimestamp = &metav1.Time{Time: t1}
			}
			in := input(c.pod, c.seen)
			in.Last, in.Failures, in.Terminal = last, c.failures, c.terminal
			if got := short(statusOf(t, status.Generate(in), c.c)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestContainerStatusFields(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "init:z", "init:a", "web", "app")
	gone := runs("removed-from-spec", "x")
	app := runs("app", "a")
	app.ImageID, app.ImageRef = "sha256:1", "registry.example/app@sha256:2"
	app.Image = ""
	bad := ended("web", "w", 9)
	bad.Reason, bad.Message = "OOMKilled", "too much"
	st := status.Generate(input(pod, seen(app, bad, gone, ended("z", "z", 0), ended("a", "a", 0))))
	var names []string
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, cs := range list {
			names = append(names, cs.Name)
		}
	}
	if want := []string{"z", "a", "app", "web"}; !cmp.Equal(names, want) {
		t.Errorf("order = %v, want %v: init in spec order, regular by name, others dropped", names, want)
	}
	yes := true
	want := corev1.ContainerStatus{
		Name: "app", Image: "app:1", ImageID: "registry.example/app@sha256:2", ContainerID: "fake://a", Ready: true, Started: &yes,
		Resources: &corev1.ResourceRequirements{},
		State:     corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}},
	}
	if diff := cmp.Diff(want, statusOf(t, st, "app")); diff != "" {
		t.Errorf("app (-want +got):\n%s", diff)
	}
	wantEnd := &corev1.ContainerStateTerminated{ExitCode: 9, Reason: "OOMKilled", Message: "too much",
		StartedAt: metav1.NewTime(t0), FinishedAt: metav1.NewTime(t1), ContainerID: "fake://w"}
	if diff := cmp.Diff(wantEnd, statusOf(t, st, "web").State.Terminated); diff != "" {
		t.Errorf("web (-want +got):\n%s", diff)
	}
}

func TestProbes(t *testing.T) {
	type answer struct{ known, ok bool }
	cases := []struct {
		name           string
		ready, started answer
		lastReady      bool // the same instance was reported ready, and so was the pod
		sameInstance   bool
		wantReady      bool
		wantStarted    bool
	}{
		{name: "both succeed", ready: answer{true, true}, started: answer{true, true}, wantReady: true, wantStarted: true},
		{name: "not started is not ready", ready: answer{true, true}, started: answer{true, false}},
		{name: "started, not ready", ready: answer{true, false}, started: answer{true, true}, wantStarted: true},
		{name: "nothing known of a new instance", lastReady: true},
		{name: "nothing known after a restart of the agent keeps what was", lastReady: true, sameInstance: true, wantReady: true, wantStarted: true},
		{name: "nothing known and it was not ready", sameInstance: true},
		{name: "a known result goes before what was", ready: answer{true, false}, lastReady: true, sameInstance: true, wantStarted: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
			pod.Spec.Containers[0].StartupProbe = &corev1.Probe{}
			before := "other"
			if c.sameInstance {
				before = "a"
			}
			in := input(pod, seen(runs("app", before)))
			in.Ready = func(string, observed.ContainerID) (bool, bool) { return true, c.lastReady }
			in.Started = in.Ready
			last := status.Generate(in)

			in = input(pod, seen(runs("app", "a")))
			in.Last = last
			in.Ready = func(name string, id observed.ContainerID) (bool, bool) {
				if name != "app" || id != "a" {
					t.Errorf("asked for %s %s", name, id)
				}
				return c.ready.known, c.ready.ok
			}
			in.Started = func(string, observed.ContainerID) (bool, bool) { return c.started.known, c.started.ok }
			cs := statusOf(t, status.Generate(in), "app")
			if cs.Ready != c.wantReady || *cs.Started != c.wantStarted {
				t.Errorf("ready %v started %v, want %v %v", cs.Ready, *cs.Started, c.wantReady, c.wantStarted)
			}
		})
	}
}

func TestEphemeralContainers(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "d:1"}}}
	failure := map[string]status.Failure{"debug": {Reason: "ErrImagePull"}}

	in := input(pod, seen(runs("app", "a")))
	in.Failures = failure
	if got, want := short(statusOf(t, status.Generate(in), "debug")), "waiting ErrImagePull | last none"; got != want {
		t.Errorf("never started: %s, want %s", got, want)
	}
	in.Seen = seen(runs("app", "a"), ended("debug", "d", 1))
	st := status.Generate(in)
	if got, want := short(statusOf(t, st, "debug")), "ended Error fake://d | last none"; got != want {
		t.Errorf("ended: %s, want %s: it is never restarted", got, want)
	}
	if st.Phase != corev1.PodRunning {
		t.Errorf("phase = %s: an ephemeral container has no say in it", st.Phase)
	}
	in.Seen = seen(runs("app", "a"), runs("debug", "d"))
	if cs := statusOf(t, status.Generate(in), "debug"); cs.Ready || cs.Started != nil {
		t.Errorf("running: ready %v started %v, want neither", cs.Ready, cs.Started)
	}
}

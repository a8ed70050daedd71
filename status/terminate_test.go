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

func TestTerminate(t *testing.T) {
	always, never := corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	cases := []struct {
		name   string
		pod    *corev1.Pod
		seen   observed.Pod
		static bool
		phase  corev1.PodPhase
		want   map[string]string
	}{
		{name: "a pod that never started", pod: newPod(always, "app"), seen: observed.Pod{}, phase: corev1.PodFailed,
			want: map[string]string{"app": "ended ContainerStatusUnknown  | last none"}},
		{name: "a container that nobody saw ending", pod: newPod(always, "app"), seen: seen(runs("app", "a")), phase: corev1.PodFailed,
			want: map[string]string{"app": "ended ContainerStatusUnknown fake://a | last none"}},
		{name: "a container that waited for its next start keeps its exit code", pod: newPod(always, "app"),
			seen: seen(inState(runs("app", "b"), observed.Created), ended("app", "a", 3)), phase: corev1.PodFailed,
			want: map[string]string{"app": "ended Error fake://a | last none"}},
		{name: "a result stands", pod: newPod(never, "app"), seen: seen(ended("app", "a", 0)), phase: corev1.PodSucceeded,
			want: map[string]string{"app": "ended Completed fake://a | last none"}},
		{name: "only the first init container may have run", pod: newPod(always, "init:i", "init:j", "app"), seen: observed.Pod{}, phase: corev1.PodFailed,
			want: map[string]string{
				"i":   "ended ContainerStatusUnknown  | last none",
				"j":   "waiting PodInitializing | last none",
				"app": "waiting PodInitializing | last none",
			}},
		{name: "init containers up to the last one that ran", pod: newPod(always, "init:i", "init:j", "init:k", "app"), seen: seen(runs("j", "2")), phase: corev1.PodFailed,
			want: map[string]string{
				"i":   "ended ContainerStatusUnknown  | last none",
				"j":   "ended ContainerStatusUnknown fake://2 | last none",
				"k":   "waiting PodInitializing | last none",
				"app": "waiting PodInitializing | last none",
			}},
		{name: "after the last init container the app may have run", pod: newPod(always, "init:i", "app"), seen: seen(ended("i", "1", 0)), phase: corev1.PodFailed,
			want: map[string]string{
				"i":   "ended Completed fake://1 | last none | ready",
				"app": "ended ContainerStatusUnknown  | last none",
			}},
		{name: "and after the last sidecar has started", pod: newPod(always, "side:s", "app"), seen: seen(runs("s", "1")), phase: corev1.PodFailed,
			want: map[string]string{
				"s":   "ended ContainerStatusUnknown fake://1 | last none",
				"app": "ended ContainerStatusUnknown  | last none",
			}},
		{name: "a static pod has no result of its own", pod: newPod(always, "app"), seen: seen(runs("app", "a")), static: true, phase: corev1.PodRunning,
			want: map[string]string{"app": "ended ContainerStatusUnknown fake://a | last none"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.static {
				c.pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
			}
			before := status.Generate(input(c.pod, c.seen))
			copied := *before.DeepCopy()
			st := status.Terminate(c.pod, before, t2)
			if diff := cmp.Diff(copied, before); diff != "" {
				t.Errorf("Terminate changed its argument:\n%s", diff)
			}
			if st.Phase != c.phase {
				t.Errorf("phase = %s, want %s", st.Phase, c.phase)
			}
			for name, want := range c.want {
				if got := short(statusOf(t, st, name)); got != want {
					t.Errorf("%s: %s\nwant %s", name, got, want)
				}
			}
			if got := conditionOf(t, st, corev1.PodReady); !strings.HasPrefix(got, "False") {
				t.Errorf("Ready = %s", got)
			}
		})
	}
}

func TestTerminateEndsALookAtThePod(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	for _, name := range []string{"ran", "waits"} {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers,
			corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
	}
	st := status.Terminate(pod, status.Generate(input(pod, seen(runs("app", "a"), runs("ran", "e")))), t2)
	for name, want := range map[string]string{"ran": "ended ContainerStatusUnknown fake://e | last none", "waits": "waiting ContainerCreating | last none"} {
		cs := statusOf(t, st, name)
		if got := short(cs); got != want || cs.Started != nil {
			t.Errorf("%s: %s, started %v, want %s", name, got, cs.Started, want)
		}
	}
}

func TestTerminateMovesTransitionTimes(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	in := input(pod, seen(runs("app", "a")))
	in.Now = t0
	st := status.Terminate(pod, status.Generate(in), t2)
	for _, c := range st.Conditions {
		want := t0
		if c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			want = t2
		}
		if !c.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s changed at %v, want %v", c.Type, c.LastTransitionTime, want)
		}
	}
	if got := conditionOf(t, st, corev1.PodReady); got != "False PodFailed" {
		t.Errorf("Ready = %s", got)
	}
}

func TestDeadlineExceeded(t *testing.T) {
	ten := int64(10)
	start := &metav1.Time{Time: t0}
	cases := []struct {
		name     string
		deadline *int64
		start    *metav1.Time
		now      time.Time
		want     bool
		at       time.Time
	}{
		{"no deadline", nil, start, t2, false, time.Time{}},
		{"not started", &ten, nil, t2, false, time.Time{}},
		{"before", &ten, start, t0.Add(9 * time.Second), false, t0.Add(10 * time.Second)},
		{"at", &ten, start, t0.Add(10 * time.Second), true, t0.Add(10 * time.Second)},
		{"after", &ten, start, t2, true, t0.Add(10 * time.Second)},
	}
	for _, c := range cases {
		pod := newPod(corev1.RestartPolicyAlways, "app")
		pod.Spec.ActiveDeadlineSeconds = c.deadline
		got, at := status.DeadlineExceeded(pod, corev1.PodStatus{StartTime: c.start}, c.now)
		if got != c.want || !at.Equal(c.at) {
			t.Errorf("%s: %v %v, want %v %v", c.name, got, at, c.want, c.at)
		}
	}
}

func TestNormalize(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "init:z", "init:a", "b", "c")
	long := strings.Repeat("ü", 3000) // 6000 bytes; the limit is 12288/4 = 3072
	late := metav1.NewTime(t0.Add(700 * time.Millisecond).In(time.FixedZone("x", 3600)))
	in := corev1.PodStatus{
		StartTime:             &late,
		Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: late}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "a"}, {Name: "z"}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: late}}},
			{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "x" + long, FinishedAt: late}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: long}}},
		},
	}
	copied := *in.DeepCopy()
	st := status.Normalize(pod, in)
	if diff := cmp.Diff(copied, in); diff != "" {
		t.Errorf("Normalize changed its argument:\n%s", diff)
	}
	second := metav1.NewTime(t0)
	want := corev1.PodStatus{
		StartTime:             &second,
		Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: second}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "z"}, {Name: "a"}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "b", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "x" + strings.Repeat("ü", 1535), FinishedAt: second}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: strings.Repeat("ü", 1536)}}},
			{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: second}}},
		},
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(st, status.Normalize(pod, st)); diff != "" {
		t.Errorf("a second time changes it:\n%s", diff)
	}
}

func TestRecall(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "init:i", "app", "log")
	full := seen(ended("i", "1", 0), counted(ended("app", "2", 3), 2), runs("log", "3"))
	last := status.Generate(input(pod, full))

	if got := status.Recall(pod, full, last); !cmp.Equal(got, full) {
		t.Errorf("nothing is missing, but: %s", cmp.Diff(full, got))
	}
	left := seen()
	got := status.Recall(pod, left, last)
	if len(left.Containers) != 0 {
		t.Error("Recall changed what was seen")
	}
	app, _ := got.Container("app")
	want := observed.Container{ID: "2", Sandbox: "s0", Name: "app", RestartCount: 2, State: observed.Exited, Image: "app:1",
		CreatedAt: t0, StartedAt: t0, FinishedAt: t1, ExitCode: 3, Reason: "Error"}
	if diff := cmp.Diff(want, app); diff != "" {
		t.Errorf("app (-want +got):\n%s", diff)
	}
	if i, ok := got.Container("i"); !ok || i.ExitCode != 0 {
		t.Errorf("init container: %+v %v", i, ok)
	}
	log, _ := got.Container("log")
	if log.State != observed.Exited || log.ExitCode != 137 || log.Reason != "ContainerStatusUnknown" {
		t.Errorf("the one that ran when last reported: %+v", log)
	}
	// A sandbox that is younger than the container was not its.
	left.Sandboxes[0].CreatedAt = t2
	if app, _ := status.Recall(pod, left, last).Container("app"); app.Sandbox != "" {
		t.Errorf("sandbox = %q, want none", app.Sandbox)
	}
	if got := status.Recall(pod, seen(), corev1.PodStatus{}); len(got.Containers) != 0 {
		t.Errorf("recalled from nothing: %v", got.Containers)
	}
}

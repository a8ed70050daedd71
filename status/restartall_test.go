package status_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

// withRule makes an exit of the container with code restart the whole pod.
func withRule(pod *corev1.Pod, name string, code int32) {
	never := corev1.ContainerRestartPolicyNever
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			c.RestartPolicy = &never
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}},
			}}
		}
	}
}

// held makes containers that the runtime has: they carry a hash.
func held(list ...observed.Container) []observed.Container {
	for i := range list {
		list[i].Hash = "1"
	}
	return list
}

// TestAllContainersRestart follows a pod through the restart of all its containers,
// the way podsync does: recalled, reported, decided. An agent that is restarted
// between any two steps, with nothing but the file, sees the same.
func TestAllContainersRestart(t *testing.T) {
	never := corev1.RestartPolicyNever
	steps := []struct {
		name  string
		seen  []observed.Container
		phase corev1.PodPhase
		cond  string
		want  []string // init, app, done
	}{
		{"all is well", held(ended("i", "i0", 0), runs("app", "a0"), ended("done", "d0", 0)), "Running", "False", []string{
			"ended Completed fake://i0 | last none | ready", "running | last none | ready", "ended Completed fake://d0 | last none"}},
		{"the app exits with 42", held(ended("i", "i0", 0), ended("app", "a0", 42), ended("done", "d0", 0)), "Running",
			"True RestartAllContainersStarted container exited with restart policy rule", []string{
				"ended Completed fake://i0 | last none | ready", "ended Error fake://a0 | last none", "ended Completed fake://d0 | last none"}},
		{"one is removed", held(ended("i", "i0", 0), ended("app", "a0", 42)), "Running",
			"True RestartAllContainersStarted container exited with restart policy rule", []string{
				"ended Completed fake://i0 | last none | ready", "ended Error fake://a0 | last none", "waiting RestartingAllContainers | last ended RestartingAllContainers fake://d0 | restarts 1"}},
		{"all are removed", nil, "Running", "False", []string{
			"waiting RestartingAllContainers | last ended RestartingAllContainers fake://i0 | restarts 1",
			"waiting RestartingAllContainers | last ended RestartingAllContainers fake://a0 | restarts 1",
			"waiting RestartingAllContainers | last ended RestartingAllContainers fake://d0 | restarts 1"}},
		{"nothing has started yet", nil, "Running", "False", []string{
			"waiting PodInitializing | last ended RestartingAllContainers fake://i0 | restarts 1",
			"waiting PodInitializing | last ended RestartingAllContainers fake://a0 | restarts 1",
			"waiting PodInitializing | last ended RestartingAllContainers fake://d0 | restarts 1"}},
		{"the init container runs again", held(counted(runs("i", "i1"), 1)), "Running", "False", []string{
			"running | last ended RestartingAllContainers fake://i0 | restarts 1",
			"waiting PodInitializing | last ended RestartingAllContainers fake://a0 | restarts 1",
			"waiting PodInitializing | last ended RestartingAllContainers fake://d0 | restarts 1"}},
		{"the others run, too", held(counted(ended("i", "i1", 0), 1), counted(runs("app", "a1"), 1), counted(runs("done", "d1"), 1)), "Running", "False", []string{
			"ended Completed fake://i1 | last ended RestartingAllContainers fake://i0 | restarts 1 | ready",
			"running | last ended RestartingAllContainers fake://a0 | restarts 1 | ready",
			"running | last ended RestartingAllContainers fake://d0 | restarts 1 | ready"}},
		{"the app ends well, and done too", held(counted(ended("i", "i1", 0), 1), counted(ended("app", "a1", 0), 1), counted(ended("done", "d1", 0), 1)), "Succeeded", "False PodCompleted", []string{
			"ended Completed fake://i1 | last ended RestartingAllContainers fake://i0 | restarts 1 | ready",
			"ended Completed fake://a1 | last ended RestartingAllContainers fake://a0 | restarts 1",
			"ended Completed fake://d1 | last ended RestartingAllContainers fake://d0 | restarts 1"}},
	}
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("agent restarted at each step %v", restarted), func(t *testing.T) {
			cfg := status.StoreConfig{Dir: t.TempDir()}
			pod := newPod(never, "init:i", "app", "done")
			withRule(pod, "app", 42)
			store := newStore(t, cfg)
			for i, s := range steps {
				if restarted {
					store = newStore(t, cfg)
					if _, _, err := store.Load("u1"); err != nil {
						t.Fatal(err)
					}
				}
				last, _ := store.Get("u1")
				in := input(pod, status.Recall(pod, seen(s.seen...), last))
				in.Last, in.Now = last, t0.Add(time.Duration(i)*time.Minute)
				st := status.Generate(in)
				if _, err := store.Set(pod, st); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if st.Phase != s.phase || status.Decide(in) != s.phase {
					t.Errorf("%s: phase %s, decided %s, want %s", s.name, st.Phase, status.Decide(in), s.phase)
				}
				if got := conditionOf(t, st, corev1.AllContainersRestarting); got != s.cond {
					t.Errorf("%s: condition %s, want %s", s.name, got, s.cond)
				}
				if got := conditionOf(t, st, corev1.PodInitialized); i < len(steps)-1 && got != "True" {
					t.Errorf("%s: Initialized %s", s.name, got)
				}
				for j, name := range []string{"i", "app", "done"} {
					if got := short(statusOf(t, st, name)); got != s.want[j] {
						t.Errorf("%s: %s is\n     %s\nwant %s", s.name, name, got, s.want[j])
					}
				}
			}
		})
	}
}

func TestARestartOfAllContainersKeepsTheExitCode(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app", "other")
	withRule(pod, "app", 42)
	in := input(pod, seen(held(ended("app", "a0", 42), runs("other", "o0"))...))
	in.Last = status.Generate(in)
	in.Seen = seen()
	st := status.Generate(in)
	if end := statusOf(t, st, "app").LastTerminationState.Terminated; end.ExitCode != 42 || !end.FinishedAt.Time.Equal(t1) {
		t.Errorf("app: %+v, want the exit code that was seen", end)
	}
	if end := statusOf(t, st, "other").LastTerminationState.Terminated; end.ExitCode != 137 || end.ContainerID != "fake://o0" {
		t.Errorf("other: %+v, want that of KILL", end)
	}
}

func TestWhatDoesNotRestartAllContainers(t *testing.T) {
	exit := func(code int32) []observed.Container { return held(ended("app", "a0", code), runs("other", "o0")) }
	older := held(counted(runs("app", "a1"), 1), ended("app", "a0", 42), runs("other", "o0"))
	elsewhere := seen(exit(42)...)
	elsewhere.Sandboxes[0].ID = "s1"
	stopped := seen(exit(42)...)
	stopped.Sandboxes[0].Ready = false
	cases := []struct {
		name   string
		seen   observed.Pod
		change func(*status.Input)
		want   string
	}{
		{"it is asked for", seen(exit(42)...), nil, "True"},
		{"another exit code", seen(exit(1)...), nil, "False"},
		{"the instance before the newest", seen(older...), nil, "False"},
		{"an instance that is only remembered", seen(ended("app", "a0", 42), runs("other", "o0")), nil, "False"},
		{"an instance in another sandbox", elsewhere, nil, "False"},
		{"a sandbox that has ended, and everything with it", stopped, nil, "False"},
		{"a pod that is being stopped", seen(exit(42)...), func(in *status.Input) { in.Terminal = true }, "False"},
		{"a pod that is deleted", seen(exit(42)...), func(in *status.Input) { in.Pod.DeletionTimestamp = &metav1.Time{Time: t1} }, "False"},
		{"a pod that has failed", seen(exit(42)...), func(in *status.Input) { in.Last.Phase = corev1.PodFailed }, "False"},
		{"a pod without such a rule", seen(exit(42)...), func(in *status.Input) { in.Pod = newPod(corev1.RestartPolicyAlways, "app", "other") }, "absent"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app", "other")
			withRule(pod, "app", 42)
			in := input(pod, c.seen)
			if c.change != nil {
				c.change(&in)
			}
			if got, _, _ := strings.Cut(conditionOf(t, status.Generate(in), corev1.AllContainersRestarting), " "); got != c.want {
				t.Errorf("condition %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnEphemeralContainerIsNotWaitedForAndNotReset(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	withRule(pod, "app", 42)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	in := input(pod, seen(held(ended("app", "a", 42), runs("debug", "d"))...))
	in.Last = status.Generate(in)
	in.Seen = seen(held(runs("debug", "d"))...)
	st := status.Generate(in)
	if got := conditionOf(t, st, corev1.AllContainersRestarting); got != "False" {
		t.Errorf("condition %s: the look at the pod does not hold it up", got)
	}
	if got := short(statusOf(t, st, "debug")); got != "running | last none" {
		t.Errorf("debug is %s", got)
	}
}

func TestAStartThatFailsAfterTheRestartOfAllIsNotForgotten(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app", "done")
	withRule(pod, "app", 42)
	in := input(pod, seen(held(ended("app", "a", 42), ended("done", "d", 0))...))
	in.Failures = map[string]status.Failure{"app": {Reason: "ErrImagePull"}, "done": {Reason: "ErrImagePull"}}
	in.Last = status.Generate(in)
	if got := short(statusOf(t, in.Last, "app")); got != "ended Error fake://a | last none" {
		t.Errorf("while it lasts app is %s: nothing starts now", got)
	}
	in.Seen = seen()
	in.Last = status.Generate(in)
	st := status.Generate(in)
	want := "waiting ErrImagePull | last ended RestartingAllContainers fake://d | restarts 1"
	if got := short(statusOf(t, st, "done")); got != want || st.Phase != corev1.PodRunning {
		t.Errorf("done is %s, want %s; phase %s", got, want, st.Phase)
	}
	if got := status.Recall(pod, seen(), st); len(got.Containers) > 0 {
		t.Errorf("recalled %v: it would not start again", got.Containers)
	}
}

func TestStoreAcceptsARestartOfAllContainers(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app", "done")
	withRule(pod, "app", 42)
	store := newStore(t, status.StoreConfig{})
	in := input(pod, seen(held(runs("app", "a"), ended("done", "d", 0))...))
	set(t, store, pod, status.Generate(in))
	in.Last, _ = store.Get("u1")
	fresh := input(pod, seen(held(runs("app", "a"), runs("done", "e"))...))
	if _, err := store.Set(pod, status.Generate(fresh)); !errors.Is(err, status.ErrRejected) {
		t.Errorf("Set = %v, want it rejected: nobody asked for a restart", err)
	}
	in.Seen = seen(held(ended("app", "a", 42), ended("done", "d", 0))...)
	set(t, store, pod, status.Generate(in))
	in.Last, _ = store.Get("u1")
	in.Seen = seen()
	set(t, store, pod, status.Generate(in))
}

func TestARestartOfAllContainersIsOnDiskBeforeItBegins(t *testing.T) {
	cfg := status.StoreConfig{Dir: t.TempDir()}
	pod := newPod(corev1.RestartPolicyAlways, "init:i", "app")
	withRule(pod, "app", 42)
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.Containers[0].RestartPolicy = &always
	store := newStore(t, cfg)
	for _, s := range [][]observed.Container{
		held(counted(runs("app", "a"), 1), ended("i", "i", 0)),
		held(counted(ended("app", "a", 42), 1), ended("i", "i", 0)),
	} {
		in := input(pod, seen(s...))
		in.Last, _ = store.Get("u1")
		set(t, store, pod, status.Generate(in))
	}
	// Both are removed, and the agent ends before it has seen that.
	store = newStore(t, cfg)
	last, _, err := store.Load("u1")
	if err != nil {
		t.Fatal(err)
	}
	if got := status.Recall(pod, seen(), last); len(got.Containers) > 0 {
		t.Errorf("recalled %v: the init container would not run again", got.Containers)
	}
}

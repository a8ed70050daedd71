package status_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

var update = flag.Bool("update", false, "rewrite testdata")

// TestConditionsThroughALife writes down the conditions at each step of a pod's
// life and compares them with testdata/life.txt. -update rewrites the file.
func TestConditionsThroughALife(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "init:i", "side:s", "app")
	stopped := noSandbox()
	stopped.Sandboxes = []observed.Sandbox{{ID: "s0", CreatedAt: t0}}
	atEnd := seen(ended("i", "1", 0), ended("s", "2", 137), ended("app", "3", 0))
	atEnd.Sandboxes = stopped.Sandboxes
	steps := []struct {
		name string
		seen observed.Pod
	}{
		{"no sandbox", observed.Pod{}},
		{"sandbox ready", seen()},
		{"init runs", seen(runs("i", "1"))},
		{"init through, sidecar runs", seen(ended("i", "1", 0), runs("s", "2"))},
		{"app runs", seen(ended("i", "1", 0), runs("s", "2"), runs("app", "3"))},
		{"app ended, sidecar still runs", seen(ended("i", "1", 0), runs("s", "2"), ended("app", "3", 0))},
		{"all ended, sandbox stopped", atEnd},
		{"all records removed", stopped},
	}
	var b strings.Builder
	var last corev1.PodStatus
	for i, s := range steps {
		in := input(pod, s.seen)
		in.Last = last
		in.Now = t0.Add(time.Duration(i) * time.Minute)
		last = status.Generate(in)
		fmt.Fprintf(&b, "%s: %s\n", s.name, last.Phase)
		for _, c := range last.Conditions {
			line := fmt.Sprintf("    %-25s %-5s %s %s %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format("15:04"), c.Reason, c.Message)
			fmt.Fprintln(&b, strings.TrimRight(line, " "))
			if c.ObservedGeneration != 3 {
				t.Errorf("%s: generation of %s = %d, want 3", s.name, c.Type, c.ObservedGeneration)
			}
		}
	}
	golden := filepath.Join("testdata", "life.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func conditionOf(t *testing.T, st corev1.PodStatus, kind corev1.PodConditionType) string {
	t.Helper()
	for _, c := range st.Conditions {
		if c.Type == kind {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	return "absent"
}

func TestReadinessGates(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/a"}, {ConditionType: "example.com/b"}}
	in := input(pod, seen(runs("app", "a")))
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/b", Status: corev1.ConditionFalse}}
	want := `False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/a" does not exist., ` +
		`the status of pod readiness gate "example.com/b" is not "True", but False`
	st := status.Generate(in)
	if got := conditionOf(t, st, corev1.PodReady); got != want {
		t.Errorf("Ready = %s\nwant %s", got, want)
	}
	if got := conditionOf(t, st, corev1.ContainersReady); got != "True" {
		t.Errorf("ContainersReady = %s, want True: gates are not about containers", got)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "example.com/a", Status: corev1.ConditionTrue}, {Type: "example.com/b", Status: corev1.ConditionTrue}}
	if got := conditionOf(t, status.Generate(in), corev1.PodReady); got != "True" {
		t.Errorf("Ready = %s, want True", got)
	}
}

func TestConditionsOfOthersAreKept(t *testing.T) {
	foreign := corev1.PodCondition{Type: "example.com/a", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0), Message: "mine"}
	disrupted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet", LastTransitionTime: metav1.NewTime(t0)}
	pod := newPod(corev1.RestartPolicyAlways, "app")
	pod.Status.Conditions = []corev1.PodCondition{foreign, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "not ours"}}
	in := input(pod, seen(runs("app", "a")))
	in.Last.Conditions = []corev1.PodCondition{disrupted}
	var types []string
	st := status.Generate(in)
	for _, c := range st.Conditions {
		types = append(types, string(c.Type))
	}
	want := []string{"example.com/a", "DisruptionTarget", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.PodCondition{foreign, disrupted}, st.Conditions[:2]); diff != "" {
		t.Errorf("foreign ones (-want +got):\n%s", diff)
	}
}

func TestSandboxMessages(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	s := seen()
	s.Sandboxes[0].IPs = nil
	if got, want := conditionOf(t, status.Generate(input(pod, s)), corev1.PodReadyToStartContainers), "False PodSandboxNotReady pod sandbox has no IP address"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestUnreadyContainersAreNamed(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "side:s", "init:i", "a", "b")
	st := status.Generate(input(pod, seen(ended("s", "1", 1), runs("a", "2"), ended("b", "3", 1))))
	if got, want := conditionOf(t, st, corev1.ContainersReady), "False ContainersNotReady containers with unready status: [s b]"; got != want {
		t.Errorf("ContainersReady = %s, want %s", got, want)
	}
	st = status.Generate(input(pod, seen()))
	if got, want := conditionOf(t, st, corev1.PodInitialized), "False ContainersNotInitialized containers with incomplete status: [s i]"; got != want {
		t.Errorf("Initialized = %s, want %s", got, want)
	}
}

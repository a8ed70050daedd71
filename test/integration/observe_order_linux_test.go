package integration_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// trail is a folder of the host that the pods of a table leave lines in, each in
// one of its own: what was said there stays when the pod is gone.
type trail string

func newTrail(t *testing.T) trail { return trail(t.TempDir()) }

// volumes is the part of a pod's spec that makes the folder its volume "v".
func (d trail) volumes() string {
	return "  volumes: [{name: v, hostPath: {path: " + string(d) + "/NAME, type: DirectoryOrCreate}}]\n"
}

// with is a container that has the folder at /v.
func with(name, args string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    image: KK\n    args: %s\n    volumeMounts: [{name: v, mountPath: /v}]\n", name, args)
	for _, m := range more {
		b.WriteString("    " + m + "\n")
	}
	return b.String()
}

// step is a line that a container left, and when.
type step struct {
	at   time.Time
	text string
}

// steps are the lines of a file, in order.
func (d trail) steps(t *testing.T, s sight, file string) []step {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(d), s.Name, file))
	require.NoError(t, err)
	var all []step
	for line := range strings.Lines(string(data)) {
		when, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.Parse(time.RFC3339Nano, when)
		require.NoError(t, err)
		all = append(all, step{at, text})
	}
	return all
}

// texts are the lines alone.
func (d trail) texts(t *testing.T, s sight, file string) []string {
	t.Helper()
	var all []string
	for _, one := range d.steps(t, s, file) {
		all = append(all, one.text)
	}
	return all
}

// ran counts how often a container ran that appends to a file of its own.
func (d trail) ran(t *testing.T, s sight, file string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(d), s.Name, file))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	return strings.Count(string(data), "\n")
}

// wantRuns wants that many runs; one that has just begun may not have counted yet.
func (d trail) wantRuns(t *testing.T, s sight, file string, want int) {
	t.Helper()
	Eventually(t, 10*time.Second, func() error {
		if n := d.ran(t, s, file); n != want {
			return fmt.Errorf("%s of pod %s ran %d times, want %d", file, s.Name, n, want)
		}
		return nil
	})
}

// restarted waits for a container that runs again after so many ends.
func restarted(container string, times int32) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.Name == container && c.RestartCount >= times && c.State.Running != nil {
				return nil
			}
		}
		return fmt.Errorf("container %s has not been restarted %d times: %s", container, times, states(p))
	}
}

// exitOf is the end of a container that has ended.
func (s sight) exitOf(t *testing.T, container string) corev1.ContainerStateTerminated {
	t.Helper()
	end := s.Status(t, container).State.Terminated
	require.NotNil(t, end, "container %s has not ended: %s", container, states(s.Pod))
	return *end
}

func TestObserveTheOrderOfContainers(t *testing.T) {
	d := newTrail(t)
	observe(t, Options{}, []observation{
		{
			name: "init containers run to their end, one after the other, before all others",
			spec: d.volumes() + "  initContainers:\n" +
				with("i", `[seq, append, /v/f, i begins, ",", sleep, 200ms, ",", append, /v/f, i ends]`) +
				with("j", `[seq, append, /v/f, j begins, ",", sleep, 200ms, ",", append, /v/f, j ends]`) +
				"  containers:\n" + with("c", `[append, /v/f, c begins]`),
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"i begins", "i ends", "j begins", "j ends", "c begins"}, d.texts(t, s, "f"))
			},
		},
		{
			name: "an init container that fails for good fails the pod, and nothing after it runs",
			spec: d.volumes() + "  initContainers:\n" + with("i", `[append, /v/f, i, exit, "3"]`) + with("j", `[append, /v/f, j]`) +
				"  containers:\n" + with("c", `[append, /v/f, c]`),
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"i"}, d.texts(t, s, "f"))
				require.EqualValues(t, 3, s.exitOf(t, "i").ExitCode)
				require.Equal(t, "PodInitializing", s.Status(t, "j").State.Waiting.Reason)
				require.Equal(t, "PodInitializing", s.Status(t, "c").State.Waiting.Reason)
			},
		},
		{
			name: "an init container is tried again under OnFailure until it succeeds",
			spec: "  restartPolicy: OnFailure\n" + d.volumes() + "  initContainers:\n" + with("i", `[first, "1", /v/i, "4"]`) +
				"  containers:\n" + with("c", `[append, /v/f, c]`),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "i", 2)
				require.EqualValues(t, 1, s.Status(t, "i").RestartCount)
				require.EqualValues(t, 4, s.Status(t, "i").LastTerminationState.Terminated.ExitCode)
				require.Equal(t, []string{"c"}, d.texts(t, s, "f"))
			},
		},
		{
			name: "init containers do not run again when another container does",
			spec: "  restartPolicy: OnFailure\n" + d.volumes() + "  initContainers:\n" + with("i", `[append, /v/i, i]`) +
				"  containers:\n" + with("c", `[first, "1", /v/c, "5"]`),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				d.wantRuns(t, s, "i", 1)
				require.EqualValues(t, 1, s.Status(t, "c").RestartCount)
			},
		},
		{
			name: "a sidecar starts in its place among the init containers and runs beside the rest",
			spec: d.volumes() + "  initContainers:\n" +
				with("i", `[append, /v/f, i]`) +
				with("side", `[append, /v/f, side, trap]`, "restartPolicy: Always") +
				with("j", `[seq, sleep, 300ms, ",", append, /v/f, j]`) +
				"  containers:\n" + with("c", `[append, /v/f, c, sleep, forever]`),
			until: runs,
			check: func(t *testing.T, s sight) {
				Eventually(t, 10*time.Second, func() error {
					if n := d.ran(t, s, "f"); n != 4 {
						return fmt.Errorf("%d lines", n)
					}
					return nil
				})
				require.Equal(t, []string{"i", "side", "j", "c"}, d.texts(t, s, "f"))
				require.NotNil(t, s.Status(t, "side").State.Running)
				require.True(t, *s.Status(t, "side").Started)
				require.True(t, s.Status(t, "side").Ready)
			},
		},
		{
			name: "sidecars are told to end in reverse order, after the containers they serve, and their status does not count",
			spec: d.volumes() + "  initContainers:\n" +
				with("one", `[trap, --file, /v/f, --name, one, --exit, "9"]`, "restartPolicy: Always") +
				with("two", `[trap, --file, /v/f, --name, two, --delay, 500ms, --exit, "9"]`, "restartPolicy: Always") +
				"  containers:\n" + with("c", `[seq, sleep, 500ms, ",", append, /v/f, c ends]`),
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"c ends", "two SIGTERM", "one SIGTERM"}, d.texts(t, s, "f"))
				all := d.steps(t, s, "f")
				require.Greater(t, all[2].at.Sub(all[1].at), 450*time.Millisecond, "one did not wait for two's end")
				require.EqualValues(t, 9, s.exitOf(t, "one").ExitCode)
			},
		},
		{
			name: "a pod that is removed ends its containers, and then its sidecars in reverse order",
			spec: "  terminationGracePeriodSeconds: 8\n" + d.volumes() + "  initContainers:\n" +
				with("one", `[trap, --file, /v/f, --name, one]`, "restartPolicy: Always") +
				with("two", `[trap, --file, /v/f, --name, two]`, "restartPolicy: Always") +
				"  containers:\n" + with("c", `[seq, trap, --file, /v/f, --name, c]`) +
				with("d", `[seq, sleep, --term-delay, 1s, forever]`),
			until: runs,
			check: func(t *testing.T, s sight) {
				s.ready(t, "one", "two", "c")
				s.End(t)
				require.Equal(t, []string{"c SIGTERM", "two SIGTERM", "one SIGTERM"}, d.texts(t, s, "f"))
				all := d.steps(t, s, "f")
				require.Greater(t, all[1].at.Sub(all[0].at), 900*time.Millisecond, "two did not wait for d")
			},
		},
		{
			name: "a sidecar starts again whatever its exit status and the pod's policy are",
			spec: d.volumes() + "  initContainers:\n" +
				with("side", `[first, "1", /v/side, "0", trap]`, "restartPolicy: Always") +
				"  containers:\n" + with("c", `[sleep, forever]`),
			until: restarted("side", 1),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "side", 2)
				require.EqualValues(t, 0, s.Status(t, "side").LastTerminationState.Terminated.ExitCode)
				require.EqualValues(t, 0, s.Status(t, "c").RestartCount)
			},
		},
		{
			name: "a container starts only after the postStart hook of the one before it",
			spec: d.volumes() + "  containers:\n" +
				with("c", `[sleep, 3s]`, "lifecycle: {postStart: {sleep: {seconds: 1}}}") + with("d", `[exit, "0"]`),
			check: func(t *testing.T, s sight) {
				gap := at(s.Container(t, "d").CreatedAt).Sub(at(s.Container(t, "c").StartedAt))
				require.Greater(t, gap, 990*time.Millisecond)
				require.Less(t, gap, 2500*time.Millisecond)
			},
		},
		{
			name: "what comes after a sidecar waits for its postStart hook",
			spec: d.volumes() + "  initContainers:\n" +
				with("side", `[sleep, forever]`, "restartPolicy: Always", "lifecycle: {postStart: {exec: {command: [/kk, seq, sleep, 700ms, \",\", append, /v/f, hook]}}}") +
				with("i", `[append, /v/f, i]`) + "  containers:\n" + with("c", `[append, /v/f, c]`),
			check: func(t *testing.T, s sight) { require.Equal(t, []string{"hook", "i", "c"}, d.texts(t, s, "f")) },
		},
		{
			name:  "a sidecar that can't start keeps what comes after it",
			spec:  d.volumes() + "  initContainers: [{name: side, image: example.test/none:1, imagePullPolicy: Never, restartPolicy: Always}]\n  containers:\n" + with("c", `[append, /v/f, c]`),
			until: waiting("side", "ErrImageNeverPull"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
				require.Equal(t, "PodInitializing", s.Status(t, "c").State.Waiting.Reason)
				require.Empty(t, containers(t, s.Name, "c"))
			},
		},
		{
			name: "the preStop hook of a sidecar does not wait for its turn",
			spec: "  terminationGracePeriodSeconds: 8\n" + d.volumes() + "  initContainers:\n" +
				with("side", `[trap, --file, /v/f, --name, side]`, "restartPolicy: Always", "lifecycle: {preStop: {exec: {command: [/kk, append, /v/f, hook]}}}") +
				"  containers:\n" + with("c", `[seq, sleep, --term-delay, 2s, forever]`, "lifecycle: {preStop: {exec: {command: [/kk, append, /v/f, c]}}}"),
			until: runs,
			check: func(t *testing.T, s sight) {
				s.ready(t, "side")
				s.End(t)
				all := d.steps(t, s, "f")
				require.Len(t, all, 3)
				require.Equal(t, "side SIGTERM", all[2].text)
				require.ElementsMatch(t, []string{"hook", "c"}, []string{all[0].text, all[1].text})
				require.Less(t, all[1].at.Sub(all[0].at), 1500*time.Millisecond)
				require.Greater(t, all[2].at.Sub(all[1].at), 1500*time.Millisecond, "the sidecar did not wait for c")
			},
		},
		{
			name: "a sidecar gets the least grace when the others have used all of it",
			spec: "  terminationGracePeriodSeconds: 3\n" + d.volumes() + "  initContainers:\n" +
				with("side", `[trap, --file, /v/f, --name, side]`, "restartPolicy: Always") +
				"  containers:\n" + with("c", `[sleep, --ignore-term, --print, ready, forever]`) + with("d", `[trap, --file, /v/f, --name, d]`),
			until: runs,
			check: func(t *testing.T, s sight) {
				s.ready(t, "side", "c", "d")
				s.End(t)
				all := d.steps(t, s, "f")
				require.Equal(t, []string{"d SIGTERM", "side SIGTERM"}, d.texts(t, s, "f"))
				require.Greater(t, all[1].at.Sub(all[0].at), 2700*time.Millisecond)
				require.Less(t, all[1].at.Sub(all[0].at), 4500*time.Millisecond)
			},
		},
		{
			name:  "a deadline ends a pod that still initializes, and its other containers never run",
			spec:  "  activeDeadlineSeconds: 8\n" + d.volumes() + "  initContainers:\n" + with("i", `[trap, --file, /v/f, --name, i]`) + "  containers:\n" + with("c", `[append, /v/f, c]`),
			until: deadline,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"i SIGTERM"}, d.texts(t, s, "f"))
				require.Empty(t, containers(t, s.Name, "c"))
				require.Nil(t, s.Status(t, "c").State.Running)
			},
		},
		{
			name:  "a deadline ends a pod that has not begun, and its container is lost without ever having had times",
			spec:  "  activeDeadlineSeconds: 2\n  containers: [{name: c, image: example.test/none:1, imagePullPolicy: Never}]\n",
			until: deadline,
			check: func(t *testing.T, s sight) {
				end := s.exitOf(t, "c")
				require.Equal(t, "ContainerStatusUnknown", end.Reason)
				require.True(t, end.StartedAt.IsZero() && end.FinishedAt.IsZero())
				require.Empty(t, end.ContainerID)
				require.Empty(t, containers(t, s.Name, "c"))
				require.Equal(t, "PodFailed", s.condition(t, corev1.PodReady).Reason)
			},
		},
	})
}

// condition is one of the pod's.
func (s sight) condition(t *testing.T, kind corev1.PodConditionType) corev1.PodCondition {
	t.Helper()
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("pod has no condition %s: %v", kind, s.Pod.Status.Conditions)
	return corev1.PodCondition{}
}

// ran are all instances of a container that the runtime holds.
func (s sight) ran(t *testing.T, name string) []*cri.Container {
	t.Helper()
	return containers(t, s.Name, name)
}

// ready waits until each container that traps signals has said so.
func (s sight) ready(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		s.agent.WaitLine(s.Name, name, "ready")
	}
}

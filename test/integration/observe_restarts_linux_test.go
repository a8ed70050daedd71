package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestObserveRestartPolicies(t *testing.T) {
	d := newTrail(t)
	rules := func(policy, rules string) string {
		return "restartPolicy: " + policy + "\n    restartPolicyRules: " + rules
	}
	observe(t, Options{}, []observation{
		{
			name: "Never is never, even after a failure",
			spec: d.volumes() + "  containers:\n" + with("c", `[append, /v/c, c, exit, "1"]`), until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 1)
				require.Zero(t, s.Status(t, "c").RestartCount)
			},
		},
		{
			name: "OnFailure ends with the first success",
			spec: "  restartPolicy: OnFailure\n" + d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "6"]`),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				require.EqualValues(t, 6, s.Status(t, "c").LastTerminationState.Terminated.ExitCode)
				require.EqualValues(t, 0, s.exitOf(t, "c").ExitCode)
			},
		},
		{
			name: "Always starts again after a success",
			spec: "  restartPolicy: Always\n" + d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "0", sleep, forever]`), until: restarted("c", 1),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				require.Equal(t, "Completed", s.Status(t, "c").LastTerminationState.Terminated.Reason)
				require.Len(t, sandboxes(t, s.Name), 1)
			},
		},
		{
			name: "a container's own Never goes before the pod's Always",
			spec: "  restartPolicy: Always\n" + d.volumes() + "  containers:\n" + with("c", `[append, /v/c, c, exit, "1"]`, "restartPolicy: Never") + with("d", `[sleep, forever]`),
			until: func(p corev1.Pod) error {
				for _, c := range p.Status.ContainerStatuses {
					if c.Name == "c" && c.State.Terminated != nil && p.Status.Phase == corev1.PodRunning {
						return nil
					}
				}
				return fmt.Errorf("phase %s, %s", p.Status.Phase, states(p))
			},
			check: func(t *testing.T, s sight) {
				Stays(t, 1500*time.Millisecond, func() error {
					if n := d.ran(t, s, "c"); n != 1 {
						return fmt.Errorf("it ran %d times", n)
					}
					return nil
				})
			},
		},
		{
			name: "a container's own OnFailure goes before the pod's Never",
			spec: d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "7"]`, "restartPolicy: OnFailure"),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				require.EqualValues(t, 1, s.Status(t, "c").RestartCount)
			},
		},
		{
			name: "an init container's own Never fails the pod at once",
			spec: "  restartPolicy: Always\n" + d.volumes() + "  initContainers:\n" + with("i", `[append, /v/i, i, exit, "1"]`, "restartPolicy: Never") +
				"  containers:\n" + with("c", `[append, /v/c, c]`),
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) { d.wantRuns(t, s, "i", 1) },
		},
		{
			name: "a rule starts a container again for the statuses that it names",
			spec: d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "42", exit, "0"]`, rules("Never", "[{action: Restart, exitCodes: {operator: In, values: [41, 42]}}]")),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				require.EqualValues(t, 42, s.Status(t, "c").LastTerminationState.Terminated.ExitCode)
			},
		},
		{
			name:  "a rule for other statuses starts nothing",
			spec:  d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "43", exit, "0"]`, rules("Never", "[{action: Restart, exitCodes: {operator: In, values: [41, 42]}}]")),
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 1)
				require.EqualValues(t, 43, s.exitOf(t, "c").ExitCode)
			},
		},
		{
			name: "a rule may name the statuses that it is not for",
			spec: d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "8", exit, "0"]`, rules("Never", "[{action: Restart, exitCodes: {operator: NotIn, values: [0, 9]}}]")),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				require.EqualValues(t, 0, s.exitOf(t, "c").ExitCode)
			},
		},
		{
			name: "a status may start all containers again, in the same sandbox",
			spec: d.volumes() + "  initContainers:\n" + with("i", `[append, /v/i, i]`) +
				"  containers:\n" + with("c", `[seq, sleep, 1s, ",", first, "1", /v/c, "88", sleep, forever]`, rules("Never", "[{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]")) +
				with("d", `[append, /v/d, d, sleep, forever]`),
			until: func(p corev1.Pod) error {
				if err := restarted("c", 1)(p); err != nil {
					return err
				}
				return restarted("d", 1)(p)
			},
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				d.wantRuns(t, s, "d", 2)
				d.wantRuns(t, s, "i", 2)
				require.Len(t, sandboxes(t, s.Name), 1)
				require.Zero(t, s.Sandbox(t).Metadata.Attempt)
				require.Equal(t, "RestartingAllContainers", s.Status(t, "d").LastTerminationState.Terminated.Reason)
				require.EqualValues(t, 1, s.Status(t, "i").RestartCount)
				require.Equal(t, corev1.ConditionFalse, s.condition(t, "AllContainersRestarting").Status)
				require.Equal(t, corev1.ConditionTrue, s.condition(t, corev1.PodReady).Status)
				require.Len(t, s.ran(t, "d"), 1, "the old container is cleared away")
			},
		},
		{
			name: "an init container may start all containers again, too",
			spec: d.volumes() + "  initContainers:\n" + with("i", `[append, /v/i, i]`) +
				with("j", `[first, "1", /v/j, "88", append, /v/over, j]`, rules("Never", "[{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]")) +
				"  containers:\n" + with("c", `[append, /v/c, c]`),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "i", 2)
				d.wantRuns(t, s, "j", 2)
				d.wantRuns(t, s, "c", 1)
				require.EqualValues(t, 0, s.Status(t, "c").RestartCount)
				require.Len(t, sandboxes(t, s.Name), 1)
			},
		},
		{
			name: "files of a volume outlive the restart of all containers",
			spec: "  volumes: [{name: v, emptyDir: {}}]\n  containers:\n" +
				with("c", `[first, "1", /v/c, "88", look, /v/c]`, rules("Never", "[{action: RestartAllContainers, exitCodes: {operator: In, values: [88]}}]")),
			check: func(t *testing.T, s sight) {
				require.Equal(t, 2, strings.Count(s.Report.Files["/v/c"].Content, "\n"))
				require.EqualValues(t, 1, s.Status(t, "c").RestartCount)
				require.Equal(t, "RestartingAllContainers", s.Status(t, "c").LastTerminationState.Terminated.Reason)
				require.Len(t, sandboxes(t, s.Name), 1)
			},
		},
		{
			name: "containers of one pod have policies of their own",
			spec: d.volumes() + "  containers:\n" + with("c", `[first, "1", /v/c, "1", sleep, forever]`, "restartPolicy: Always") +
				with("d", `[append, /v/d, d, exit, "1"]`) + with("e", `[append, /v/e, e]`, "restartPolicy: OnFailure"),
			until: restarted("c", 1),
			check: func(t *testing.T, s sight) {
				d.wantRuns(t, s, "c", 2)
				d.wantRuns(t, s, "d", 1)
				d.wantRuns(t, s, "e", 1)
				require.Equal(t, corev1.PodRunning, s.Pod.Status.Phase)
			},
		},
		{
			name:  "a start that fails before the program runs has a reason, a status and the runtime's words",
			spec:  "  containers: [{name: c, image: KK, command: [/no/such/program]}]\n",
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				end := s.exitOf(t, "c")
				require.Equal(t, "StartError", end.Reason)
				require.EqualValues(t, 128, end.ExitCode)
				require.Contains(t, end.Message, "/no/such/program")
			},
		},
		{
			name:  "a start that fails is tried again under Always, and the pod says what is wrong",
			spec:  "  restartPolicy: Always\n  containers: [{name: c, image: KK, command: [/no/such/program]}]\n",
			until: waiting("c", "CrashLoopBackOff"),
			check: func(t *testing.T, s sight) {
				last := s.Status(t, "c").LastTerminationState.Terminated
				require.Equal(t, "StartError", last.Reason)
				require.Contains(t, last.Message, "/no/such/program")
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "back-off 10s restarting failed container=c")
				require.Positive(t, s.Status(t, "c").RestartCount)
			},
		},
	})
}

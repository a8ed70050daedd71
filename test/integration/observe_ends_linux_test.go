package integration_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// message is an observation of a container's termination message. Its pod fails
// when want says so.
func message(name, container string, want func(t *testing.T, end corev1.ContainerStateTerminated)) observation {
	return observation{
		name: name, spec: "  containers:\n  - name: c\n    image: KK\n" + container,
		until: func(p corev1.Pod) error {
			if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
				return nil
			}
			return fmt.Errorf("phase %s", p.Status.Phase)
		},
		check: func(t *testing.T, s sight) { want(t, s.exitOf(t, "c")) },
	}
}

// says wants the message, and the status beside it.
func says(text string, code int32, reason string) func(t *testing.T, end corev1.ContainerStateTerminated) {
	return func(t *testing.T, end corev1.ContainerStateTerminated) {
		require.Equal(t, text, end.Message)
		require.Equal(t, code, end.ExitCode)
		require.Equal(t, reason, end.Reason)
	}
}

func TestObserveTerminationMessages(t *testing.T) {
	long := strings.Repeat("0123456789", 500)
	observe(t, Options{}, []observation{
		message("a message is what the container leaves in /dev/termination-log", `    args: [exit, --message, "all is lost", "3"]`, says("all is lost", 3, "Error")),
		message("a success may leave one, too", `    args: [exit, --message, "well done", "0"]`, says("well done", 0, "Completed")),
		message("without a file there is none, whatever the log has", `    args: [exit, --print, "in the log", "3"]`, says("", 3, "Error")),
		message("the path may be another one, and the user any", "    args: [write, /some/where, from elsewhere, exit, \"2\"]\n    terminationMessagePath: /some/where\n    securityContext: {runAsUser: 4321, runAsGroup: 4321}",
			says("from elsewhere", 2, "Error")),
		message("FallbackToLogsOnError takes the end of the log of a failure", "    args: [seq, print, a line, \",\", exit, --print, the last words, \"3\"]\n    terminationMessagePolicy: FallbackToLogsOnError",
			says("a line 1\nthe last words\n", 3, "Error")),
		message("FallbackToLogsOnError takes nothing of a success", "    args: [exit, --print, in the log, \"0\"]\n    terminationMessagePolicy: FallbackToLogsOnError", says("", 0, "Completed")),
		message("FallbackToLogsOnError prefers the file", "    args: [exit, --print, in the log, --message, in the file, \"3\"]\n    terminationMessagePolicy: FallbackToLogsOnError", says("in the file", 3, "Error")),
		message("of a log the last 80 lines and 2048 bytes count", "    args: [seq, print, --lines, \"100\", --size, \"100\", line, \",\", exit, \"3\"]\n    terminationMessagePolicy: FallbackToLogsOnError",
			func(t *testing.T, end corev1.ContainerStateTerminated) {
				require.Len(t, end.Message, 2048)
				require.Contains(t, end.Message, "\nline 100.")
				require.NotContains(t, end.Message, "line 79.")
			}),
		message("of a file the last 4096 bytes count", "    args: [exit, --message, \""+long+"x\", \"3\"]", func(t *testing.T, end corev1.ContainerStateTerminated) {
			require.Equal(t, (long + "x")[len(long)+1-4096:], end.Message)
		}),
		{
			name: "all messages of a pod have 12288 bytes together",
			spec: "  containers:\n" + strings.Join([]string{talker("c", long), talker("d", long), talker("e", long), talker("f", long)}, ""),
			check: func(t *testing.T, s sight) {
				for _, name := range []string{"c", "d", "e", "f"} {
					require.Len(t, s.exitOf(t, name).Message, 12288/4)
				}
			},
		},
		message("a program that breaks has its own status", `    args: [crash]`, func(t *testing.T, end corev1.ContainerStateTerminated) {
			require.EqualValues(t, 2, end.ExitCode)
			require.Equal(t, "Error", end.Reason)
			require.False(t, end.FinishedAt.Before(&end.StartedAt))
			require.Contains(t, end.ContainerID, "containerd://")
		}),
	})
}

func talker(name, text string) string {
	return "  - {name: " + name + ", image: KK, args: [exit, --message, \"" + text + "\", \"0\"]}\n"
}

// deadline is when activeDeadlineSeconds has ended the pod: a way to be stopped
// that leaves its status to be looked at.
func deadline(p corev1.Pod) error {
	if err := inPhase(corev1.PodFailed)(p); err != nil {
		return err
	}
	if p.Status.Reason != "DeadlineExceeded" {
		return fmt.Errorf("reason %q", p.Status.Reason)
	}
	return nil
}

// logged wants a line of the agent's log about the pod with all the words.
func (s sight) logged(t *testing.T, words ...string) {
	t.Helper()
	data, err := os.ReadFile(s.agent.LogFile)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, s.Pod.Name) {
			continue
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	t.Fatalf("no line of the log about pod %s has %q", s.Pod.Name, words)
}

func TestObserveHooksAndSignals(t *testing.T) {
	d := newTrail(t)
	const soon = "  activeDeadlineSeconds: 9\n" // all pods of the table start together
	hook := func(kind, handler string) string { return "lifecycle: {" + kind + ": {" + handler + "}}" }
	observe(t, Options{}, []observation{
		{
			name: "activeDeadlineSeconds ends the pod with words of its own",
			spec: soon + d.volumes() + "  containers:\n" + with("c", `[trap, --file, /v/f, --exit, "7"]`), until: deadline,
			check: func(t *testing.T, s sight) {
				require.Equal(t, "Pod was active on the node longer than the specified deadline", s.Pod.Status.Message)
				end := s.exitOf(t, "c")
				require.EqualValues(t, 7, end.ExitCode)
				require.Equal(t, []string{"SIGTERM"}, d.texts(t, s, "f"))
				lived := d.steps(t, s, "f")[0].at.Sub(s.Pod.Status.StartTime.Time)
				require.GreaterOrEqual(t, lived, 9*time.Second) // startTime has lost its fraction
				require.Less(t, lived, 12*time.Second)
			},
		},
		{
			name: "who does not listen is killed after the grace period",
			spec: "  terminationGracePeriodSeconds: 3\n" + soon + d.volumes() + "  containers:\n" +
				with("c", `[sleep, --ignore-term, forever]`) + with("d", `[trap, --file, /v/f]`), until: deadline,
			check: func(t *testing.T, s sight) {
				require.EqualValues(t, 137, s.exitOf(t, "c").ExitCode)
				grace := at(s.Container(t, "c").FinishedAt).Sub(d.steps(t, s, "f")[0].at)
				require.Greater(t, grace, 2900*time.Millisecond)
				require.Less(t, grace, 4500*time.Millisecond)
			},
		},
		{
			name: "a grace period of zero is the least that there is",
			spec: "  terminationGracePeriodSeconds: 0\n" + soon + d.volumes() + "  containers:\n" +
				with("c", `[sleep, --ignore-term, forever]`) + with("d", `[trap, --file, /v/f]`), until: deadline,
			check: func(t *testing.T, s sight) {
				require.EqualValues(t, 137, s.exitOf(t, "c").ExitCode)
				grace := at(s.Container(t, "c").FinishedAt).Sub(d.steps(t, s, "f")[0].at)
				require.Less(t, grace, 3500*time.Millisecond)
			},
		},
		{
			name: "preStop runs a command before the container is told to end",
			spec: soon + d.volumes() + "  containers:\n" + with("c", `[trap, --file, /v/f]`, hook("preStop", "exec: {command: [/kk, append, /v/f, hook, sleep, 300ms]}")), until: deadline,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"hook", "SIGTERM"}, d.texts(t, s, "f"))
				all := d.steps(t, s, "f")
				require.Greater(t, all[1].at.Sub(all[0].at), 290*time.Millisecond)
			},
		},
		{
			name: "preStop asks the container itself by HTTP",
			spec: soon + "  containers:\n  - {name: c, image: KK, args: [serve, \":8080\"], ports: [{name: web, containerPort: 8080}], " +
				hook("preStop", `httpGet: {path: "/bye?now=1", port: web}`) + "}\n", until: deadline,
			check: func(t *testing.T, s sight) {
				lines := strings.Join(s.Lines(t, "c"), "\n")
				require.Regexp(t, "(?s)GET /bye from .*told to end", lines)
			},
		},
		{
			name: "preStop may be a sleep, and it is part of the grace period",
			spec: "  terminationGracePeriodSeconds: 4\n" + soon + d.volumes() + "  containers:\n" +
				with("c", `[sleep, --ignore-term, forever]`, hook("preStop", "sleep: {seconds: 2}")) +
				with("d", `[trap, --file, /v/f]`) + with("e", `[trap, --file, /v/f]`, hook("preStop", "sleep: {seconds: 1}")), until: deadline,
			check: func(t *testing.T, s sight) {
				all := d.steps(t, s, "f")
				require.Greater(t, all[1].at.Sub(all[0].at), 700*time.Millisecond)
				grace := at(s.Container(t, "c").FinishedAt).Sub(all[0].at)
				require.Greater(t, grace, 3900*time.Millisecond)
				require.Less(t, grace, 5500*time.Millisecond)
			},
		},
		{
			name: "preStop that takes too long is cut off with the grace period",
			spec: soon + d.volumes() + "  containers:\n" +
				with("c", `[trap, --file, /v/c]`, hook("preStop", "exec: {command: [/kk, sleep, forever]}")) + with("d", `[trap, --file, /v/d]`), until: deadline,
			check: func(t *testing.T, s sight) {
				wait := d.steps(t, s, "c")[0].at.Sub(d.steps(t, s, "d")[0].at)
				require.Greater(t, wait, 1700*time.Millisecond)
				require.Less(t, wait, 3500*time.Millisecond)
			},
		},
		{
			name: "preStop that fails does not keep the container",
			spec: soon + d.volumes() + "  containers:\n" + with("c", `[trap, --file, /v/f]`, hook("preStop", "exec: {command: [/kk, exit, \"1\"]}")), until: deadline,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"SIGTERM"}, d.texts(t, s, "f"))
				s.logged(t, "FailedPreStopHook")
			},
		},
		{
			name: "preStop is not for a container that ends by itself",
			spec: d.volumes() + "  containers:\n" + with("c", `[append, /v/f, c]`, hook("preStop", "exec: {command: [/kk, append, /v/f, hook]}")),
			check: func(t *testing.T, s sight) {
				Stays(t, 500*time.Millisecond, func() error {
					if got := d.texts(t, s, "f"); len(got) != 1 {
						return fmt.Errorf("lines %v", got)
					}
					return nil
				})
			},
		},
		{
			name: "postStart runs a command inside the container",
			spec: d.volumes() + "  containers:\n" + with("c", `[sleep, forever]`, hook("postStart", "exec: {command: [/kk, append, /v/f, hook]}")), until: runs,
			check: func(t *testing.T, s sight) { require.Equal(t, []string{"hook"}, d.texts(t, s, "f")) },
		},
		{
			name: "postStart asks by HTTP, and any answer will do",
			spec: "  initContainers:\n  - {name: c, image: KK, restartPolicy: Always, args: [serve, --status, \"500\", \":8080\"]}\n" +
				"  - {name: i, image: KK, args: [sleep, 1s]}\n  containers:\n" +
				"  - {name: d, image: KK, args: [sleep, forever], " + hook("postStart", "httpGet: {path: /healthz, port: 8080, httpHeaders: [{name: X-Hook, value: a}]}") + "}\n" +
				"  - {name: e, image: KK, args: [sleep, forever], " + hook("postStart", "httpGet: {path: /hello, port: 8080}") + "}\n", until: runs,
			check: func(t *testing.T, s sight) {
				require.Contains(t, strings.Join(s.Lines(t, "c"), "\n"), "GET /hello from ")
			},
		},
		{
			name: "postStart that fails ends the container, and its output is in no log",
			spec: "  restartPolicy: Always\n" + d.volumes() + "  containers:\n" +
				with("c", `[trap, --file, /v/f]`, "lifecycle: {postStart: {exec: {command: [/kk, exit, --after, 200ms, --print, no such luck, \"3\"]}}, preStop: {exec: {command: [/kk, append, /v/f, before the end]}}}"),
			until: waiting("c", "CrashLoopBackOff"),
			check: func(t *testing.T, s sight) {
				s.logged(t, "PostStartHookError", "ended with exit code 3")
				log, err := os.ReadFile(s.agent.LogFile)
				require.NoError(t, err)
				require.NotContains(t, string(log), "no such luck", "it could be a secret")
				s.logged(t, "FailedPostStartHook")
				require.Equal(t, "Completed", s.Status(t, "c").LastTerminationState.Terminated.Reason)
				require.Equal(t, []string{"before the end", "SIGTERM"}, d.texts(t, s, "f")[:2])
			},
		},
		{
			name:  "a hook with a tcpSocket is no hook, and is said so",
			spec:  "  restartPolicy: Always\n  containers: [{name: c, image: KK, args: [sleep, forever], " + hook("postStart", "tcpSocket: {port: 80}") + "}]\n",
			until: waiting("c", "CrashLoopBackOff"),
			check: func(t *testing.T, s sight) { s.logged(t, "PostStartHookError", "a hook cannot be a tcpSocket") },
		},
		{
			name: "the runtime's default is to tell a container to end with SIGTERM",
			spec: soon + d.volumes() + "  containers:\n" + with("c", `[trap, --file, /v/f]`), until: deadline,
			check: func(t *testing.T, s sight) { require.Equal(t, []string{"SIGTERM"}, d.texts(t, s, "f")) },
		},
		stopSignal(soon, d),
	})
}

// stopSignal is honoured or refused: a runtime that does not know it would send
// SIGTERM without a word.
func stopSignal(soon string, d trail) observation {
	spec := "  os: {name: linux}\n" + d.volumes() + "  containers:\n" + with("c", `[trap, --file, /v/f]`, "lifecycle: {stopSignal: SIGUSR1}")
	if strings.HasPrefix(the.daemon.Version(), "1.") {
		return observation{
			name: "stopSignal is refused by a runtime that knows none", spec: spec, until: waiting("c", "CreateContainerConfigError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "spec.containers[0].lifecycle.stopSignal")
				require.Empty(t, containers(t, s.Name, "c"))
			},
		}
	}
	return observation{
		name: "stopSignal names the signal to end with", spec: soon + spec, until: deadline,
		check: func(t *testing.T, s sight) {
			require.Equal(t, cri.Signal_SIGNAL_SIGUSR1, s.Asked(t, "c").Config.StopSignal)
			require.Equal(t, []string{"SIGUSR1"}, d.texts(t, s, "f"))
			require.EqualValues(t, "SIGUSR1", *s.Status(t, "c").StopSignal)
		},
	}
}

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// one is a manifest of a pod with a container "main" that runs kk with args.
// spec is more of the pod's spec, one field per line.
func one(name string, args []string, spec ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n", name)
	for _, s := range spec {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	list, _ := json.Marshal(args)
	fmt.Fprintf(&b, "  containers:\n  - name: main\n    image: KK\n    args: %s\n", list)
	return b.String()
}

// sleeper is a pod that runs until it is told to end.
func sleeper(name string, spec ...string) string {
	return one(name, []string{"sleep", "forever"}, append([]string{"terminationGracePeriodSeconds: 2"}, spec...)...)
}

// WaitRunning waits until the pod's container runs, and returns it.
func WaitRunning(t *testing.T, within time.Duration, pod, name string) *cri.Container {
	t.Helper()
	var c *cri.Container
	Eventually(t, within, func() error {
		all := running(t, pod, name)
		if len(all) != 1 {
			return fmt.Errorf("%d containers %s of pod %s run", len(all), name, pod)
		}
		c = all[0]
		return nil
	})
	return c
}

// WaitPhase waits until the agent reports the phase, and returns the pod.
func (a *Agent) WaitPhase(within time.Duration, name string, phase corev1.PodPhase) corev1.Pod {
	a.t.Helper()
	var pod corev1.Pod
	Eventually(a.t, within, func() error {
		var err error
		if pod, err = a.Pod(name); err != nil {
			return err
		}
		if pod.Status.Phase != phase {
			return fmt.Errorf("pod %s is %s, want %s", name, pod.Status.Phase, phase)
		}
		return nil
	})
	return pod
}

// WaitLine waits until the log of the pod's container has text in it.
func (a *Agent) WaitLine(pod, container, text string) {
	a.t.Helper()
	pattern := filepath.Join(a.PodLogs, "default_"+pod+"-"+nodeName+"_*", container, "*.log")
	Eventually(a.t, 10*time.Second, func() error {
		logs, err := filepath.Glob(pattern)
		for _, log := range logs {
			if data, _ := os.ReadFile(log); strings.Contains(string(data), text) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("no %q in %d logs at %s", text, len(logs), pattern))
	})
}

// exitCode is that of the pod's container main, as the agent reports it.
func exitCode(t *testing.T, pod corev1.Pod) int32 {
	t.Helper()
	require.Len(t, pod.Status.ContainerStatuses, 1)
	end := pod.Status.ContainerStatuses[0].State.Terminated
	require.NotNil(t, end, "container main has not ended: %+v", pod.Status.ContainerStatuses[0].State)
	return end.ExitCode
}

// pidOf is the container's main process.
func pidOf(t *testing.T, id string) int {
	t.Helper()
	answer, err := the.daemon.Runtime().ContainerStatus(look(t), &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	require.NoError(t, err)
	var info struct{ Pid int }
	require.NoError(t, json.Unmarshal([]byte(answer.Info["info"]), &info))
	require.NotZero(t, info.Pid)
	return info.Pid
}

func at(nanos int64) time.Time { return time.Unix(0, nanos) }

// descriptors counts the agent's open files.
func (a *Agent) descriptors() int {
	a.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.Pid()))
	require.NoError(a.t, err)
	return len(entries)
}

// goroutines counts the agent's goroutines.
func (a *Agent) goroutines() int {
	a.t.Helper()
	body, err := a.Get(a.Ports.ReadOnly, "/metrics")
	require.NoError(a.t, err)
	for line := range strings.Lines(body) {
		if n, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(a.t, err)
			return count
		}
	}
	a.t.Fatal("/metrics has no go_goroutines")
	return 0
}

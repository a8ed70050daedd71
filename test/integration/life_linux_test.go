package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAPodComesGoesAndIsReplacedWithItsManifest(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("web.yaml", one("web", []string{"sleep", "--ignore-term", "--print", "deaf", "forever"}, "terminationGracePeriodSeconds: 3"))
	a.WaitPhase(30*time.Second, "web", corev1.PodRunning)
	a.WaitLine("web", "main", "deaf") // it takes a moment to stop its ears
	first := WaitRunning(t, time.Second, "web", "main")
	uid := first.Labels["io.kubernetes.pod.uid"]

	// An edit makes another pod of the name; the old one gets its grace first.
	a.Write("web.yaml", one("web", []string{"sleep", "--print", "second", "forever"}, "terminationGracePeriodSeconds: 3"))
	told := time.Now()
	Eventually(t, 30*time.Second, func() error {
		all := running(t, "web", "main")
		if len(all) != 1 || all[0].Id == first.Id {
			return fmt.Errorf("%d run, or still the first", len(all))
		}
		if all[0].Labels["io.kubernetes.pod.uid"] == uid {
			return fmt.Errorf("the new container is of the old pod")
		}
		return nil
	})
	second := running(t, "web", "main")[0]
	started := at(container(t, second.Id).StartedAt)
	require.Greater(t, started.Sub(told), 2900*time.Millisecond, "the old container did not get its grace period")

	a.Remove("web.yaml")
	a.NothingLeft(20 * time.Second)
	_, err := a.Pod("web")
	require.Error(t, err, "the pod is still reported")
}

func TestBadManifestsDoNotTouchTheOthers(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("good.yaml", sleeper("good"))
	first := WaitRunning(t, 30*time.Second, "good", "main")
	a.Write("broken.yaml", "kind: Pod\nmetadata: [")
	a.Write("typo.yaml", strings.Replace(sleeper("typo"), "args:", "agrs:", 1))
	a.Write("account.yaml", sleeper("account", "serviceAccountName: robot"))
	a.Write("later.yaml", sleeper("later", "activeDeadlineSeconds: 3600", "shareProcessNamespace: true", "hostname: h", "automountServiceAccountToken: true"))
	// A file that breaks keeps the pod of its last good version.
	a.Write("good.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: 3}\n")
	refused := a.WaitPhase(10*time.Second, "later", corev1.PodFailed)
	require.Contains(t, refused.Status.Message, "spec.automountServiceAccountToken")
	for _, words := range []string{"broken.yaml", "typo.yaml", "agrs", "static pods may not reference", "good.yaml"} {
		Eventually(t, 5*time.Second, func() error {
			if log, _ := os.ReadFile(a.LogFile); !strings.Contains(string(log), words) {
				return fmt.Errorf("the log does not tell %q", words)
			}
			return nil
		})
	}
	Stays(t, 2*time.Second, func() error {
		if all := running(t, "good", "main"); len(all) != 1 || all[0].Id != first.Id {
			return fmt.Errorf("the good pod was touched")
		}
		return nil
	})
	for _, f := range []string{"good.yaml", "broken.yaml", "typo.yaml", "account.yaml", "later.yaml"} {
		a.Remove(f)
	}
	a.NothingLeft(20 * time.Second)
}

func TestAKilledContainerComesBackAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		config map[string]any
		within time.Duration
	}{
		{"with the runtime's events", nil, time.Second},
		{"without events, at the next relist", map[string]any{"featureGates": map[string]any{"EventedPLEG": false}}, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := StartAgent(t, Options{Config: c.config})
			a.Write("web.yaml", sleeper("web"))
			first := WaitRunning(t, 30*time.Second, "web", "main")
			a.WaitPhase(5*time.Second, "web", corev1.PodRunning)
			killed := time.Now()
			require.NoError(t, syscall.Kill(pidOf(t, first.Id), syscall.SIGKILL))
			Eventually(t, 10*time.Second, func() error {
				if all := running(t, "web", "main"); len(all) != 1 || all[0].Id == first.Id {
					return fmt.Errorf("%d run", len(all))
				}
				return nil
			})
			second := running(t, "web", "main")[0]
			created := at(second.CreatedAt)
			t.Logf("created %v and started %v after the kill", created.Sub(killed), at(container(t, second.Id).StartedAt).Sub(killed))
			// Creating comes after noticing; starting is the runtime's own time.
			require.Less(t, created.Sub(killed), c.within)
			Eventually(t, 5*time.Second, func() error {
				pod, err := a.Pod("web")
				if err != nil {
					return err
				}
				if cs := pod.Status.ContainerStatuses[0]; cs.RestartCount != 1 || cs.State.Running == nil || cs.LastTerminationState.Terminated == nil || cs.LastTerminationState.Terminated.ExitCode != 137 {
					return fmt.Errorf("status %+v", cs)
				}
				return nil
			})
			a.Remove("web.yaml")
			a.NothingLeft(20 * time.Second)
		})
	}
}

func TestACrashLoopHasTheDocumentedGaps(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("crash.yaml", one("crash", []string{"exit", "1"}))
	type life struct{ start, end time.Time }
	lives := map[string]life{} // by container ID; old ones are cleared away
	Eventually(t, 60*time.Second, func() error {
		for _, c := range containers(t, "crash", "main") {
			if st := listed(t, c); st != nil && st.FinishedAt > 0 {
				lives[c.Id] = life{at(st.StartedAt), at(st.FinishedAt)}
			}
		}
		if len(lives) < 4 {
			return fmt.Errorf("%d lives seen", len(lives))
		}
		return nil
	})
	var all []life
	for _, l := range lives {
		all = append(all, l)
	}
	slices.SortFunc(all, func(x, y life) int { return x.start.Compare(y.start) })
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		gap := all[i+1].start.Sub(all[i].end)
		if gap < want || gap > want+2500*time.Millisecond {
			t.Errorf("gap %d is %v, want %v and at most 2.5s more", i, gap, want)
		}
	}
	pod, err := a.Pod("crash")
	require.NoError(t, err)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	Eventually(t, 5*time.Second, func() error {
		pod, err := a.Pod("crash")
		if err != nil {
			return err
		}
		if w := pod.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" {
			return fmt.Errorf("state %+v", pod.Status.ContainerStatuses[0].State)
		}
		return nil
	})
	a.Remove("crash.yaml")
	a.NothingLeft(20 * time.Second)
}

func TestPodsThatRunOnceEndAsTheyShould(t *testing.T) {
	a := StartAgent(t, Options{})
	ran := filepath.Join(t.TempDir(), "ran")
	require.NoError(t, os.Mkdir(ran, 0o777))
	onHost := []string{"volumes: [{name: ran, hostPath: {path: " + ran + "}}]"}
	mount := "    volumeMounts: [{name: ran, mountPath: /ran}]\n"
	a.Write("never-0.yaml", one("never-0", []string{"append", "/ran/never-0", "x", "exit", "0"}, append(onHost, "restartPolicy: Never")...)+mount)
	a.Write("never-7.yaml", one("never-7", []string{"append", "/ran/never-7", "x", "exit", "--message", "bad luck", "7"}, append(onHost, "restartPolicy: Never")...)+mount)
	a.Write("onfailure.yaml", one("onfailure", []string{"append", "/ran/onfailure", "x", "exit", "0"}, append(onHost, "restartPolicy: OnFailure")...)+mount)

	require.EqualValues(t, 0, exitCode(t, a.WaitPhase(60*time.Second, "never-0", corev1.PodSucceeded)))
	failed := a.WaitPhase(60*time.Second, "never-7", corev1.PodFailed)
	require.EqualValues(t, 7, exitCode(t, failed))
	require.Equal(t, "bad luck", failed.Status.ContainerStatuses[0].State.Terminated.Message)
	require.EqualValues(t, 0, exitCode(t, a.WaitPhase(60*time.Second, "onfailure", corev1.PodSucceeded)))

	// Nothing runs a second time: not after the records are gone, and not after
	// the agent has come back without them.
	for _, pod := range []string{"never-0", "never-7", "onfailure"} {
		for _, s := range sandboxes(t, pod) {
			the.remove(t, s.Id)
		}
	}
	a.Kill9()
	a.Start()
	require.EqualValues(t, 7, exitCode(t, a.WaitPhase(10*time.Second, "never-7", corev1.PodFailed)))
	a.WaitPhase(10*time.Second, "never-0", corev1.PodSucceeded)
	a.WaitPhase(10*time.Second, "onfailure", corev1.PodSucceeded)
	Stays(t, 4*time.Second, func() error {
		for _, pod := range []string{"never-0", "never-7", "onfailure"} {
			data, err := os.ReadFile(filepath.Join(ran, pod))
			if err != nil {
				return err
			}
			if n := strings.Count(string(data), "\n"); n != 1 {
				return fmt.Errorf("%s ran %d times", pod, n)
			}
		}
		return nil
	})
	for _, f := range []string{"never-0.yaml", "never-7.yaml", "onfailure.yaml"} {
		a.Remove(f)
	}
	a.NothingLeft(20 * time.Second)
}

func TestInitContainersAndASidecarKeepTheirOrder(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("order.yaml", `apiVersion: v1
kind: Pod
metadata: {name: order}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: first, image: KK, args: [sleep, 300ms]}
  - {name: side, image: KK, restartPolicy: Always, args: [sleep, forever]}
  - {name: second, image: KK, args: [sleep, 300ms]}
  containers:
  - {name: app, image: KK, args: [sleep, 2s]}
`)
	pod := a.WaitPhase(60*time.Second, "order", corev1.PodSucceeded)
	find := func(name string) *corev1.ContainerStateTerminated {
		for _, cs := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if cs.Name == name {
				require.NotNil(t, cs.State.Terminated, "%s: %+v", name, cs.State)
				return cs.State.Terminated
			}
		}
		t.Fatalf("no status of %s", name)
		return nil
	}
	// The API's times are whole seconds; the runtime's are exact.
	span := func(name string) (start, end time.Time) {
		_, id, _ := strings.Cut(find(name).ContainerID, "://")
		st := container(t, id)
		return at(st.StartedAt), at(st.FinishedAt)
	}
	_, firstEnd := span("first")
	sideStart, sideEnd := span("side")
	secondStart, secondEnd := span("second")
	appStart, appEnd := span("app")
	require.True(t, firstEnd.Before(sideStart), "the sidecar started before the init container ahead of it had ended")
	require.True(t, sideStart.Before(secondStart), "the init container behind the sidecar started before it")
	require.True(t, secondEnd.Before(appStart), "the app started before the init containers had ended")
	require.True(t, appEnd.Before(sideEnd), "the sidecar ended before the app")
	a.Remove("order.yaml")
	a.NothingLeft(20 * time.Second)
}

package integration_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// remove takes a sandbox and its containers out of the runtime, as a person
// with crictl does.
func (m machine) remove(t *testing.T, sandbox string) {
	t.Helper()
	_, err := m.daemon.Runtime().StopPodSandbox(look(t), &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(t, err)
	_, err = m.daemon.Runtime().RemovePodSandbox(look(t), &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(t, err)
}

// noTwins watches the runtime until stop is called, and fails the test when two
// instances of one container run at the same time.
func noTwins(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			list, err := the.daemon.Runtime().ListContainers(ctx, &cri.ListContainersRequest{
				Filter: &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}},
			})
			if err == nil {
				seen := map[string]string{}
				for _, c := range list.Containers {
					key := c.Labels["io.kubernetes.pod.uid"] + "/" + c.Metadata.Name
					if other, twice := seen[key]; twice {
						t.Errorf("container %s runs twice: %s and %s", key, other, c.Id)
						return
					}
					seen[key] = c.Id
				}
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// ids are the containers that run now, by ID.
func ids(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, c := range running(t, "", "main") {
		all[c.Id] = true
	}
	return all
}

func same(t *testing.T, want map[string]bool) error {
	if got := ids(t); !maps.Equal(got, want) {
		return fmt.Errorf("containers changed: %v, were %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	return nil
}

func TestAnAgentThatIsKilledAtAnyMomentLosesAndDoublesNothing(t *testing.T) {
	const pods, kills = 10, 10
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	a := StartAgent(t, Options{})
	stop := noTwins(t)
	defer stop()
	killSome := func(most time.Duration) {
		for range kills {
			time.Sleep(time.Duration(random.Int64N(int64(most))))
			a.Kill9()
			a.Launch()
		}
	}

	for i := range pods {
		a.Write(fmt.Sprintf("p%d.yaml", i), sleeper(fmt.Sprintf("p%d", i)))
	}
	killSome(1500 * time.Millisecond)
	Eventually(t, 60*time.Second, func() error {
		if n := len(running(t, "", "main")); n != pods {
			return fmt.Errorf("%d of %d run", n, pods)
		}
		return nil
	})
	for i := range pods {
		a.WaitPhase(20*time.Second, fmt.Sprintf("p%d", i), corev1.PodRunning)
	}
	for _, c := range containers(t, "", "main") {
		// A start that was under way when the agent died is undone by containerd
		// together with the call: nothing of it ever ran.
		if st := listed(t, c); st != nil && st.State == cri.ContainerState_CONTAINER_EXITED && st.Reason != "StartError" {
			t.Errorf("container %s of %s ran and was replaced without need: exit code %d, reason %s, message %s",
				c.Id, c.Labels["io.kubernetes.pod.name"], st.ExitCode, st.Reason, st.Message)
		}
	}

	before := ids(t)
	killSome(800 * time.Millisecond)
	a.WaitPhase(20*time.Second, "p0", corev1.PodRunning)
	Stays(t, 3*time.Second, func() error { return same(t, before) })

	for i := range pods {
		a.Remove(fmt.Sprintf("p%d.yaml", i))
	}
	killSome(800 * time.Millisecond)
	a.NothingLeftAfterCrashes(30 * time.Second)
}

func TestSIGTERMLeavesPodsRunningAndTheNextAgentAdoptsThem(t *testing.T) {
	a := StartAgent(t, Options{})
	for _, p := range []string{"one", "two", "three"} {
		a.Write(p+".yaml", sleeper(p))
	}
	for _, p := range []string{"one", "two", "three"} {
		a.WaitPhase(30*time.Second, p, corev1.PodRunning)
	}
	before := ids(t)
	a.Term()
	require.NoError(t, same(t, before))
	a.Remove("three.yaml") // while nobody looks
	a.Start()
	for _, p := range []string{"one", "two"} {
		pod := a.WaitPhase(10*time.Second, p, corev1.PodRunning)
		require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
	}
	Eventually(t, 15*time.Second, func() error {
		if n := len(running(t, "three", "main")); n != 0 {
			return fmt.Errorf("the pod that was removed meanwhile still runs")
		}
		return nil
	})
	for id := range ids(t) {
		require.True(t, before[id], "container %s is new", id)
	}
	require.Len(t, ids(t), 2)
	a.Remove("one.yaml")
	a.Remove("two.yaml")
	a.NothingLeft(20 * time.Second)
}

func TestARuntimeThatIsAwayForAWhileKeepsItsContainers(t *testing.T) {
	a := StartAgent(t, Options{})
	for _, p := range []string{"one", "two", "three"} {
		a.Write(p+".yaml", sleeper(p))
	}
	for _, p := range []string{"one", "two", "three"} {
		a.WaitPhase(30*time.Second, p, corev1.PodRunning)
	}
	before, pid := ids(t), a.Pid()
	require.NoError(t, the.daemon.Stop())
	time.Sleep(20 * time.Second)
	a.Write("four.yaml", sleeper("four"))
	require.NoError(t, the.daemon.Start(t.Context()))
	WaitRunning(t, 15*time.Second, "four", "main")
	require.Equal(t, pid, a.Pid())
	Stays(t, 5*time.Second, func() error {
		now := ids(t)
		for id := range before {
			if !now[id] {
				return fmt.Errorf("container %s is gone", id)
			}
		}
		return nil
	})
	require.Len(t, ids(t), 4)
	for _, p := range []string{"one", "two", "three"} {
		pod, err := a.Pod(p)
		require.NoError(t, err)
		require.Zero(t, pod.Status.ContainerStatuses[0].RestartCount)
		require.Len(t, sandboxes(t, p), 1)
	}
	for _, p := range []string{"one", "two", "three", "four"} {
		a.Remove(p + ".yaml")
	}
	a.NothingLeft(20 * time.Second)
}

func TestAShimThatHangsHoldsUpItsOwnPodOnly(t *testing.T) {
	a := StartAgent(t, Options{})
	for _, p := range []string{"stuck", "other"} {
		a.Write(p+".yaml", sleeper(p))
	}
	stuck := WaitRunning(t, 30*time.Second, "stuck", "main")
	other := WaitRunning(t, 30*time.Second, "other", "main")
	shim := the.daemon.ShimPids()[stuck.PodSandboxId]
	require.NotZero(t, shim)
	require.NoError(t, syscall.Kill(shim, syscall.SIGSTOP))
	defer syscall.Kill(shim, syscall.SIGCONT) //nolint:errcheck // it may be gone by then

	a.Remove("stuck.yaml") // its worker now waits for the shim
	require.NoError(t, syscall.Kill(pidOf(t, other.Id), syscall.SIGKILL))
	a.Write("late.yaml", sleeper("late"))
	Eventually(t, 30*time.Second, func() error {
		if all := running(t, "other", "main"); len(all) != 1 || all[0].Id == other.Id {
			return fmt.Errorf("the other pod's container is not back")
		}
		return nil
	})
	a.WaitPhase(30*time.Second, "late", corev1.PodRunning)

	require.NoError(t, syscall.Kill(shim, syscall.SIGCONT))
	a.Remove("other.yaml")
	a.Remove("late.yaml")
	a.NothingLeft(60 * time.Second)
}

func TestTwoHundredRoundsLeaveNoGoroutineAndNoDescriptor(t *testing.T) {
	const batch, rounds = 10, 20
	a := StartAgent(t, Options{})
	round := func() {
		for i := range batch {
			a.Write(fmt.Sprintf("p%d.yaml", i), sleeper(fmt.Sprintf("p%d", i)))
		}
		Eventually(t, 60*time.Second, func() error {
			if n := len(running(t, "", "main")); n != batch {
				return fmt.Errorf("%d of %d run", n, batch)
			}
			return nil
		})
		for i := range batch {
			a.Remove(fmt.Sprintf("p%d.yaml", i))
		}
		a.NothingLeft(60 * time.Second)
	}
	round() // what is made once is there afterwards
	goroutines, descriptors := a.goroutines(), a.descriptors()
	for range rounds {
		round()
	}
	Eventually(t, 10*time.Second, func() error {
		if g, d := a.goroutines(), a.descriptors(); g > goroutines+3 || d > descriptors+3 {
			return fmt.Errorf("%d goroutines and %d descriptors after %d pods, were %d and %d", g, d, batch*rounds, goroutines, descriptors)
		}
		return nil
	})
}

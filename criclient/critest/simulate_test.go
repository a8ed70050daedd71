package critest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// agent does random things to a runtime, right ones and wrong ones.
type agent struct {
	r   *Runtime
	rnd *rand.Rand
	// The IDs it has seen. Some are gone; that is the point.
	sandboxes  []string
	containers []string
}

func (a *agent) pod(uid string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: uid, Attempt: attempt},
		Labels:   map[string]string{observed.LabelPodUID: uid},
	}
}

func pick(rnd *rand.Rand, from []string) string {
	if len(from) == 0 {
		return "none"
	}
	return from[rnd.IntN(len(from))]
}

func (a *agent) step(ctx context.Context) {
	uid := fmt.Sprint("u", a.rnd.IntN(5))
	sandbox, container := pick(a.rnd, a.sandboxes), pick(a.rnd, a.containers)
	switch a.rnd.IntN(16) {
	case 0, 1:
		if id, err := a.r.RunPodSandbox(ctx, a.pod(uid, uint32(a.rnd.IntN(3))), ""); err == nil {
			a.sandboxes = append(a.sandboxes, id)
		}
	case 2, 3, 4:
		cfg := &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: uint32(a.rnd.IntN(9))},
			Image:    &runtimeapi.ImageSpec{Image: pick(a.rnd, []string{"forever", "exits", "stubborn", "broken", "absent"})},
			Labels:   map[string]string{observed.LabelPodUID: uid},
		}
		if id, err := a.r.CreateContainer(ctx, sandbox, cfg, a.pod(uid, 0)); err == nil {
			a.containers = append(a.containers, id)
		}
	case 5, 6, 7:
		_ = a.r.StartContainer(ctx, container)
	case 8:
		_ = a.r.StopContainer(ctx, container, int64(a.rnd.IntN(3)))
	case 9:
		_ = a.r.RemoveContainer(ctx, container)
	case 10:
		_ = a.r.StopPodSandbox(ctx, sandbox)
	case 11:
		_ = a.r.RemovePodSandbox(ctx, sandbox)
	case 12:
		_ = a.r.Kill(container, 1)
		_ = a.r.SetUnknown(pick(a.rnd, a.containers))
	case 13:
		_ = a.r.FailSandbox(sandbox)
		_ = a.r.LoseIP(pick(a.rnd, a.sandboxes))
	case 14:
		_ = a.r.Vanish(pick(a.rnd, append(a.sandboxes, container)))
	case 15:
		_, _ = a.r.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: sandbox})
		_, _ = a.r.PodSandboxStatus(ctx, sandbox, true)
	}
}

// consistent reports what the runtime's parts say differently.
func (r *Runtime) consistent() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.sandboxes) + len(r.containers); len(r.names) != n {
		return fmt.Errorf("%d names for %d objects", len(r.names), n)
	}
	hosts := map[int]bool{}
	for id, sb := range r.sandboxes {
		_, byUID := r.sandboxesUID[sb.uid()][sb]
		_, byState := r.sandboxesState[sb.state][sb]
		if sb.id != id || !byUID || !byState {
			return fmt.Errorf("sandbox %s is not where it belongs", id)
		}
		if sb.host != 0 && hosts[sb.host] {
			return fmt.Errorf("two sandboxes have address %s", sb.ip())
		}
		if sb.host != 0 {
			hosts[sb.host] = true
		}
	}
	if len(hosts) != len(r.ips.used) {
		return fmt.Errorf("%d addresses in use, %d taken", len(hosts), len(r.ips.used))
	}
	for id, c := range r.containers {
		_, byUID := r.containersUID[c.uid()][c]
		_, byState := r.containersState[c.state][c]
		_, bySandbox := c.sandbox.containers[c]
		if c.id != id || !byUID || !byState || !bySandbox || r.sandboxes[c.sandbox.id] != c.sandbox {
			return fmt.Errorf("container %s is not where it belongs", id)
		}
		if c.state != running && (len(c.timers) > 0 || c.log != nil || c.ended != nil) {
			return fmt.Errorf("container %s is %s and still holds something", id, c.state)
		}
		if c.state == exited && c.finishedAt <= c.startedAt {
			return fmt.Errorf("container %s finished before it started", id)
		}
	}
	return countsAgree(r)
}

// countsAgree finds members of an index that exist nowhere else.
func countsAgree(r *Runtime) error {
	count := map[string]int{}
	for _, g := range r.containersUID {
		count["containers by UID"] += len(g)
	}
	for _, g := range r.containersState {
		count["containers by state"] += len(g)
	}
	for what, n := range count {
		if n != len(r.containers) {
			return fmt.Errorf("%d %s of %d", n, what, len(r.containers))
		}
	}
	sandboxes := 0
	for _, g := range r.sandboxesState {
		sandboxes += len(g)
	}
	if sandboxes != len(r.sandboxes) {
		return fmt.Errorf("%d sandboxes by state of %d", sandboxes, len(r.sandboxes))
	}
	return nil
}

func simulated() *Runtime {
	r := New(Config{})
	r.AddImage("forever", Behavior{TermAfter: time.Second})
	r.AddImage("exits", Exit(1, 500*time.Millisecond))
	r.AddImage("stubborn", Behavior{IgnoreTERM: true})
	r.AddImage("broken", Behavior{StartError: "broken"})
	return r
}

func TestNoOrderOfCallsMakesTheRuntimeInconsistent(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := simulated()
			a := &agent{r: r, rnd: rand.New(rand.NewPCG(seed, 0))}
			for step := range 300 {
				a.step(t.Context())
				if err := r.consistent(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			r.removeAll(t.Context())
			if err := r.consistent(); err != nil || len(r.containers)+len(r.sandboxes)+len(r.containersUID)+len(r.ips.used) > 0 {
				t.Fatalf("seed %d: something is left: %v", seed, err)
			}
		})
	}
}

func (r *Runtime) removeAll(ctx context.Context) {
	list, _ := r.ListPodSandbox(ctx, nil)
	for _, sb := range list {
		_ = r.RemovePodSandbox(ctx, sb.GetId())
	}
}

func TestAgentsAtOnceWithEventsFaultsAndRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := simulated()
		ctx, cancel := context.WithCancel(t.Context())
		var agents, readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				events := make(chan *runtimeapi.ContainerEventResponse)
				readers.Go(func() {
					for range events {
					}
				})
				defer close(events)
				for ctx.Err() == nil {
					_ = r.GetContainerEvents(ctx, events, nil)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for seed := range uint64(4) {
			agents.Go(func() {
				a := &agent{r: r, rnd: rand.New(rand.NewPCG(seed, 1))}
				for range 300 {
					a.step(ctx)
					time.Sleep(time.Millisecond)
				}
			})
		}
		agents.Go(func() {
			for range 20 {
				clear := r.Inject(Fault{Delay: 5 * time.Millisecond, Times: 10})
				r.InjectEvents(EventFault{Reorder: true, Times: 1})
				time.Sleep(20 * time.Millisecond)
				clear()
				r.Stop()
				time.Sleep(5 * time.Millisecond)
				r.Start()
				r.ClearFaults()
			}
		})
		agents.Wait()
		cancel()
		readers.Wait()
		if err := r.consistent(); err != nil {
			t.Fatal(err)
		}
	})
}

package podruntime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

var (
	_ podruntime.CRI          = (*criclient.Client)(nil)
	_ podruntime.ImageEnsurer = (*imagepull.Puller)(nil)
)

// node is a runtime in memory with a podruntime on it, and what the hooks said.
type node struct {
	t    *testing.T
	rt   *critest.Runtime
	r    *podruntime.Runtime
	look *criclient.Observer
	last map[observed.UID]observed.Pod

	logs, links string

	mu     sync.Mutex
	events []string
	counts map[string]int

	spec func(podruntime.Start) (podruntime.ContainerSpec, error) // nil: literal
	hook func(context.Context, lifecycle.Call) (string, error)    // nil: succeeds
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeWith(t, critest.Config{Registry: critest.AnyImage})
}

func newNodeWith(t *testing.T, cfg critest.Config) *node {
	t.Helper()
	n := &node{t: t, rt: critest.New(cfg), counts: map[string]int{}, last: map[observed.UID]observed.Pod{}}
	n.logs, n.links = filepath.Join(t.TempDir(), "pods"), t.TempDir()
	puller, err := imagepull.New(imagepull.Config{Images: n.rt, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if n.look, err = criclient.NewObserver(criclient.ObserverConfig{Runtime: n.rt}); err != nil {
		t.Fatal(err)
	}
	count := func(what string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.counts[what]++
	}
	n.r, err = podruntime.New(podruntime.Config{
		CRI: n.rt, Images: puller, LogDir: n.logs, ContainerLogDir: n.links,
		Lifecycle: func(ctx context.Context, call lifecycle.Call) (string, error) {
			if n.hook == nil {
				return "", nil
			}
			return n.hook(ctx, call)
		},
		Hooks: podruntime.Hooks{
			Event: func(_ *corev1.Pod, container, eventType, reason, message string) {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.events = append(n.events, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s", container, eventType, reason, message)))
			},
			Starting: func(_ *corev1.Pod, kind podspec.Kind) { count("starting " + kind.String()) },
			Started:  func(_ *corev1.Pod, kind podspec.Kind, _ string) { count("started " + kind.String()) },
			StartFailed: func(_ *corev1.Pod, kind podspec.Kind, _, reason string) {
				count("failed " + kind.String() + " " + reason)
			},
			ImageVolume: func(_ *corev1.Pod, container, volume string, err error) {
				count(fmt.Sprintf("volume %s of %s: %v", volume, container, err))
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// see looks at the pod as pleg would.
func (n *node) see(pod *corev1.Pod) observed.Pod {
	n.t.Helper()
	uid := observed.UID(pod.UID)
	last := n.last[uid]
	last.UID = uid
	p, err := n.look.InspectPod(context.Background(), last)
	if err != nil {
		n.t.Fatal(err)
	}
	n.last[uid] = p
	return p
}

// sync is one pass as podsync makes it.
func (n *node) sync(ctx context.Context, pod *corev1.Pod) (podruntime.Plan, podruntime.Result, error) {
	n.t.Helper()
	seen := n.see(pod)
	plan := podruntime.ComputePodActions(pod, seen, podruntime.Inputs{})
	sb, err := n.r.EnsureSandbox(ctx, pod, seen, plan, podruntime.SandboxSpec{Hostname: pod.Name})
	if err != nil || sb.ID == "" {
		return plan, podruntime.Result{}, err
	}
	spec := n.spec
	if spec == nil {
		spec = func(s podruntime.Start) (podruntime.ContainerSpec, error) {
			c, _, _ := podspec.Find(pod, s.Name)
			return podruntime.ContainerSpec{Command: c.Command, Args: c.Args}, nil
		}
	}
	result := n.r.Converge(ctx, pod, seen, plan, sb, spec)
	return plan, result, result.Err()
}

func (n *node) must(pod *corev1.Pod) {
	n.t.Helper()
	if _, _, err := n.sync(context.Background(), pod); err != nil {
		n.t.Fatal(err)
	}
}

// converge syncs until there is nothing to do.
func (n *node) converge(pod *corev1.Pod) {
	n.t.Helper()
	for range 10 {
		n.must(pod)
		if podruntime.ComputePodActions(pod, n.see(pod), podruntime.Inputs{}).String() == "nothing to do" {
			return
		}
	}
	n.t.Fatal("the pod does not settle")
}

func (n *node) takeEvents() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.events
	n.events = nil
	return e
}

func (n *node) wantEvents(want ...string) {
	n.t.Helper()
	if got := n.takeEvents(); !slices.Equal(got, want) {
		n.t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// running lists the running containers by name, with their restart count.
func (n *node) running(pod *corev1.Pod) string {
	n.t.Helper()
	var all []string
	for _, c := range n.see(pod).Containers {
		if c.State == observed.Running {
			all = append(all, fmt.Sprintf("%s#%d", c.Name, c.RestartCount))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (n *node) wantRunning(pod *corev1.Pod, want string) {
	n.t.Helper()
	if got := n.running(pod); got != want {
		n.t.Errorf("running = %q, want %q", got, want)
	}
}

// calls lists the CRI calls that change something.
func (n *node) calls() []string {
	var all []string
	for _, c := range n.rt.Calls() {
		switch c.Method {
		case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox":
			all = append(all, c.Method)
		case "CreateContainer", "StartContainer", "RemoveContainer":
			all = append(all, c.Method+" "+c.Container)
		case "StopContainer":
			all = append(all, fmt.Sprintf("%s %s %d", c.Method, c.Container, c.Request.(*runtimeapi.StopContainerRequest).Timeout))
		}
	}
	n.rt.ForgetCalls()
	return all
}

func (n *node) wantCalls(want ...string) {
	n.t.Helper()
	if got := n.calls(); !slices.Equal(got, want) {
		n.t.Errorf("calls:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// request returns the newest request of a method.
func request[T any](n *node, method string) T {
	n.t.Helper()
	calls := n.rt.Calls()
	for i := len(calls) - 1; i >= 0; i-- {
		if r, ok := calls[i].Request.(T); ok && calls[i].Method == method {
			return r
		}
	}
	n.t.Fatalf("no call of %s", method)
	panic("unreachable")
}

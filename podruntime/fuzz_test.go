package podruntime_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// dice makes choices out of fuzz data.
type dice struct{ data []byte }

func (d *dice) roll(sides int) int {
	if len(d.data) == 0 {
		return 0
	}
	n := int(d.data[0]) % sides
	d.data = d.data[1:]
	return n
}

// world makes any pod beside any observation.
func world(d *dice) (*corev1.Pod, observed.Pod, podruntime.Inputs) {
	policies := []corev1.RestartPolicy{"Always", "OnFailure", "Never", ""}
	kinds := []string{"", "i:", "s:", "e:"}
	var names, plain []string
	for i := range 1 + d.roll(6) {
		name := fmt.Sprint("c", i)
		plain = append(plain, name)
		names = append(names, kinds[d.roll(4)]+name)
	}
	p := pod(policies[d.roll(4)], names...)
	p.Spec.HostNetwork = d.roll(8) == 1
	if d.roll(8) == 1 {
		deleted(p)
	}
	if d.roll(12) == 1 {
		restarting(p)
	}
	amounts := []string{"", "1/1 1Gi/1Gi", "2/2 1Gi/1Gi"}
	resizePolicies := []corev1.ResourceResizeRestartPolicy{"", corev1.NotRequired, corev1.RestartContainer}
	for c := range podspec.All(p) {
		if d.roll(4) == 1 {
			c.StartupProbe = &corev1.Probe{}
		}
		if d.roll(4) == 1 {
			c.LivenessProbe = &corev1.Probe{}
		}
		if d.roll(6) == 1 && c.RestartPolicy == nil {
			c.RestartPolicy = ptr(corev1.ContainerRestartPolicy(policies[d.roll(3)]))
		}
		if d.roll(5) == 1 {
			restartsAll(p, c.Name)
		}
		if d.roll(4) == 1 {
			wants(p, c.Name, amounts[d.roll(3)], "cpu="+string(resizePolicies[d.roll(3)]))
		}
	}
	see := observed.Pod{UID: "uid-1", Namespace: "default", Name: "web"}
	for i := range d.roll(4) {
		see.Sandboxes = append(see.Sandboxes, observed.Sandbox{
			ID: observed.SandboxID(fmt.Sprint("s", i)), Attempt: uint32(d.roll(3)), Ready: d.roll(3) > 0,
			HostNetwork: d.roll(8) == 1, NetworkReported: d.roll(2) == 1, IPs: []string{"10.0.0.1"}[:d.roll(2)],
			CreatedAt: time.Unix(int64(d.roll(5)), 0),
		})
	}
	plain = append(plain, "stranger")
	for i := range d.roll(12) {
		c := in(plain[d.roll(len(plain))], observed.State(d.roll(4)))
		c.ID = observed.ContainerID(fmt.Sprint("id", i))
		c.Sandbox = observed.SandboxID(fmt.Sprint("s", d.roll(3)))
		c.ExitCode = []int32{0, 1, 42}[d.roll(3)]
		c.RestartCount = d.roll(3)
		c.CreatedAt = time.Unix(int64(d.roll(9)), 0)
		if d.roll(5) == 1 {
			c.Hash = "other"
		}
		see.Containers = append(see.Containers, c)
	}
	see.Sort()
	var inputs podruntime.Inputs
	if d.roll(2) == 1 {
		a, b := podruntime.ProbeResult(d.roll(3)), podruntime.ProbeResult(d.roll(3))
		inputs = results(a, b)
	}
	if d.roll(2) == 1 {
		inputs.Actuated = had("c0", "1/1 1Gi/1Gi", "c1", "2/2 1Gi/1Gi", "c2", "1/1 2Gi/2Gi", "c3", "1/1 1Gi/1Gi").Actuated
	}
	return p, see, inputs
}

func FuzzComputePodActions(f *testing.F) {
	f.Add([]byte{})
	for i := range 64 {
		seed := make([]byte, 120)
		for j := range seed {
			seed[j] = byte((i*31 + j*(i|1)*7) >> 1)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, see, inputs := world(&dice{data})
		plan := podruntime.ComputePodActions(p, see, inputs)
		if wrong := violated(p, see, plan); wrong != "" {
			t.Errorf("%s\nplan %s: %+v\npod %+v\nseen %+v", wrong, plan, plan, p.Spec, see)
		}
	})
}

// violated names a rule that the plan breaks, whatever the pod and the world are.
func violated(p *corev1.Pod, see observed.Pod, plan podruntime.Plan) string {
	started, killed := map[string]bool{}, map[observed.ContainerID]bool{}
	for _, k := range plan.Kill {
		killed[k.Container.ID] = true
		if k.Message == "" || k.Reason == "" {
			return "a kill without a reason"
		}
		if k.Container.State != observed.Running && k.Container.State != observed.Unknown {
			return "a kill of a container that does not run"
		}
	}
	for _, s := range plan.Start {
		if started[s.Name] {
			return "a container starts twice"
		}
		started[s.Name] = true
		c, kind, ok := podspec.Find(p, s.Name)
		if !ok || kind != s.Kind {
			return "a start of something that is not in the pod"
		}
		last, ok := see.Container(s.Name)
		if ok && last.State == observed.Running && !plan.KillPod && !killed[last.ID] &&
			(kind != podspec.Init || last.Sandbox == plan.SandboxID) {
			return "a running container starts"
		}
		if kind == podspec.Regular && !plan.CreateSandbox && !killed[last.ID] && !podspec.ShouldStart(p, c, last, ok) {
			return "a container starts against its policy"
		}
	}
	for _, z := range plan.Resize {
		if z.Container.State != observed.Running || killed[z.Container.ID] || started[z.Name] || !z.CPU && !z.Memory {
			return "a resize of a container that does not go on, or of nothing"
		}
	}
	switch {
	case len(plan.Reset) > 0 && (plan.KillPod || plan.CreateSandbox || plan.ResizePod || plan.Done ||
		len(plan.Kill)+len(plan.Prune)+len(plan.Start)+len(plan.Resize) > 0):
		return "a restart of all containers beside other work"
	case len(plan.Resize) > 0 && !plan.ResizePod:
		return "a resize that the pod does not know of"
	case p.DeletionTimestamp != nil && (plan.ResizePod || len(plan.Reset) > 0):
		return "a resize or a restart in a pod that is being deleted"
	case plan.KillPod && !plan.CreateSandbox && len(plan.Start) > 0:
		return "containers start in a pod that is killed"
	case plan.KillPod && len(plan.Kill) > 0:
		return "single kills beside the pod's"
	case plan.CreateSandbox && !plan.KillPod && see.Exists():
		return "a new sandbox beside the old one"
	case plan.CreateSandbox && len(plan.Start) == 0 && len(p.Spec.InitContainers)+len(p.Spec.Containers) > 0:
		return "a sandbox for nothing"
	case plan.CreateSandbox && plan.Reason == "":
		return "a sandbox without a reason"
	case plan.Done && (see.HasRunning() || len(plan.Start) > 0 || plan.CreateSandbox):
		return "an ended pod that runs"
	case p.DeletionTimestamp != nil && (len(plan.Start) > 0 || plan.CreateSandbox):
		return "something starts in a pod that is being deleted"
	case !plan.CreateSandbox && !plan.KillPod && !plan.Done && plan.SandboxID == "":
		return "nothing to run in"
	}
	if plan.CreateSandbox {
		for _, s := range see.Sandboxes {
			if s.Attempt >= plan.Attempt {
				return "an attempt is used twice"
			}
		}
	}
	return ""
}

// The steady state: every resync of a healthy pod computes a plan of nothing.
func BenchmarkComputePodActions(b *testing.B) {
	p := pod("Always", "i:i0", "s:s", "a", "b")
	see := seen(run("b"), run("a"), run("s"), ex("i0", 0))
	b.ReportAllocs()
	for b.Loop() {
		if plan := podruntime.ComputePodActions(p, see, podruntime.Inputs{}); len(plan.Start) > 0 {
			b.Fatal(plan)
		}
	}
}

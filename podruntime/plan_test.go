package podruntime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// pod makes a pod from container names. i:NAME is an init container, s:NAME a
// sidecar, e:NAME an ephemeral container; the rest are regular ones.
func pod(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"},
		Spec:       corev1.PodSpec{RestartPolicy: policy},
	}
	for _, n := range names {
		c := corev1.Container{Name: n, Image: "img:1"}
		kind, name, ok := strings.Cut(n, ":")
		if ok {
			c.Name = name
		}
		switch {
		case !ok:
			p.Spec.Containers = append(p.Spec.Containers, c)
		case kind == "s":
			c.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case kind == "i":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case kind == "e":
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name, Image: c.Image},
			})
		}
	}
	return p
}

// in makes an instance in the current sandbox; ex one that exited.
func in(name string, state observed.State) observed.Container {
	c := &corev1.Container{Name: name, Image: "img:1"}
	return observed.Container{
		ID: observed.ContainerID(name + "-0"), Sandbox: "s0", Name: name, State: state, Hash: podruntime.Hash(c),
	}
}

func ex(name string, code int32) observed.Container {
	c := in(name, observed.Exited)
	c.ExitCode = code
	return c
}

func run(name string) observed.Container { return in(name, observed.Running) }

func was(c observed.Container, change func(*observed.Container)) observed.Container {
	change(&c)
	return c
}

func inSandbox(id observed.SandboxID) func(*observed.Container) {
	return func(c *observed.Container) { c.Sandbox = id }
}

var goodSandbox = observed.Sandbox{ID: "s0", Ready: true, NetworkReported: true, IPs: []string{"10.0.0.1"}}

func seen(containers ...observed.Container) observed.Pod {
	return observed.Pod{UID: "uid-1", Namespace: "default", Name: "web",
		Sandboxes: []observed.Sandbox{goodSandbox}, Containers: containers}
}

func deadSandbox(containers ...observed.Container) observed.Pod {
	p := seen(containers...)
	p.Sandboxes = []observed.Sandbox{{ID: "s0", Ready: false}}
	return p
}

type planCase struct {
	name string
	pod  *corev1.Pod
	seen observed.Pod
	in   podruntime.Inputs
	want string
	// messages of the kills, joined by |
	messages string
}

func runPlans(t *testing.T, cases []planCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			plan := podruntime.ComputePodActions(tt.pod, tt.seen, tt.in)
			if got := plan.String(); got != tt.want {
				t.Errorf("plan = %s\nwant   %s\n%+v", got, tt.want, plan)
			}
			var messages []string
			for _, k := range plan.Kill {
				messages = append(messages, k.Message)
			}
			if got := strings.Join(messages, "|"); got != tt.messages {
				t.Errorf("messages = %s\nwant       %s", got, tt.messages)
			}
		})
	}
}

func TestNewSandbox(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	runPlans(t, []planCase{
		{name: "a pod nobody has seen gets a sandbox and all its containers",
			pod: pod(always, "a", "b"), want: "create sandbox, start [a, b]"},
		{name: "with init containers only the first of them starts",
			pod: pod(always, "i:i0", "i:i1", "a"), want: "create sandbox, start [i0]"},
		{name: "a sidecar in front counts as the first init container",
			pod: pod(always, "s:s", "i:i1", "a"), want: "create sandbox, start [s]"},
		{name: "a dead sandbox starts everything anew under Always, successes too",
			pod: pod(always, "a", "b"), seen: deadSandbox(ex("a", 0), ex("b", 1)), want: "kill pod, create sandbox, start [a, b]"},
		{name: "the whole init sequence runs again and its old instances go",
			pod: pod(always, "i:i0", "i:i1", "a"), seen: deadSandbox(ex("i0", 0), ex("i1", 0), ex("a", 1)),
			want: "kill pod, remove [i0, i1], create sandbox, start [i0]"},
		{name: "OnFailure leaves out what succeeded",
			pod: pod(onFailure, "a", "b"), seen: deadSandbox(ex("a", 0), ex("b", 1)), want: "kill pod, create sandbox, start [b]"},
		{name: "OnFailure with nothing left is the end",
			pod: pod(onFailure, "a"), seen: deadSandbox(ex("a", 0)), want: "ended"},
		{name: "the container's own OnFailure leaves out what succeeded",
			pod: withPolicy(pod(always, "a", "b"), "a", corev1.ContainerRestartPolicyOnFailure), seen: deadSandbox(ex("a", 0)),
			want: "kill pod, create sandbox, start [b]"},
		{name: "Never gets no second sandbox once anything was created",
			pod: pod(never, "a"), seen: deadSandbox(ex("a", 1)), want: "ended"},
		{name: "Never gets no second sandbox after an init container",
			pod: pod(never, "i:i0", "a"), seen: deadSandbox(ex("i0", 0)), want: "ended"},
		{name: "Never with a running container is killed first",
			pod: pod(never, "a"), seen: deadSandbox(run("a")), want: "kill pod"},
		{name: "Never gets a second sandbox when nothing was created in the first",
			pod: pod(never, "a"), seen: deadSandbox(), want: "kill pod, create sandbox, start [a]"},
		{name: "container policies do not bring a sandbox back under Never",
			pod: withPolicy(pod(never, "a"), "a", corev1.ContainerRestartPolicyAlways), seen: deadSandbox(ex("a", 1)), want: "ended"},
		{name: "ephemeral containers do not start with the sandbox",
			pod: pod(always, "e:e", "a"), want: "create sandbox, start [a]"},
		{name: "a pod that is being deleted gets no sandbox",
			pod: deleted(pod(always, "a")), want: "ended"},
		{name: "Never gets no sandbox once anything has run, also when the sandbox's record is gone",
			pod: pod(never, "a", "b"), seen: noSandbox(ex("a", 0)), want: "ended"},
		{name: "a failure under OnFailure starts again when the sandbox's record is gone",
			pod: pod(onFailure, "a"), seen: noSandbox(ex("a", 1)), want: "kill pod, create sandbox, start [a]"},
		{name: "a success under OnFailure is the end when the sandbox's record is gone",
			pod: pod(onFailure, "a"), seen: noSandbox(ex("a", 0)), want: "ended"},
	})
}

func withPolicy(p *corev1.Pod, name string, policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) *corev1.Pod {
	c, _, _ := podspec.Find(p, name)
	c.RestartPolicy, c.RestartPolicyRules = &policy, rules
	return p
}

func deleted(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = ptr(metav1.NewTime(time.Unix(1, 0)))
	return p
}

// noSandbox has containers of which the sandbox is not known any more.
func noSandbox(containers ...observed.Container) observed.Pod {
	return observed.Pod{UID: "uid", Containers: containers}
}

func TestSandboxFields(t *testing.T) {
	keep := podruntime.ComputePodActions(pod("Always", "a"), seen(run("a")), podruntime.Inputs{})
	if diff := cmp.Diff(podruntime.Plan{SandboxID: "s0"}, keep); diff != "" {
		t.Errorf("a healthy pod (-want +got):\n%s", diff)
	}
	again := podruntime.ComputePodActions(pod("Always", "a"), deadSandbox(), podruntime.Inputs{})
	want := podruntime.Plan{
		KillPod: true, CreateSandbox: true, Attempt: 1, SandboxID: "s0", Reason: podspec.ReasonNotReady,
		Start: []podruntime.Start{{Name: "a"}},
	}
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("a dead sandbox (-want +got):\n%s", diff)
	}
}

func TestInitContainers(t *testing.T) {
	unknown := observed.Unknown
	runPlans(t, []planCase{
		{name: "a fresh sandbox starts the first init container",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(), want: "start [i0]"},
		{name: "a running init container is waited for",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(run("i0")), want: "nothing to do"},
		{name: "a success starts the next",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(ex("i0", 0)), want: "start [i1]"},
		{name: "the last success starts the app",
			pod: pod("Always", "i:i0", "i:i1", "a", "b"), seen: seen(ex("i1", 0), ex("i0", 0)), want: "start [a, b]"},
		{name: "the last success is enough when earlier records are gone",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(ex("i1", 0)), want: "start [a]"},
		{name: "a created init container starts again",
			pod: pod("Never", "i:i0", "a"), seen: seen(in("i0", observed.Created)), want: "start [i0]"},
		{name: "a failure is repeated under Always",
			pod: pod("Always", "i:i0", "a"), seen: seen(ex("i0", 1)), want: "start [i0]"},
		{name: "a failure is repeated under OnFailure",
			pod: pod("OnFailure", "i:i0", "a"), seen: seen(ex("i0", 1)), want: "start [i0]"},
		{name: "a failure under Never ends the pod",
			pod: pod("Never", "i:i0", "a"), seen: seen(ex("i0", 1)), want: "ended"},
		{name: "a failure under Never kills the sidecar beside it first",
			pod: pod("Never", "s:s", "i:i1", "a"), seen: seen(ex("i1", 1), run("s")), want: "kill pod"},
		{name: "a failure under Never starts no sidecar again",
			pod: pod("Never", "s:s", "i:i1", "a"), seen: seen(ex("i1", 1), ex("s", 1)), want: "ended"},
		{name: "a container policy decides about its init container",
			pod: withPolicy(pod("Always", "i:i0", "a"), "i0", corev1.ContainerRestartPolicyNever), seen: seen(ex("i0", 1)), want: "ended"},
		{name: "a rule brings a failed init container back under Never",
			pod: withPolicy(pod("Never", "i:i0", "a"), "i0", corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRule{
				Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{42}}}),
			seen: seen(ex("i0", 42)), want: "start [i0]"},
		{name: "an OOM kill with code 0 is a failure",
			pod: pod("OnFailure", "i:i0", "a"), seen: seen(was(ex("i0", 0), func(c *observed.Container) { c.Reason = "OOMKilled" })), want: "start [i0]"},
		{name: "an unknown init container is killed and started under Always",
			pod: pod("Always", "i:i0", "a"), seen: seen(in("i0", unknown)), want: "kill [i0], start [i0]",
			messages: `Init container is in "unknown" state, try killing it before restart`},
		{name: "an unknown init container ends a Never pod",
			pod: pod("Never", "i:i0", "a"), seen: seen(in("i0", unknown)), want: "kill pod"},
		{name: "an instance in an older sandbox does not count",
			pod: pod("Always", "i:i0", "a"), seen: seen(was(ex("i0", 0), inSandbox("old"))), want: "start [i0]"},
		{name: "init containers do not run again while the app runs, even without records",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(run("a")), want: "nothing to do"},
		{name: "init containers do not run again after the app has exited",
			pod: pod("Always", "i:i0", "a"), seen: seen(ex("a", 1)), want: "start [a]"},
		{name: "a failed init container is left alone once the app runs",
			pod: pod("Always", "i:i0", "a"), seen: seen(run("a"), ex("i0", 1)), want: "nothing to do"},
		{name: "an app instance in an older sandbox does not initialise this one",
			pod: pod("Always", "i:i0", "a"), seen: seen(was(ex("a", 1), inSandbox("old"))), want: "start [i0]"},
		{name: "a changed image of a finished init container is ignored",
			pod: pod("Always", "i:i0", "i:i1", "a"), seen: seen(was(ex("i0", 0), func(c *observed.Container) { c.Hash = "other" })), want: "start [i1]"},
		{name: "a changed image of a running init container is ignored",
			pod: pod("Always", "i:i0", "a"), seen: seen(was(run("i0"), func(c *observed.Container) { c.Hash = "other" })), want: "nothing to do"},
	})
}

func probed(p *corev1.Pod, name string) *corev1.Pod {
	c, _, _ := podspec.Find(p, name)
	c.StartupProbe, c.LivenessProbe = &corev1.Probe{}, &corev1.Probe{}
	return p
}

func results(startup, liveness podruntime.ProbeResult) podruntime.Inputs {
	return podruntime.Inputs{
		Startup:  func(observed.ContainerID) podruntime.ProbeResult { return startup },
		Liveness: func(observed.ContainerID) podruntime.ProbeResult { return liveness },
	}
}

func TestSidecars(t *testing.T) {
	const unknown, ok, bad = podruntime.ProbeUnknown, podruntime.ProbeSuccess, podruntime.ProbeFailure
	changed := func(c *observed.Container) { c.Hash = "other" }
	runPlans(t, []planCase{
		{name: "a running sidecar lets the next init container start",
			pod: pod("Always", "s:s", "i:i1", "a"), seen: seen(run("s")), want: "start [i1]"},
		{name: "a running sidecar in the last place lets the app start",
			pod: pod("Always", "i:i0", "s:s", "a"), seen: seen(run("s"), ex("i0", 0)), want: "start [a]"},
		{name: "a created sidecar starts again, nothing else",
			pod: pod("Always", "s:s", "i:i1", "a"), seen: seen(in("s", observed.Created)), want: "start [s]"},
		{name: "an exited sidecar restarts beside a running init container",
			pod: pod("Never", "s:s", "i:i1", "a"), seen: seen(run("i1"), ex("s", 0)), want: "start [s]"},
		{name: "a sidecar restarts and the next init container starts in one pass, in spec order",
			pod: pod("Never", "s:s", "i:i1", "i:i2", "a"), seen: seen(ex("i1", 0), ex("s", 1)), want: "start [s, i2]"},
		{name: "an exited sidecar restarts beside the app under any policy",
			pod: pod("Never", "s:s", "a"), seen: seen(run("a"), ex("s", 0)), want: "start [s]"},
		{name: "a sidecar whose record is gone starts again",
			pod: pod("Never", "s:s", "a"), seen: seen(run("a")), want: "start [s]"},
		{name: "a sidecar before the one that is seen starts again when its record is gone",
			pod: pod("Always", "s:s0", "i:i1", "a"), seen: seen(run("i1")), want: "start [s0]"},
		{name: "an unknown sidecar is killed and started under Never",
			pod: pod("Never", "s:s", "a"), seen: seen(run("a"), in("s", observed.Unknown)), want: "kill [s], start [s]",
			messages: `Init container is in "unknown" state, try killing it before restart`},
		{name: "a changed sidecar is replaced while the app runs",
			pod: pod("Never", "s:s", "a"), seen: seen(run("a"), was(run("s"), changed)), want: "kill [s], start [s]",
			messages: "Init container s definition changed"},
		{name: "a sidecar that has not started keeps the rest waiting",
			pod: probed(pod("Always", "s:s", "i:i1", "a"), "s"), seen: seen(run("s")), in: results(unknown, unknown), want: "nothing to do"},
		{name: "a started sidecar lets the next start",
			pod: probed(pod("Always", "s:s", "i:i1", "a"), "s"), seen: seen(run("s")), in: results(ok, unknown), want: "start [i1]"},
		{name: "a failed startup probe restarts it",
			pod: probed(pod("Always", "s:s", "i:i1", "a"), "s"), seen: seen(run("s")), in: results(bad, ok), want: "kill [s], start [s]",
			messages: "Init container s failed startup probe"},
		{name: "a failed liveness probe restarts it and holds nobody up",
			pod: probed(pod("Always", "s:s", "i:i1", "a"), "s"), seen: seen(run("s")), in: results(ok, bad), want: "kill [s], start [s, i1]",
			messages: "Init container s failed liveness probe"},
		{name: "readiness of probes nobody runs does not matter",
			pod: probed(pod("Always", "s:s", "a"), "s"), seen: seen(run("s")), want: "start [a]"},
		{name: "when the app is done the pod goes down with its sidecars",
			pod: pod("Never", "s:s", "a"), seen: seen(ex("a", 0), run("s")), want: "kill pod"},
		{name: "a dead sidecar of a finished pod is not restarted",
			pod: pod("Never", "s:s", "a"), seen: seen(ex("a", 0), ex("s", 137)), want: "ended"},
	})
}

func TestRegularContainers(t *testing.T) {
	const unknown, ok, bad = podruntime.ProbeUnknown, podruntime.ProbeSuccess, podruntime.ProbeFailure
	changed := func(c *observed.Container) { c.Hash = "other" }
	never := corev1.ContainerRestartPolicyNever
	runPlans(t, []planCase{
		{name: "running containers are kept", pod: pod("Always", "a", "b"), seen: seen(run("a"), run("b")), want: "nothing to do"},
		{name: "a missing one starts", pod: pod("Never", "a", "b"), seen: seen(run("a")), want: "start [b]"},
		{name: "a created one starts", pod: pod("Never", "a"), seen: seen(in("a", observed.Created)), want: "start [a]"},
		{name: "an exited one restarts under Always", pod: pod("Always", "a"), seen: seen(ex("a", 0)), want: "start [a]"},
		{name: "a failed one restarts under OnFailure", pod: pod("OnFailure", "a"), seen: seen(ex("a", 2)), want: "start [a]"},
		{name: "a success under OnFailure is the end", pod: pod("OnFailure", "a"), seen: seen(ex("a", 0)), want: "ended"},
		{name: "a failure under Never is the end", pod: pod("Never", "a"), seen: seen(ex("a", 2)), want: "ended"},
		{name: "a finished one beside a running one changes nothing", pod: pod("Never", "a", "b"), seen: seen(ex("a", 2), run("b")), want: "nothing to do"},
		{name: "the newest instance decides", pod: pod("OnFailure", "a"),
			seen: seen(ex("a", 0), was(ex("a", 1), func(c *observed.Container) { c.ID = "a-old" })), want: "ended"},
		{name: "an unknown one is killed and started", pod: pod("Never", "a"), seen: seen(in("a", observed.Unknown)),
			want: "kill [a], start [a]", messages: `Container is in "unknown" state, try killing it before restart`},
		{name: "a changed one is replaced, whatever the policy", pod: pod("Never", "a"), seen: seen(was(run("a"), changed)),
			want: "kill [a], start [a]", messages: "Container a definition changed, will be restarted"},
		{name: "an instance without a hash is not a changed one", pod: pod("Never", "a"),
			seen: seen(was(run("a"), func(c *observed.Container) { c.Hash = "" })), want: "nothing to do"},
		{name: "a failed liveness probe restarts", pod: probed(pod("OnFailure", "a"), "a"), seen: seen(run("a")), in: results(ok, bad),
			want: "kill [a], start [a]", messages: "Container a failed liveness probe, will be restarted"},
		{name: "a failed startup probe restarts", pod: probed(pod("Always", "a"), "a"), seen: seen(run("a")), in: results(bad, unknown),
			want: "kill [a], start [a]", messages: "Container a failed startup probe, will be restarted"},
		{name: "under Never a failed probe stops it for good", pod: probed(pod("Never", "a", "b"), "a"), seen: seen(run("a"), run("b")), in: results(ok, bad),
			want: "kill [a]", messages: "Container a failed liveness probe"},
		{name: "under Never the only one goes down with the pod", pod: probed(pod("Never", "a"), "a"), seen: seen(run("a")), in: results(ok, bad),
			want: "kill pod"},
		{name: "a container policy decides about probe kills", pod: withPolicy(probed(pod("Always", "a", "b"), "a"), "a", never),
			seen: seen(run("a"), run("b")), in: results(ok, bad), want: "kill [a]", messages: "Container a failed liveness probe"},
		{name: "rules are not asked about probe kills",
			pod: withPolicy(probed(pod("Always", "a", "b"), "a"), "a", never, corev1.ContainerRestartRule{
				Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "NotIn", Values: []int32{0}}}),
			seen: seen(run("a"), run("b")), in: results(ok, bad), want: "kill [a]", messages: "Container a failed liveness probe"},
		{name: "the hash goes before the probes", pod: probed(pod("Never", "a"), "a"), seen: seen(was(run("a"), changed)), in: results(bad, bad),
			want: "kill [a], start [a]", messages: "Container a definition changed, will be restarted"},
		{name: "a result for a container without that probe means nothing", pod: pod("Always", "a"), seen: seen(run("a")), in: results(bad, bad), want: "nothing to do"},
		{name: "a pod that is being deleted restarts nothing", pod: deleted(pod("Always", "a", "b")), seen: seen(run("a"), ex("b", 1)), want: "nothing to do"},
	})
}

func TestEphemeralContainers(t *testing.T) {
	runPlans(t, []planCase{
		{name: "one that was never seen starts, before the pod is initialised",
			pod: pod("Always", "e:e", "i:i0", "a"), seen: seen(run("i0")), want: "start [e]"},
		{name: "they start first", pod: pod("Always", "e:e", "a"), seen: seen(ex("a", 1)), want: "start [e, a]"},
		{name: "one that ended stays down", pod: pod("Always", "e:e", "a"), seen: seen(run("a"), ex("e", 1)), want: "nothing to do"},
		{name: "none starts in a pod that ends", pod: pod("Never", "e:e", "a"), seen: seen(ex("a", 0)), want: "ended"},
	})
}

func TestOldInitInstancesArePruned(t *testing.T) {
	old := func(id observed.ContainerID, state observed.State) observed.Container {
		return was(in("i0", state), func(c *observed.Container) { c.ID = id })
	}
	got := podruntime.ComputePodActions(pod("Always", "i:i0", "a"),
		seen(run("a"), old("i0-3", observed.Exited), old("i0-2", observed.Unknown), old("i0-1", observed.Exited), old("i0-0", observed.Created)),
		podruntime.Inputs{})
	var ids []observed.ContainerID
	for _, c := range got.Prune {
		ids = append(ids, c.ID)
	}
	if diff := cmp.Diff([]observed.ContainerID{"i0-2", "i0-1"}, ids); diff != "" {
		t.Errorf("pruned (-want +got):\n%s", diff)
	}
}

func TestHashIsTheKubeletsAndStays(t *testing.T) {
	// The first value is what a kubelet writes for this container. If this test
	// fails, an upgrade would restart every container of a node.
	c := corev1.Container{Name: "test_container", Image: "foo/image:v1"}
	if got := podruntime.Hash(&c); got != "8e45cbd0" {
		t.Errorf("Hash = %s, want 8e45cbd0", got)
	}
	before := podruntime.Hash(&c)
	c.Args, c.Env, c.WorkingDir = []string{"x"}, []corev1.EnvVar{{Name: "A"}}, "/"
	if podruntime.Hash(&c) != before {
		t.Error("a field beside name and image changed the hash")
	}
	c.Image = "foo/image:v2"
	if podruntime.Hash(&c) == before {
		t.Error("the image did not change the hash")
	}
	odd := corev1.Container{Name: `a"<b>`, Image: "ü\n"}
	if got := podruntime.Hash(&odd); got != "e3f58cf4" {
		t.Errorf("Hash of odd strings = %s", got)
	}
}

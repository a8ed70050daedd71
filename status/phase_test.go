package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

func TestPhase(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	pending, running, succeeded, failed := corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed
	oldSandbox := seen(runs("s", "s"), runs("app", "a"))
	oldSandbox.Sandboxes[0].ID = "s1" // the containers are in s0
	cases := []struct {
		name     string
		pod      *corev1.Pod
		seen     observed.Pod
		terminal bool
		static   bool
		want     corev1.PodPhase
	}{
		{"nothing there", newPod(always, "app"), observed.Pod{}, false, false, pending},
		{"all run", newPod(always, "a", "b"), seen(runs("a", "1"), runs("b", "2")), false, false, running},
		{"one not created yet", newPod(always, "a", "b"), seen(runs("a", "1")), false, false, pending},
		{"one created", newPod(always, "a", "b"), seen(runs("a", "1"), inState(runs("b", "2"), observed.Created)), false, false, pending},
		{"one ended, one runs", newPod(never, "a", "b"), seen(runs("a", "1"), ended("b", "2", 1)), false, false, running},
		{"all ended well, Never", newPod(never, "a", "b"), seen(ended("a", "1", 0), ended("b", "2", 0)), false, false, succeeded},
		{"one ended badly, Never", newPod(never, "a", "b"), seen(ended("a", "1", 0), ended("b", "2", 4)), false, false, failed},
		{"all ended well, OnFailure", newPod(onFailure, "a"), seen(ended("a", "1", 0)), false, false, succeeded},
		{"ended badly, OnFailure: it will restart", newPod(onFailure, "a"), seen(ended("a", "1", 1)), false, false, running},
		{"ended well, Always: it will restart", newPod(always, "a"), seen(ended("a", "1", 0)), false, false, running},
		{"ended badly, Always, being stopped", newPod(always, "a"), seen(ended("a", "1", 1)), true, false, failed},
		{"ended well, Always, being stopped", newPod(always, "a"), seen(ended("a", "1", 0)), true, false, succeeded},
		{"a static pod being stopped keeps its phase", newPod(always, "a"), seen(ended("a", "1", 0)), true, true, running},
		{"a static pod that ran to its end has one", newPod(never, "a"), seen(ended("a", "1", 0)), false, true, succeeded},
		{"unknown is not running", newPod(always, "a"), seen(inState(runs("a", "1"), observed.Unknown)), false, false, pending},

		{"init not created", newPod(always, "init:i", "a"), seen(), false, false, pending},
		{"init runs", newPod(always, "init:i", "a"), seen(runs("i", "1")), false, false, pending},
		{"init through, app not yet created", newPod(always, "init:i", "a"), seen(ended("i", "1", 0)), false, false, pending},
		{"init failed, Always", newPod(always, "init:i", "a"), seen(ended("i", "1", 1)), false, false, pending},
		{"init failed, OnFailure", newPod(onFailure, "init:i", "a"), seen(ended("i", "1", 1)), false, false, pending},
		{"init failed, Never", newPod(never, "init:i", "a"), seen(ended("i", "1", 1)), false, false, failed},
		{"init through, app runs", newPod(never, "init:i", "a"), seen(runs("a", "2"), ended("i", "1", 0)), false, false, running},

		{"sidecar runs, app not yet", newPod(always, "side:s", "app"), seen(runs("s", "1")), false, false, pending},
		{"sidecar and app run", newPod(always, "side:s", "app"), seen(runs("s", "1"), runs("app", "2")), false, false, running},
		{"sidecar ended, app runs", newPod(always, "side:s", "app"), seen(ended("s", "1", 1), runs("app", "2")), false, false, running},
		{"sidecar runs, app ended well, Never", newPod(never, "side:s", "app"), seen(runs("s", "1"), ended("app", "2", 0)), false, false, running},
		{"sidecar killed, app ended well", newPod(never, "side:s", "app"), seen(ended("s", "1", 137), ended("app", "2", 0)), false, false, succeeded},
		{"sidecar never started, app runs", newPod(always, "side:s", "app"), seen(runs("app", "2")), false, false, pending},
		{"sidecar waits for its next start, app of the last sandbox has ended", newPod(always, "side:s", "app"),
			inSandbox("s1", seen(inState(runs("s", "2"), observed.Created), ended("s", "1", 1), ended("app", "0", 1))), false, false, pending},
		{"init before sidecar fails for good while the sidecar runs", newPod(never, "side:s", "init:i", "app"), seen(ended("i", "2", 1)), false, false, failed},
		{"the app of an older sandbox still counts", newPod(always, "side:s", "app"), oldSandbox, false, false, running},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.static {
				c.pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
			}
			in := input(c.pod, c.seen)
			in.Terminal = c.terminal
			if got := status.Generate(in).Phase; got != c.want {
				t.Errorf("phase = %s, want %s", got, c.want)
			}
			if got := status.Decide(in); got != c.want {
				t.Errorf("Decide = %s, want %s", got, c.want)
			}
		})
	}
}

// inSandbox puts the newest container into another sandbox, in which it is alone.
func inSandbox(id observed.SandboxID, p observed.Pod) observed.Pod {
	p.Sandboxes[0].ID, p.Containers[0].Sandbox = id, id
	return p
}

func TestContainerPolicyDecidesOverThePods(t *testing.T) {
	never := corev1.ContainerRestartPolicyNever
	pod := newPod(corev1.RestartPolicyAlways, "a")
	pod.Spec.Containers[0].RestartPolicy = &never
	if got := status.Decide(input(pod, seen(ended("a", "1", 1)))); got != corev1.PodFailed {
		t.Errorf("phase = %s, want Failed", got)
	}
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
	}}
	if got := status.Decide(input(pod, seen(ended("a", "1", 1)))); got != corev1.PodRunning {
		t.Errorf("phase = %s, want Running: a rule restarts exit code 1", got)
	}
}

func TestTerminalPhaseWaitsForContainers(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	in := input(pod, seen(runs("app", "a")))
	in.Last = status.Generate(in)
	in.Verdict = &status.Failure{Reason: status.ReasonDeadlineExceeded, Message: status.MessageDeadlineExceeded}
	if got := status.Decide(in); got != corev1.PodFailed {
		t.Errorf("Decide = %s, want Failed: the pod has to be stopped", got)
	}
	for _, state := range []observed.State{observed.Running, observed.Unknown} {
		in.Seen = seen(inState(runs("app", "a"), state))
		if st := status.Generate(in); st.Phase != corev1.PodRunning || st.Reason != "" {
			t.Errorf("%v: %s %q, want Running: something may run", state, st.Phase, st.Reason)
		}
	}
	in.Seen = seen(ended("app", "a", 0))
	st := status.Generate(in)
	if st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" || st.Message != status.MessageDeadlineExceeded {
		t.Errorf("ended: %s %q %q", st.Phase, st.Reason, st.Message)
	}
	// The words stay with the phase.
	in.Last, in.Verdict = st, nil
	if st := status.Generate(in); st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" {
		t.Errorf("later: %s %q", st.Phase, st.Reason)
	}
	// A first look at a pod that failed while its sidecar runs.
	pod = newPod(corev1.RestartPolicyNever, "side:s", "init:i", "app")
	in = input(pod, seen(runs("s", "1"), ended("i", "2", 1)))
	if st := status.Generate(in); status.Decide(in) != corev1.PodFailed || st.Phase != corev1.PodRunning {
		t.Errorf("phase = %s, want it held at Running", st.Phase)
	}
}

func TestTerminalPhaseIsFinal(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app")
	for _, final := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		for _, s := range []observed.Pod{{}, seen(), seen(ended("app", "a", 0)), seen(ended("app", "a", 1)), seen(runs("app", "b"))} {
			in := input(pod, s)
			in.Last = corev1.PodStatus{Phase: final, Reason: "Why"}
			if st := status.Generate(in); st.Phase != final || st.Reason != "Why" {
				t.Errorf("after %s: %s %q", final, st.Phase, st.Reason)
			}
			in.Last = corev1.PodStatus{}
			in.Pod = pod.DeepCopy()
			in.Pod.Status = corev1.PodStatus{Phase: final, Reason: "API"}
			if st := status.Generate(in); st.Phase != final || st.Reason != "API" {
				t.Errorf("after the API's %s: %s %q", final, st.Phase, st.Reason)
			}
		}
	}
}

func TestOtherFields(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	st := status.Generate(input(pod, noSandbox()))
	if st.ObservedGeneration != 3 || st.QOSClass != corev1.PodQOSBestEffort || !st.StartTime.Time.Equal(t2) {
		t.Errorf("generation %d, qos %s, start %v", st.ObservedGeneration, st.QOSClass, st.StartTime)
	}
	in := input(pod, seen(runs("app", "a")))
	if st := status.Generate(in); !st.StartTime.Time.Equal(t0) {
		t.Errorf("start %v: want the sandbox's, as nobody else knows", st.StartTime)
	}
	in.Seen.Sandboxes[0].CreatedAt = t2.Add(time.Hour)
	if st := status.Generate(in); !st.StartTime.Time.Equal(t2) {
		t.Errorf("start %v, which is to come", st.StartTime)
	}
	in.Last = corev1.PodStatus{QOSClass: corev1.PodQOSGuaranteed, StartTime: &metav1.Time{Time: t0}}
	if st := status.Generate(in); st.QOSClass != corev1.PodQOSGuaranteed || !st.StartTime.Time.Equal(t0) {
		t.Errorf("qos %s, start %v: want what was reported", st.QOSClass, st.StartTime)
	}
	in.Last = corev1.PodStatus{}
	in.Pod = pod.DeepCopy()
	in.Pod.Status.StartTime = &metav1.Time{Time: t1}
	if st := status.Generate(in); !st.StartTime.Time.Equal(t1) {
		t.Errorf("start %v: want the API's", st.StartTime)
	}
}

func TestIPs(t *testing.T) {
	type want struct{ host, hosts, pod, pods string }
	none := func(p *observed.Pod) { p.Sandboxes[0].IPs = nil }
	cases := []struct {
		name        string
		hostNetwork bool
		sandboxIPs  []string
		change      func(*observed.Pod)
		hostIPs     []string
		last        []string
		want        want
	}{
		{"one address", false, []string{"10.0.0.7"}, nil, []string{"192.0.2.1"}, nil, want{"192.0.2.1", "192.0.2.1", "10.0.0.7", "10.0.0.7"}},
		{"the node's primary family goes first", false, []string{"10.0.0.7", "fd00::7"}, nil, []string{"2001:db8::1", "192.0.2.1"}, nil,
			want{"2001:db8::1", "2001:db8::1,192.0.2.1", "fd00::7", "fd00::7,10.0.0.7"}},
		{"IPv4 first without a node address", false, []string{"fd00::7", "10.0.0.7"}, nil, nil, nil, want{"", "", "10.0.0.7", "10.0.0.7,fd00::7"}},
		{"one per family", false, []string{"10.0.0.7", "10.0.0.8"}, nil, []string{"192.0.2.1", "192.0.2.2"}, nil, want{"192.0.2.1", "192.0.2.1", "10.0.0.7", "10.0.0.7"}},
		{"what is no address is left out", false, []string{"x"}, nil, []string{"y"}, nil, want{}},
		{"a finished pod keeps its address", false, nil, func(p *observed.Pod) { p.Sandboxes[0].Ready = false }, nil, []string{"10.0.0.7"}, want{"", "", "10.0.0.7", "10.0.0.7"}},
		{"no word about the network keeps it too", false, nil, func(p *observed.Pod) { none(p); p.Sandboxes[0].NetworkReported = false }, nil, []string{"10.0.0.7"}, want{"", "", "10.0.0.7", "10.0.0.7"}},
		{"a network that was lost does not", false, nil, none, nil, []string{"10.0.0.7"}, want{}},
		{"a new sandbox has a new address", false, []string{"10.0.0.8"}, nil, nil, []string{"10.0.0.7"}, want{"", "", "10.0.0.8", "10.0.0.8"}},
		{"host network", true, nil, none, []string{"192.0.2.1"}, nil, want{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1"}},
		{"host network stays with its address", true, nil, none, []string{"192.0.2.9"}, []string{"192.0.2.1"}, want{"192.0.2.9", "192.0.2.9", "192.0.2.1", "192.0.2.1"}},
		{"host network gets a second family", true, nil, none, []string{"192.0.2.1", "2001:db8::1"}, []string{"192.0.2.1"},
			want{"192.0.2.1", "192.0.2.1,2001:db8::1", "192.0.2.1", "192.0.2.1,2001:db8::1"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			pod.Spec.HostNetwork = c.hostNetwork
			s := seen(runs("app", "a"))
			s.Sandboxes[0].IPs = c.sandboxIPs
			if c.change != nil {
				c.change(&s)
			}
			in := input(pod, s)
			in.HostIPs = c.hostIPs
			for _, ip := range c.last {
				in.Last.PodIPs = append(in.Last.PodIPs, corev1.PodIP{IP: ip})
				in.Last.PodIP = in.Last.PodIPs[0].IP
			}
			st := status.Generate(in)
			got := want{host: st.HostIP, pod: st.PodIP}
			for i, ip := range st.HostIPs {
				got.hosts += []string{"", ","}[min(i, 1)] + ip.IP
			}
			for i, ip := range st.PodIPs {
				got.pods += []string{"", ","}[min(i, 1)] + ip.IP
			}
			if got != c.want {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

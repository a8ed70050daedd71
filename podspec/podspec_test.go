package podspec_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

func ptr[T any](v T) *T { return &v }

func rule(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{
		Action:    action,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
	}
}

func TestMayRestart(t *testing.T) {
	const (
		in      = corev1.ContainerRestartRuleOnExitCodesOpIn
		notIn   = corev1.ContainerRestartRuleOnExitCodesOpNotIn
		restart = corev1.ContainerRestartRuleActionRestart
		all     = corev1.ContainerRestartRuleActionRestartAllContainers
	)
	tests := []struct {
		name  string
		pod   corev1.RestartPolicy
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		code  int32
		want  bool
	}{
		{"Always restarts a success", "Always", nil, nil, 0, true},
		{"an unset policy is Always", "", nil, nil, 0, true},
		{"OnFailure leaves a success", "OnFailure", nil, nil, 0, false},
		{"OnFailure restarts a failure", "OnFailure", nil, nil, 2, true},
		{"Never leaves a failure", "Never", nil, nil, 2, false},
		{"the container's Always goes before the pod's Never", "Never", ptr(corev1.ContainerRestartPolicyAlways), nil, 0, true},
		{"the container's Never goes before the pod's Always", "Always", ptr(corev1.ContainerRestartPolicyNever), nil, 2, false},
		{"the container's OnFailure looks at the code", "Never", ptr(corev1.ContainerRestartPolicyOnFailure), nil, 2, true},
		{"a rule that names the code restarts", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(restart, in, 42)}, 42, true},
		{"a rule that names another code leaves it to the policy", "Always", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(restart, in, 42)}, 1, false},
		{"NotIn matches what it does not name", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(restart, notIn, 42)}, 1, true},
		{"restarting all containers restarts this one", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(all, in, 7)}, 7, true},
		{"restarting all containers is for its exit codes only", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(all, in, 7)}, 8, false},
		{"the first rule that matches decides", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{rule(restart, in, 7), rule(all, in, 7)}, 7, true},
		{"restarting all containers needs a container policy, too", "Never", nil,
			[]corev1.ContainerRestartRule{rule(all, in, 7)}, 7, false},
		{"rules without a container policy are ignored", "Never", nil,
			[]corev1.ContainerRestartRule{rule(restart, in, 42)}, 42, false},
		{"a rule without exit codes never matches", "Never", ptr(corev1.ContainerRestartPolicyNever),
			[]corev1.ContainerRestartRule{{Action: restart}}, 42, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tt.pod}}
			c := &corev1.Container{Name: "app", RestartPolicy: tt.own, RestartPolicyRules: tt.rules}
			if got := podspec.MayRestart(pod, c, tt.code); got != tt.want {
				t.Errorf("MayRestart = %v, want %v", got, tt.want)
			}
			wantAll := tt.own != nil && len(tt.rules) > 0 && tt.rules[0].Action == all && tt.want
			if got := podspec.RestartsAll(c, tt.code); got != wantAll {
				t.Errorf("RestartsAll = %v, want %v", got, wantAll)
			}
		})
	}
}

func TestShouldStart(t *testing.T) {
	never := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: "Never"}}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr(metav1.NewTime(time.Unix(1, 0)))}}
	c := &corev1.Container{Name: "app"}
	tests := []struct {
		name  string
		pod   *corev1.Pod
		state observed.State
		known bool
		want  bool
	}{
		{"a container nobody has seen starts", never, 0, false, true},
		{"a pod that is being deleted starts nothing", deleted, 0, false, false},
		{"a running container does not start again", never, observed.Running, true, false},
		{"a created container starts under any policy", never, observed.Created, true, true},
		{"an unknown container starts under any policy", never, observed.Unknown, true, true},
		{"an exited container follows the policy", never, observed.Exited, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := podspec.ShouldStart(tt.pod, c, observed.Container{State: tt.state}, tt.known)
			if got != tt.want {
				t.Errorf("ShouldStart = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestNeedSandbox(t *testing.T) {
	sb := func(id string, attempt uint32, ready bool, ips ...string) observed.Sandbox {
		return observed.Sandbox{ID: observed.SandboxID(id), Attempt: attempt, Ready: ready, IPs: ips, NetworkReported: true}
	}
	host := sb("h", 0, true)
	host.HostNetwork = true
	silent := sb("a", 2, true)
	silent.NetworkReported = false
	tests := []struct {
		name string
		host bool
		seen []observed.Sandbox
		want podspec.Need
	}{
		{"no sandbox is the first attempt", false, nil,
			podspec.Need{Create: true, Reason: podspec.ReasonNoSandbox}},
		{"a ready sandbox with an address is kept", false, []observed.Sandbox{sb("a", 3, true, "10.0.0.1")},
			podspec.Need{Attempt: 3, ID: "a"}},
		{"two ready ones are both replaced", false, []observed.Sandbox{sb("b", 1, true, "10.0.0.2"), sb("a", 0, true, "10.0.0.1")},
			podspec.Need{Create: true, Attempt: 2, ID: "b", Reason: podspec.ReasonManyReady}},
		{"a stopped one is replaced", false, []observed.Sandbox{sb("a", 0, false)},
			podspec.Need{Create: true, Attempt: 1, ID: "a", Reason: podspec.ReasonNotReady}},
		{"the newest decides, even when an older one is ready", false, []observed.Sandbox{sb("b", 1, false), sb("a", 0, true, "10.0.0.1")},
			podspec.Need{Create: true, Attempt: 2, ID: "b", Reason: podspec.ReasonNotReady}},
		{"another network mode replaces it and forgets the old ID", true, []observed.Sandbox{sb("a", 0, true, "10.0.0.1")},
			podspec.Need{Create: true, Attempt: 1, Reason: podspec.ReasonNetworkChanged}},
		{"a sandbox that lost its address is replaced", false, []observed.Sandbox{sb("a", 0, true)},
			podspec.Need{Create: true, Attempt: 1, ID: "a", Reason: podspec.ReasonNoIP}},
		{"no word about the network is not a lost address", false, []observed.Sandbox{silent},
			podspec.Need{Attempt: 2, ID: "a"}},
		{"a host network sandbox needs no address", true, []observed.Sandbox{host},
			podspec.Need{ID: "h"}},
		{"a higher attempt of an older sandbox is not used again", false, []observed.Sandbox{sb("b", 1, false), sb("a", 5, false)},
			podspec.Need{Create: true, Attempt: 6, ID: "b", Reason: podspec.ReasonNotReady}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: tt.host}}
			if got := podspec.NeedSandbox(pod, observed.Pod{Sandboxes: tt.seen}); got != tt.want {
				t.Errorf("NeedSandbox = %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestQoS(t *testing.T) {
	list := func(cpu, mem string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			l[corev1.ResourceMemory] = resource.MustParse(mem)
		}
		return l
	}
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		{"nothing asked is BestEffort", nil, nil, corev1.PodQOSBestEffort},
		{"zero asked is BestEffort", list("0", "0"), nil, corev1.PodQOSBestEffort},
		{"a request is Burstable", list("1", ""), nil, corev1.PodQOSBurstable},
		{"limits alone are Guaranteed", nil, list("1", "1Gi"), corev1.PodQOSGuaranteed},
		{"equal requests and limits are Guaranteed", list("1000m", "1Gi"), list("1", "1Gi"), corev1.PodQOSGuaranteed},
		{"lower requests are Burstable", list("500m", "1Gi"), list("1", "1Gi"), corev1.PodQOSBurstable},
		{"one resource pinned is Burstable", nil, list("1", ""), corev1.PodQOSBurstable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Resources: corev1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits},
			}}}}
			if got := podspec.QoS(pod); got != tt.want {
				t.Errorf("QoS = %v, want %v", got, tt.want)
			}
			pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
			if got := podspec.QoS(pod); tt.want == corev1.PodQOSGuaranteed && got != corev1.PodQOSBurstable {
				t.Errorf("QoS with an init container that asks nothing = %v, want Burstable", got)
			}
		})
	}
}

func TestAllAndFind(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Name: "app"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}},
		},
	}}
	var got []string
	for c, kind := range podspec.All(pod) {
		got = append(got, kind.String()+"/"+c.Name)
	}
	want := "init_container/init init_container/side container/app ephemeral_container/debug"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("All = %s\nwant  %s", s, want)
	}
	for range podspec.All(pod) {
		break // an early break must not yield again
	}
	if c, kind, ok := podspec.Find(pod, "debug"); !ok || kind != podspec.Ephemeral || c.Name != "debug" {
		t.Errorf("Find(debug) = %v, %v, %v", c, kind, ok)
	}
	if _, _, ok := podspec.Find(pod, "nobody"); ok {
		t.Error("Find(nobody) found something")
	}
	if !podspec.IsSidecar(&pod.Spec.InitContainers[1]) || podspec.IsSidecar(&pod.Spec.InitContainers[0]) {
		t.Error("only the second init container is a sidecar")
	}
}

func TestIsStatic(t *testing.T) {
	for source, want := range map[string]bool{"file": true, "http": true, "api": false} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{"kubernetes.io/config.source": source}
		if got := podspec.IsStatic(pod); got != want {
			t.Errorf("IsStatic of a pod from %s = %v, want %v", source, got, want)
		}
	}
	if podspec.IsStatic(&corev1.Pod{}) {
		t.Error("a pod that does not say where it is from is static")
	}
}

func TestTerminationGrace(t *testing.T) {
	pod := &corev1.Pod{}
	if got := podspec.TerminationGrace(pod); got != 2 {
		t.Errorf("grace of a pod without one = %d, want 2", got)
	}
	pod.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
	if got := podspec.TerminationGrace(pod); got != 30 {
		t.Errorf("grace = %d, want the spec's 30", got)
	}
	pod.DeletionGracePeriodSeconds = ptr(int64(5))
	if got := podspec.TerminationGrace(pod); got != 5 {
		t.Errorf("grace = %d, want the deletion's 5", got)
	}
}

// A container that failed under OnFailure comes back; the sandbox it ran in has
// stopped, so both need a new one.
func Example() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyOnFailure,
		Containers:    []corev1.Container{{Name: "app"}},
	}}
	seen := observed.Pod{
		Sandboxes:  []observed.Sandbox{{ID: "s0", Attempt: 0, Ready: false}},
		Containers: []observed.Container{{ID: "c0", Name: "app", State: observed.Exited, ExitCode: 3}},
	}
	c, kind, _ := podspec.Find(pod, "app")
	last, _ := seen.Container("app")
	fmt.Println(kind, "may restart:", podspec.MayRestart(pod, c, last.ExitCode))
	fmt.Printf("%+v\n", podspec.NeedSandbox(pod, seen))
	// Output:
	// container may restart: true
	// {Create:true Attempt:1 ID:s0 Reason:pod sandbox is not ready}
}

func TestIsCritical(t *testing.T) {
	for name, tt := range map[string]struct {
		source   string
		priority *int32
		want     bool
	}{
		"an ordinary pod":                   {"api", nil, false},
		"the highest priority of users":     {"api", ptr[int32](1_000_000_000), false},
		"just below the system's":           {"api", ptr[int32](1_999_999_999), false},
		"the lowest priority of the system": {"api", ptr[int32](2_000_000_000), true},
		"a static pod":                      {"file", nil, true},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: tt.priority}}
		pod.Annotations = map[string]string{"kubernetes.io/config.source": tt.source}
		if got := podspec.IsCritical(pod); got != tt.want {
			t.Errorf("%s: IsCritical = %v, want %v", name, got, tt.want)
		}
	}
}

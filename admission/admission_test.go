package admission_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/admission"
)

func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func port(p corev1.ContainerPort) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, p)
	}
}

func TestAdmitters(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	initPort := func(sidecar bool) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			c := corev1.Container{Name: "i", Ports: []corev1.ContainerPort{{HostPort: 80}}}
			if sidecar {
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = []corev1.Container{c}
		}
	}
	tcp80 := newPod("holder", port(corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolTCP}))
	unmapped := func(n int) admission.Admitter {
		return admission.Unmapped(func(*corev1.Pod) field.ErrorList {
			var errs field.ErrorList
			for i := range n {
				errs = append(errs, field.Forbidden(field.NewPath("spec", "volumes").Index(i).Child("secret"), ""))
			}
			if n == 1 {
				errs[0].Detail = "only linux is"
			}
			return errs
		})
	}
	cases := []struct {
		name    string
		admit   admission.Admitter
		pod     *corev1.Pod
		others  []*corev1.Pod
		reason  string // "" for yes
		message string // part of it
	}{
		{name: "no node name", admit: admission.NodeName("n1"), pod: newPod("a")},
		{name: "this node's name", admit: admission.NodeName("n1"), pod: newPod("a", func(p *corev1.Pod) { p.Spec.NodeName = "n1" })},
		{name: "another node's name", admit: admission.NodeName("n1"), pod: newPod("a", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
			reason: "NodeName", message: `Predicate NodeName failed: node(s) didn't match the requested node name: spec.nodeName is "n2", this node is "n1"`},

		{name: "no OS", admit: admission.OS("linux"), pod: newPod("a")},
		{name: "this OS", admit: admission.OS("linux"), pod: newPod("a", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: "linux"} })},
		{name: "another OS", admit: admission.OS("linux"), pod: newPod("a", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: "windows"} }),
			reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS"},
		{name: "another OS by label", admit: admission.OS("linux"), pod: newPod("a", func(p *corev1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }),
			reason: "PodOSSelectorNodeLabelDoesNotMatch", message: "`kubernetes.io/os` label doesn't match node label"},

		{name: "room for one more", admit: admission.MaxPods(2), pod: newPod("a"), others: []*corev1.Pod{newPod("b")}},
		{name: "the pod itself takes no room twice", admit: admission.MaxPods(2), pod: newPod("a"), others: []*corev1.Pod{newPod("a"), newPod("b")}},
		{name: "no room", admit: admission.MaxPods(2), pod: newPod("a"), others: []*corev1.Pod{newPod("b"), newPod("c")},
			reason: "OutOfpods", message: "Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"},

		{name: "no host port", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{ContainerPort: 80})), others: []*corev1.Pod{tcp80}},
		{name: "another host port", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 81})), others: []*corev1.Pod{tcp80}},
		{name: "another protocol", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolUDP})), others: []*corev1.Pod{tcp80}},
		{name: "its own port", admit: admission.HostPorts(), pod: tcp80, others: []*corev1.Pod{tcp80}},
		{name: "a taken port, protocol by default", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 80})), others: []*corev1.Pod{newPod("x"), tcp80},
			reason: "NodePorts", message: "didn't have free ports for the requested pod ports: hostPort 80/TCP is held by pod default/holder"},
		{name: "one address of a port that is taken on all", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 80, HostIP: "192.0.2.1"})), others: []*corev1.Pod{tcp80},
			reason: "NodePorts", message: "hostPort 80/TCP on 192.0.2.1"},
		{name: "all addresses of a port that is taken on one", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 80, HostIP: "0.0.0.0"})),
			others: []*corev1.Pod{newPod("b", port(corev1.ContainerPort{HostPort: 80, HostIP: "::1"}))}, reason: "NodePorts", message: "hostPort 80/TCP is held"},
		{name: "two addresses", admit: admission.HostPorts(), pod: newPod("a", port(corev1.ContainerPort{HostPort: 80, HostIP: "192.0.2.1"})),
			others: []*corev1.Pod{newPod("b", port(corev1.ContainerPort{HostPort: 80, HostIP: "192.0.2.2"}))}},
		{name: "a sidecar's port", admit: admission.HostPorts(), pod: newPod("a", initPort(true)), others: []*corev1.Pod{tcp80}, reason: "NodePorts", message: "80/TCP"},
		{name: "an init container's port", admit: admission.HostPorts(), pod: newPod("a", initPort(false)), others: []*corev1.Pod{tcp80}},

		{name: "all mapped", admit: unmapped(0), pod: newPod("a")},
		{name: "unmapped fields", admit: unmapped(2), pod: newPod("a"), reason: "PodFeatureUnsupported",
			message: "not available in this version: spec.volumes[0].secret, spec.volumes[1].secret. Remove these fields"},
		{name: "an unmapped value", admit: unmapped(1), pod: newPod("a"), reason: "PodFeatureUnsupported", message: "spec.volumes[0].secret (only linux is)."},
		{name: "very many unmapped fields", admit: unmapped(25), pod: newPod("a"), reason: "PodFeatureUnsupported", message: "spec.volumes[19].secret and 5 more"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := c.admit.Admit(admission.Attributes{Pod: c.pod, Others: c.others})
			if d.OK != (c.reason == "") || d.Reason != c.reason || !strings.Contains(d.Message, c.message) {
				t.Errorf("got %+v\nwant reason %q and %q", d, c.reason, c.message)
			}
			if d.OK && d.Message != "" {
				t.Errorf("yes with the message %q", d.Message)
			}
		})
	}
}

func TestChainStopsAtTheFirstNo(t *testing.T) {
	var asked []string
	say := func(name string, ok bool) admission.Admitter {
		return admission.Func(func(admission.Attributes) admission.Decision {
			asked = append(asked, name)
			return admission.Decision{OK: ok, Reason: name}
		})
	}
	d := admission.Chain{say("a", true), say("b", false), say("c", false)}.Admit(admission.Attributes{Pod: newPod("x")})
	if d.OK || d.Reason != "b" || strings.Join(asked, "") != "ab" {
		t.Errorf("decision %+v, asked %v", d, asked)
	}
	if d := (admission.Chain{}).Admit(admission.Attributes{Pod: newPod("x")}); !d.OK {
		t.Errorf("an empty chain says %+v", d)
	}
}

func TestRejected(t *testing.T) {
	pod := newPod("a", func(p *corev1.Pod) { p.Generation = 4 })
	want := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodePorts", Message: "Pod was rejected: taken",
		QOSClass: corev1.PodQOSBestEffort, ObservedGeneration: 4}
	if diff := cmp.Diff(want, admission.Rejected(pod, admission.Decision{Reason: "NodePorts", Message: "taken"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !admission.IsRejected(want) {
		t.Error("a refusal is not known again")
	}
	for name, change := range map[string]func(*corev1.PodStatus){
		"another phase":            func(st *corev1.PodStatus) { st.Phase = corev1.PodPending },
		"another message":          func(st *corev1.PodStatus) { st.Message = "taken" },
		"containers that have run": func(st *corev1.PodStatus) { st.ContainerStatuses = make([]corev1.ContainerStatus, 1) },
	} {
		st := *want.DeepCopy()
		if change(&st); admission.IsRejected(st) {
			t.Errorf("a status with %s is taken for a refusal", name)
		}
	}
}

// TestTheSamePodWins admits a set of pods that all want one port, in any order of
// arrival, and again after restarts.
func TestTheSamePodWins(t *testing.T) {
	at := func(minute int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC))
		}
	}
	want80 := port(corev1.ContainerPort{HostPort: 80})
	pods := []*corev1.Pod{
		newPod("static-b", want80), newPod("static-a", want80),
		newPod("old", want80, at(1)), newPod("new", want80, at(2)),
	}
	winner := func(pods []*corev1.Pod, ran func(*corev1.Pod) bool) string {
		rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		admission.Sort(pods, ran)
		var admitted []*corev1.Pod
		for _, pod := range pods {
			if (admission.Chain{admission.HostPorts()}).Admit(admission.Attributes{Pod: pod, Others: admitted}).OK {
				admitted = append(admitted, pod)
			}
		}
		if len(admitted) != 1 {
			t.Errorf("%d pods share a port", len(admitted))
		}
		return admitted[0].Name
	}
	for range 50 {
		if got := winner(pods, nil); got != "static-a" {
			t.Fatalf("winner = %s, want static-a", got)
		}
		if got := winner(pods, func(p *corev1.Pod) bool { return p.Name == "new" }); got != "new" {
			t.Fatalf("winner = %s, want the one that ran before", got)
		}
	}
}

func ExampleChain() {
	chain := admission.Chain{admission.NodeName("node-1"), admission.HostPorts()}
	web := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}}}},
	}
	other := web.DeepCopy()
	other.Name, other.UID = "other", "2"

	fmt.Println(chain.Admit(admission.Attributes{Pod: web}).OK)
	no := chain.Admit(admission.Attributes{Pod: other, Others: []*corev1.Pod{web}})
	fmt.Println(no.Reason)
	st := admission.Rejected(other, no)
	fmt.Println(st.Phase, st.QOSClass)
	// Output:
	// true
	// NodePorts
	// Failed BestEffort
}

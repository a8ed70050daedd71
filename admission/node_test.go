package admission_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/admission"
)

func profile(kind corev1.AppArmorProfileType, local ...string) *corev1.AppArmorProfile {
	p := &corev1.AppArmorProfile{Type: kind}
	if len(local) > 0 {
		p.LocalhostProfile = &local[0]
	}
	return p
}

func TestAppArmor(t *testing.T) {
	const off = "Cannot enforce AppArmor: AppArmor is not enabled on the host: container app has profile "
	ofPod := func(p *corev1.AppArmorProfile) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: p} }
	}
	ofContainer := func(p *corev1.AppArmorProfile) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: p}
		}
	}
	annotated := func(value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/app": value}
		}
	}
	phase := func(p corev1.PodPhase) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Status.Phase = p } }
	withInit := func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}} }
	tests := []struct {
		name    string
		enabled bool
		pod     *corev1.Pod
		want    string // "" for yes
	}{
		{name: "no profile", pod: newPod("a")},
		{name: "Unconfined", pod: newPod("a", ofPod(profile(corev1.AppArmorProfileTypeUnconfined)))},
		{name: "Unconfined by annotation", pod: newPod("a", annotated("unconfined"))},
		{name: "the pod's", pod: newPod("a", ofPod(profile(corev1.AppArmorProfileTypeRuntimeDefault))), want: off + "runtime/default"},
		{name: "the container's", pod: newPod("a", ofContainer(profile(corev1.AppArmorProfileTypeLocalhost, "web"))), want: off + "localhost/web"},
		{name: "by annotation", pod: newPod("a", annotated("localhost/web")), want: off + "localhost/web"},
		{name: "the container's field goes before the annotation", pod: newPod("a", annotated("localhost/web"), ofContainer(profile(corev1.AppArmorProfileTypeUnconfined)))},
		{name: "the annotation goes before the pod's field", pod: newPod("a", annotated("localhost/web"), ofPod(profile(corev1.AppArmorProfileTypeUnconfined))), want: off + "localhost/web"},
		{name: "an annotation that asks for nothing does so, too", pod: newPod("a", annotated("unconfined"), ofPod(profile(corev1.AppArmorProfileTypeRuntimeDefault)))},
		{name: "the container's goes before the pod's", pod: newPod("a", ofPod(profile(corev1.AppArmorProfileTypeRuntimeDefault)), ofContainer(profile(corev1.AppArmorProfileTypeUnconfined)))},
		{name: "an init container's", pod: newPod("a", withInit, ofPod(profile(corev1.AppArmorProfileTypeRuntimeDefault)), ofContainer(profile(corev1.AppArmorProfileTypeUnconfined))),
			want: "Cannot enforce AppArmor: AppArmor is not enabled on the host: init container setup has profile runtime/default"},
		{name: "enabled", enabled: true, pod: newPod("a", ofPod(profile(corev1.AppArmorProfileTypeLocalhost, "web")))},
		{name: "enabled, without a name", enabled: true, pod: newPod("a", ofContainer(profile(corev1.AppArmorProfileTypeLocalhost))),
			want: `Cannot enforce AppArmor: invalid empty AppArmor profile name: "localhost/" of container app`},
		{name: "with a name of blanks", enabled: true, pod: newPod("a", ofContainer(profile(corev1.AppArmorProfileTypeLocalhost, " "))),
			want: `Cannot enforce AppArmor: invalid empty AppArmor profile name: "localhost/" of container app`},
		{name: "Pending", pod: newPod("a", phase(corev1.PodPending), annotated("runtime/default")), want: off + "runtime/default"},
		{name: "runs already", pod: newPod("a", phase(corev1.PodRunning), annotated("runtime/default"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := admission.AppArmor(func() bool { return tt.enabled }).Admit(admission.Attributes{Pod: tt.pod})
			if want := (admission.Decision{OK: tt.want == "", Message: tt.want}); d.OK != want.OK || d.Message != want.Message || !d.OK && d.Reason != "AppArmor" {
				t.Errorf("got %+v\nwant %+v", d, want)
			}
		})
	}
}

func TestSupplementalGroups(t *testing.T) {
	groups := func(p corev1.SupplementalGroupsPolicy) *corev1.Pod {
		return newPod("a", func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &p}
		})
	}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		strict  bool
		refused bool
	}{
		"no policy":                       {pod: newPod("a")},
		"no policy in context":            {pod: newPod("a", sysctl())},
		"Merge":                           {pod: groups(corev1.SupplementalGroupsPolicyMerge)},
		"Strict":                          {pod: groups(corev1.SupplementalGroupsPolicyStrict), refused: true},
		"Strict, with a runtime that can": {pod: groups(corev1.SupplementalGroupsPolicyStrict), strict: true},
	} {
		d := admission.SupplementalGroups(func() bool { return tt.strict }).Admit(admission.Attributes{Pod: tt.pod})
		if tt.refused == d.OK || tt.refused && (d.Reason != "SupplementalGroupsPolicyNotSupported" || d.Message != "SupplementalGroupsPolicy=Strict is not supported in this node") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func requests(pairs ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = list(pairs...) }
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestResources(t *testing.T) {
	node := list("cpu", "3", "memory", "4Gi", "hugepages-2Mi", "8Mi", "example.com/gpu", "2")
	twoCores := newPod("b", requests("cpu", "1500m", "memory", "1Gi"))
	tests := []struct {
		name    string
		pod     *corev1.Pod
		others  []*corev1.Pod
		reason  string // "" for yes
		message string
	}{
		{name: "nothing wanted of a full node", pod: newPod("a"), others: []*corev1.Pod{newPod("b", requests("cpu", "3"))}},
		{name: "nothing wanted of an overfull node", pod: newPod("a", requests("memory", "1")), others: []*corev1.Pod{newPod("b", requests("cpu", "30"))}},
		{name: "just fits", pod: newPod("a", requests("cpu", "1500m", "memory", "3Gi")), others: []*corev1.Pod{twoCores}},
		{name: "cpu", pod: newPod("a", requests("cpu", "2")), others: []*corev1.Pod{twoCores},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 2000, used: 1500, capacity: 3000"},
		{name: "a thousandth too much", pod: newPod("a", requests("cpu", "1501m")), others: []*corev1.Pod{twoCores},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 1501, used: 1500, capacity: 3000"},
		{name: "its own request does not count twice", pod: twoCores, others: []*corev1.Pod{twoCores, newPod("c", requests("cpu", "1"))}},
		{name: "memory", pod: newPod("a", requests("memory", "5Gi")),
			reason: "OutOfmemory", message: "Node didn't have enough resource: memory, requested: 5368709120, used: 0, capacity: 4294967296"},
		{name: "cpu is told before memory", pod: newPod("a", requests("memory", "5Gi", "cpu", "4")),
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 3000"},
		{name: "huge pages", pod: newPod("a", requests("hugepages-2Mi", "6Mi")), others: []*corev1.Pod{newPod("b", requests("hugepages-2Mi", "4Mi"))},
			reason: "OutOfhugepages-2Mi", message: "Node didn't have enough resource: hugepages-2Mi, requested: 6291456, used: 4194304, capacity: 8388608"},
		{name: "huge pages that the node does not have", pod: newPod("a", requests("hugepages-1Gi", "1Gi")),
			reason: "OutOfhugepages-1Gi", message: "Node didn't have enough resource: hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0"},
		{name: "an extended resource", pod: newPod("a", requests("example.com/gpu", "3")),
			reason: "OutOfexample.com/gpu", message: "Node didn't have enough resource: example.com/gpu, requested: 3, used: 0, capacity: 2"},
		{name: "resources that the node does not know", pod: newPod("a", requests("example.com/other", "3", "ephemeral-storage", "1Ti"))},
		{name: "more than there are numbers", pod: newPod("a", requests("memory", "10E")), others: []*corev1.Pod{newPod("b", requests("memory", "8E"))},
			reason: "OutOfmemory", message: "Node didn't have enough resource: memory, requested: 9223372036854775807, used: 8000000000000000000, capacity: 4294967296"},
		{name: "overhead counts", pod: newPod("a", requests("cpu", "1"), func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "600m") }), others: []*corev1.Pod{twoCores},
			reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 1600, used: 1500, capacity: 3000"},
		{name: "init containers count with the largest", pod: newPod("a", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: list("cpu", "4")}}}
		}), reason: "OutOfcpu", message: "Node didn't have enough resource: cpu, requested: 4000, used: 0, capacity: 3000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := admission.Resources(node).Admit(admission.Attributes{Pod: tt.pod, Others: tt.others})
			if d.OK != (tt.reason == "") || d.Reason != tt.reason || d.Message != tt.message {
				t.Errorf("got %+v\nwant %q: %s", d, tt.reason, tt.message)
			}
		})
	}
}

func BenchmarkResources(b *testing.B) {
	var others []*corev1.Pod
	for i := range 110 {
		others = append(others, newPod(fmt.Sprint(i), requests("cpu", "10m", "memory", "10Mi")))
	}
	admit := admission.Resources(list("cpu", "8", "memory", "16Gi"))
	pod := newPod("a", requests("cpu", "1", "memory", "1Gi"))
	b.ReportAllocs()
	for b.Loop() {
		if d := admit.Admit(admission.Attributes{Pod: pod, Others: others}); !d.OK {
			b.Fatal(d)
		}
	}
}

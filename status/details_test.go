package status_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/status"
)

func with(c observed.Container, d observed.Details) observed.Container {
	c.Details = d
	return c
}

func TestUserAndStopSignal(t *testing.T) {
	told := observed.Details{User: &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{2, 3}}, StopSignal: "SIGRTMIN+3"}
	show := func(cs corev1.ContainerStatus) string {
		user, signal := "none", "none"
		if cs.User != nil {
			user = fmt.Sprint(*cs.User.Linux)
		}
		if cs.StopSignal != nil {
			signal = string(*cs.StopSignal)
		}
		return user + " " + signal
	}
	cases := []struct {
		name         string
		before, seen observed.Pod
		want         string
	}{
		{"what the runtime tells is reported", observed.Pod{}, seen(with(runs("app", "a"), told)), "{1 2 [2 3]} SIGRTMIN+3"},
		{"what it does not tell is not", observed.Pod{}, seen(runs("app", "a")), "none none"},
		{"what it told of this instance stays", seen(with(runs("app", "a"), told)), seen(ended("app", "a", 1)), "{1 2 [2 3]} SIGRTMIN+3"},
		{"what it told of another one does not", seen(with(ended("app", "a", 1), told)), seen(runs("app", "b")), "none none"},
		{"a container that is not there has neither", seen(with(runs("app", "a"), told)), seen(), "none none"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			in := input(pod, c.seen)
			in.Last = status.Generate(input(pod, c.before))
			if got := show(statusOf(t, status.Generate(in), "app")); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestVolumeMounts(t *testing.T) {
	show := func(cs corev1.ContainerStatus) string {
		var all []string
		for _, m := range cs.VolumeMounts {
			s := fmt.Sprint(m.Name, m.MountPath)
			if m.ReadOnly {
				s += " ro"
			}
			if m.RecursiveReadOnly != nil {
				s += " " + string(*m.RecursiveReadOnly)
			}
			if m.VolumeStatus != nil {
				s += " " + m.VolumeStatus.Image.ImageRef
			}
			all = append(all, s)
		}
		return strings.Join(all, ", ")
	}
	ifPossible := corev1.RecursiveReadOnlyIfPossible
	cases := []struct {
		name   string
		mounts []corev1.VolumeMount
		seen   []observed.Mount
		want   string
	}{
		{"a mount that is written to has no mode", []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}, []observed.Mount{{ContainerPath: "/v"}}, "v/v"},
		{"a read-only mount is not recursively so", []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true}},
			[]observed.Mount{{ContainerPath: "/v", ReadOnly: true}}, "v/v ro Disabled"},
		{"what was possible is told", []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &ifPossible}},
			[]observed.Mount{{ContainerPath: "/v", ReadOnly: true, RecursiveReadOnly: true}}, "v/v ro Enabled"},
		{"what was not possible is told", []corev1.VolumeMount{{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &ifPossible}},
			[]observed.Mount{{ContainerPath: "/v", ReadOnly: true}}, "v/v ro Disabled"},
		{"paths are compared as the runtime has them", []corev1.VolumeMount{{Name: "v", MountPath: "v/./w/", ReadOnly: true}},
			[]observed.Mount{{ContainerPath: "/v/w", ReadOnly: true, RecursiveReadOnly: true}}, "vv/./w/ ro Enabled"},
		{"an image volume tells its image", []corev1.VolumeMount{{Name: "m", MountPath: "/m"}},
			[]observed.Mount{{ContainerPath: "/m", ReadOnly: true, Image: "r/m@sha256:1"}}, "m/m r/m@sha256:1"},
		{"a reference too long for the API is left out", []corev1.VolumeMount{{Name: "m", MountPath: "/m"}},
			[]observed.Mount{{ContainerPath: "/m", Image: strings.Repeat("x", 257)}}, "m/m"},
		{"mounts of the node's own are not reported", []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
			[]observed.Mount{{ContainerPath: "/v"}, {ContainerPath: "/etc/hosts"}}, "v/v"},
		{"a runtime that tells no mount leaves the question open", []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			pod.Spec.Containers[0].VolumeMounts = c.mounts
			in := input(pod, seen(with(runs("app", "a"), observed.Details{Mounts: c.seen})))
			in.Last = status.Generate(in)
			if got := show(statusOf(t, in.Last, "app")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			in.Seen = seen(ended("app", "a", 0)) // a recalled record has no mounts
			if got := show(statusOf(t, status.Generate(in), "app")); got != c.want {
				t.Errorf("later: got %q, want %q", got, c.want)
			}
		})
	}
}

// list reads "cpu=100m memory=1Mi".
func list(text string) corev1.ResourceList {
	var l corev1.ResourceList
	for _, field := range strings.Fields(text) {
		name, q, _ := strings.Cut(field, "=")
		if l == nil {
			l = corev1.ResourceList{}
		}
		l[corev1.ResourceName(name)] = resource.MustParse(q)
	}
	return l
}

func resources(requests, limits string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

func text(r corev1.ResourceRequirements) string {
	one := func(l corev1.ResourceList) string {
		var all []string
		for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage"} {
			if q, ok := l[name]; ok {
				all = append(all, fmt.Sprintf("%s=%s", name, q.String()))
			}
		}
		return strings.Join(all, " ")
	}
	return one(r.Requests) + " | " + one(r.Limits)
}

func TestResourcesOfContainers(t *testing.T) {
	type res = corev1.ResourceRequirements
	some := func(requests, limits string) *res { r := resources(requests, limits); return &r }
	full := resources("cpu=100m memory=1Mi", "cpu=200m memory=2Mi")
	running := func(r *observed.Resources) observed.Pod {
		return seen(with(runs("app", "a"), observed.Details{Resources: r}))
	}
	inForce := func(shares, quota, memory int64) *observed.Resources {
		return &observed.Resources{CPUShares: shares, CPUQuota: quota, CPUPeriod: 100000, MemoryLimit: memory}
	}
	cases := []struct {
		name      string
		allocated res
		seen      observed.Pod
		actuated  *res
		before    *res
		want      string
	}{
		{"nothing is asked for and nothing told", res{}, running(nil), nil, nil, " | "},
		{"a container that is not there shows what is allocated", full, seen(), nil, some("cpu=9", ""), "cpu=100m memory=1Mi | cpu=200m memory=2Mi"},
		{"one that has ended does", full, seen(with(ended("app", "a", 0), observed.Details{Resources: inForce(51, 10000, 1<<20)})), nil, nil, "cpu=100m memory=1Mi | cpu=200m memory=2Mi"},
		{"values that the kernel rounds are shown as they were asked for", full, running(inForce(102, 20000, 2<<20)), nil, nil, "cpu=100m memory=1Mi | cpu=200m memory=2Mi"},
		{"a resize that is not in force yet is not shown", full, running(inForce(51, 10000, 1<<20)), some("cpu=50m memory=512Ki", "cpu=100m memory=1Mi"), nil,
			"cpu=50m memory=512Ki | cpu=100m memory=1Mi"},
		{"a value that nobody asked for is shown as it is", full, running(inForce(512, 150000, 3<<20)), nil, nil, "cpu=500m memory=1Mi | cpu=1500m memory=3Mi"},
		{"the smallest request is not rounded up", resources("cpu=1m", ""), running(inForce(2, 0, 0)), nil, nil, "cpu=1m | "},
		{"the smallest limit is not rounded up", resources("", "cpu=5m"), running(inForce(0, 1000, 0)), nil, nil, " | cpu=5m"},
		{"a weight read back from cgroup v2 is the request", resources("cpu=1", ""), running(inForce(998, 0, 0)), nil, nil, "cpu=1 | "},
		{"but a resize within one weight waits for its own value", resources("cpu=10m", ""), running(inForce(40, 0, 0)), some("cpu=39m", ""), nil, "cpu=39m | "},
		{"a runtime that tells nothing: what was asked of it", full, running(nil), some("cpu=50m memory=512Ki", "cpu=100m memory=1Mi"), some("cpu=9 memory=9", "cpu=9 memory=9"),
			"cpu=50m memory=512Ki | cpu=100m memory=1Mi"},
		{"nobody knows what was asked: what was reported", full, running(nil), nil, some("cpu=50m", "memory=1Mi"), "cpu=50m memory=1Mi | cpu=200m memory=1Mi"},
		{"nothing was reported: what is allocated", full, running(nil), nil, nil, "cpu=100m memory=1Mi | cpu=200m memory=2Mi"},
		{"limits that are not the container's own are not shown", resources("cpu=100m", ""), running(inForce(102, 10000, 1<<30)), nil, nil, "cpu=100m | "},
		{"other resources are the allocated ones", resources("ephemeral-storage=1Gi", ""), running(inForce(2, 0, 0)), nil, nil, "ephemeral-storage=1Gi | "},
		{"no quota while limits are off", resources("", "cpu=200m"), running(inForce(0, -1, 0)), nil, nil, " | cpu=200m"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			pod.Spec.Containers[0].Resources = c.allocated
			copied := pod.DeepCopy()
			in := input(pod, c.seen)
			if c.actuated != nil {
				in.Actuated = map[string]res{"app": *c.actuated}
			}
			if c.before != nil {
				in.Last.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "fake://a", Resources: c.before}}
			}
			cs := statusOf(t, status.Generate(in), "app")
			if got := text(*cs.Resources); got != c.want {
				t.Errorf("resources\n got %s\nwant %s", got, c.want)
			}
			if got, want := text(res{Requests: cs.AllocatedResources}), text(res{Requests: c.allocated.Requests}); got != want {
				t.Errorf("allocated: got %s, want %s", got, want)
			}
			if diff := cmp.Diff(copied, pod); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func TestResourcesOfEachKindOfContainer(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "init:i", "side:s", "app")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Resources = resources("cpu=1", "")
	}
	told := observed.Details{Resources: &observed.Resources{CPUShares: 512}}
	st := status.Generate(input(pod, seen(with(ended("i", "1", 0), told), with(runs("s", "2"), told), with(runs("app", "3"), told), with(runs("debug", "4"), told))))
	for name, want := range map[string]string{"i": "cpu=1 | ", "s": "cpu=500m | ", "app": " | "} {
		if got := text(*statusOf(t, st, name).Resources); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if cs := statusOf(t, st, "debug"); cs.Resources != nil || cs.AllocatedResources != nil {
		t.Errorf("an ephemeral container has no resources of its own, but %v", cs.Resources)
	}
}

func TestResourcesOfThePod(t *testing.T) {
	whole := resources("cpu=2", "cpu=3")
	applied := resources("cpu=1", "cpu=3")
	cases := []struct {
		name          string
		spec          *corev1.ResourceRequirements
		actuated      *corev1.ResourceRequirements
		requests      string
		allocated     string
		wantResources string
	}{
		{"nothing is asked for", nil, nil, "", " | ", "none"},
		{"the containers' requests are summed up", nil, nil, "cpu=100m", "cpu=200m | ", "none"},
		{"the pod's own requests go before the sum", &whole, nil, "cpu=100m", "cpu=2 | ", "cpu=2 | cpu=3"},
		{"what is in force is shown beside what is allocated", &whole, &applied, "cpu=100m", "cpu=2 | ", "cpu=1 | cpu=3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pod := newPod(corev1.RestartPolicyAlways, "a", "b")
			pod.Spec.Resources = c.spec
			pod.Spec.Overhead = list("memory=1Gi")
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].Resources = resources(c.requests, "")
			}
			in := input(pod, seen(runs("a", "1"), runs("b", "2")))
			in.ActuatedPod = c.actuated
			st := status.Generate(in)
			if got := text(corev1.ResourceRequirements{Requests: st.AllocatedResources}); got != c.allocated {
				t.Errorf("allocated = %s, want %s", got, c.allocated)
			}
			got := "none"
			if st.Resources != nil {
				got = text(*st.Resources)
			}
			if got != c.wantResources {
				t.Errorf("resources = %s, want %s", got, c.wantResources)
			}
		})
	}
}

func TestResizeConditions(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app")
	pending := func(reason, message string, probe time.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: 7, LastProbeTime: metav1.NewTime(probe)}
	}
	progress := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: 6}
	at := func(minute int) time.Time { return t0.Add(time.Duration(minute) * time.Minute) }
	steps := []struct {
		name   string
		resize []corev1.PodCondition
		seen   observed.Pod
		want   string
	}{
		{"none", nil, seen(runs("app", "a")), ""},
		{"both may be true", []corev1.PodCondition{pending("Deferred", "no room", at(1)), progress}, seen(runs("app", "a")),
			"PodResizePending Deferred no room 7 12:01 12:01; PodResizeInProgress   6 12:01 -"},
		{"another message is no transition", []corev1.PodCondition{pending("Deferred", "still none", at(2)), progress}, seen(runs("app", "a")),
			"PodResizePending Deferred still none 7 12:01 12:02; PodResizeInProgress   6 12:01 -"},
		{"another reason is", []corev1.PodCondition{pending("Infeasible", "never", at(3))}, seen(runs("app", "a")),
			"PodResizePending Infeasible never 7 12:03 12:03"},
		{"what is over is absent, not False", nil, seen(runs("app", "a")), ""},
		{"a pod that has ended has none", []corev1.PodCondition{pending("Deferred", "no room", at(5))}, seen(ended("app", "a", 0)), ""},
	}
	var last corev1.PodStatus
	for i, s := range steps {
		in := input(pod, s.seen)
		in.Last, in.Resize, in.Now = last, s.resize, at(i)
		last = status.Generate(in)
		var got []string
		for _, c := range last.Conditions {
			if !strings.HasPrefix(string(c.Type), "PodResize") {
				continue
			}
			probe := "-"
			if !c.LastProbeTime.IsZero() {
				probe = c.LastProbeTime.UTC().Format("15:04")
			}
			got = append(got, fmt.Sprintf("%s %s %s %d %s %s", c.Type, c.Reason, c.Message, c.ObservedGeneration, c.LastTransitionTime.UTC().Format("15:04"), probe))
		}
		if diff := cmp.Diff(s.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
}

func TestOrderOfResizeAndOtherConditions(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	withRule(pod, "app", 42)
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, {Type: "example.com/a", Status: corev1.ConditionTrue},
		{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Message: "the node's own, and over"},
	}
	in := input(pod, seen(runs("app", "a")))
	in.Resize = []corev1.PodCondition{{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}}
	var types []string
	for _, c := range status.Generate(in).Conditions {
		types = append(types, string(c.Type))
	}
	want := "example.com/a PodResizeInProgress DisruptionTarget PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled AllContainersRestarting"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestWhatOthersWriteIsKept(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	name := "claim-1"
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
	st := status.Generate(input(pod, seen(runs("app", "a"))))
	if diff := cmp.Diff(pod.Status.ResourceClaimStatuses, st.ResourceClaimStatuses); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

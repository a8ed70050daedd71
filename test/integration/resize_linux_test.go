package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestResizeOfPodsThatRun(t *testing.T) {
	a := StartAgent(t, Options{})
	for _, c := range []struct {
		name string
		run  func(t *testing.T, a *Agent, pod string)
	}{
		{"a Guaranteed pod grows and shrinks, its cgroup with it", growAndShrink},
		{"of two containers one takes what the other gives", giveAndTake},
		{"a sidecar is resized as its pod's containers are", resizeSidecar},
		{"requests alone change weights alone", resizeRequests},
		{"a container whose policy asks for it is restarted, once", resizeByRestart},
		{"what does not fit the node waits, and can be taken back", resizeTooLarge},
		{"a limit below what is used changes nothing until there is room", resizeInUse},
		{"a pod with limits of its own grows and shrinks with the containers that it bounds", resizePodLevel},
		{"another class and a limit taken away are never granted", resizeForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := strings.ToLower(strings.Join(strings.FieldsFunc(c.name, func(r rune) bool { return r == ' ' || r == ',' })[:4], "-"))
			c.run(t, a, pod)
			a.Remove(pod + ".yaml")
		})
	}
	a.NothingLeft(60 * time.Second)
}

func growAndShrink(t *testing.T, a *Agent, pod string) {
	s := begin(t, a, pod, oneContainer("{limits: {cpu: 50m, memory: 32Mi}}"))
	for _, step := range []struct {
		resources, amounts string
		want               limits
	}{
		{"{limits: {cpu: 200m, memory: 64Mi}}", "200m/200m 64Mi/64Mi", limits{shares: 204, quota: 20_000, period: 100_000, memory: 64 * mib}},
		{"{limits: {cpu: 100m, memory: 64Mi}}", "100m/100m 64Mi/64Mi", limits{shares: 102, quota: 10_000, period: 100_000, memory: 64 * mib}},
		{"{limits: {cpu: 100m, memory: 48Mi}}", "100m/100m 48Mi/48Mi", limits{shares: 102, quota: 10_000, period: 100_000, memory: 48 * mib}},
		{"{limits: {cpu: 150m, memory: 24Mi}}", "150m/150m 24Mi/24Mi", limits{shares: 153, quota: 15_000, period: 100_000, memory: 24 * mib}},
	} {
		s.edit(oneContainer(step.resources))
		s.until(10*time.Second, has("c", step.amounts), resize(""))
		s.box().wantLimits(t, step.want)
		s.ContainerBox(t, "c").wantLimits(t, step.want)
		s.untouched()
	}
	require.Equal(t, corev1.PodQOSGuaranteed, s.Pod.Status.QOSClass)
}

func giveAndTake(t *testing.T, a *Agent, pod string) {
	spec := func(c, d string) string {
		return "  containers:\n" + sleeps("c", c) + sleeps("d", d)
	}
	s := begin(t, a, pod, spec("{limits: {cpu: 40m, memory: 48Mi}}", "{limits: {cpu: 80m, memory: 24Mi}}"))
	s.edit(spec("{limits: {cpu: 80m, memory: 24Mi}}", "{limits: {cpu: 40m, memory: 48Mi}}"))
	s.until(10*time.Second, has("c", "80m/80m 24Mi/24Mi"), has("d", "40m/40m 48Mi/48Mi"), resize(""))
	s.box().wantLimits(t, limits{shares: 122, quota: 12_000, memory: 72 * mib})
	s.ContainerBox(t, "c").wantLimits(t, limits{shares: 81, quota: 8000, memory: 24 * mib})
	s.ContainerBox(t, "d").wantLimits(t, limits{shares: 40, quota: 4000, memory: 48 * mib})
	s.untouched()
}

func resizeSidecar(t *testing.T, a *Agent, pod string) {
	spec := func(resources string) string {
		return "  initContainers:\n  - {name: side, image: KK, restartPolicy: Always, args: [sleep, forever], resources: " + resources + "}\n" +
			"  containers:\n" + sleeps("c", "{limits: {cpu: 20m, memory: 16Mi}}")
	}
	s := begin(t, a, pod, spec("{limits: {cpu: 20m, memory: 16Mi}}"))
	s.edit(spec("{limits: {cpu: 60m, memory: 32Mi}}"))
	s.until(10*time.Second, has("side", "60m/60m 32Mi/32Mi"), has("c", "20m/20m 16Mi/16Mi"), resize(""))
	s.box().wantLimits(t, limits{shares: 81, quota: 8000, memory: 48 * mib})
	s.ContainerBox(t, "side").wantLimits(t, limits{shares: 61, quota: 6000, memory: 32 * mib})
	s.untouched()
	require.Zero(t, s.Status(t, "side").RestartCount)
}

func resizeRequests(t *testing.T, a *Agent, pod string) {
	s := begin(t, a, pod, oneContainer("{requests: {cpu: 20m, memory: 16Mi}}"))
	tier := kubepods("burstable")
	s.edit(oneContainer("{requests: {cpu: 300m, memory: 32Mi}}"))
	s.until(10*time.Second, has("c", "300m/- 32Mi/-"), resize(""))
	want := limits{shares: 307, quota: -1, memory: -1}
	s.box().wantLimits(t, want)
	s.ContainerBox(t, "c").wantLimits(t, want)
	s.untouched()
	if !unified() { // the tier weighs what its pods request
		Eventually(t, 5*time.Second, func() error {
			if got := tier.shares(t); got < 307 {
				return fmt.Errorf("the tier weighs %d", got)
			}
			return nil
		})
	}
}

func resizeByRestart(t *testing.T, a *Agent, pod string) {
	spec := func(resources string) string {
		return oneContainer(resources, "resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]")
	}
	s := begin(t, a, pod, spec("{limits: {cpu: 50m, memory: 32Mi}}"))
	s.edit(spec("{limits: {cpu: 80m, memory: 32Mi}}"))
	s.until(10*time.Second, has("c", "80m/80m 32Mi/32Mi"), resize(""))
	s.untouched()
	for i, memory := range []string{"64Mi", "16Mi"} {
		s.edit(spec("{limits: {cpu: 80m, memory: " + memory + "}}"))
		s.until(20*time.Second, runs, has("c", "80m/80m "+memory+"/"+memory), resize(""))
		c := s.Status(t, "c")
		require.EqualValues(t, i+1, c.RestartCount)
		require.NotEqual(t, s.started, c.ContainerID)
		s.started = c.ContainerID
		q := resource.MustParse(memory)
		want := limits{shares: 81, quota: 8000, memory: q.Value()}
		s.ContainerBox(t, "c").wantLimits(t, want)
		s.box().wantLimits(t, want)
	}
}

func resizeTooLarge(t *testing.T, a *Agent, pod string) {
	const small = "{limits: {cpu: 50m, memory: 32Mi}}"
	s := begin(t, a, pod, oneContainer(small))
	had := limits{shares: 51, quota: 5000, memory: 32 * mib}
	s.edit(oneContainer("{limits: {cpu: \"900\", memory: 32Mi}}"))
	s.until(10*time.Second, resize("PodResizePending Deferred"), has("c", "50m/50m 32Mi/32Mi"))
	require.Contains(t, s.said(corev1.PodResizePending), "cpu")
	require.Equal(t, "900", s.Pod.Spec.Containers[0].Resources.Limits.Cpu().String(), "the spec is what is desired")
	s.box().wantLimits(t, had)
	s.ContainerBox(t, "c").wantLimits(t, had)
	s.edit(oneContainer(small))
	s.until(10*time.Second, resize(""), has("c", "50m/50m 32Mi/32Mi"))
	s.box().wantLimits(t, had)
	s.untouched()
}

func resizeInUse(t *testing.T, a *Agent, pod string) {
	spec := func(resources string) string {
		return "  containers:\n  - {name: c, image: KK, args: [eat, \"50\", sleep, forever], resources: " + resources + "}\n"
	}
	s := begin(t, a, pod, spec("{limits: {cpu: 50m, memory: 96Mi}}"))
	a.WaitLine(pod, "c", "ate 50 MiB")
	had := limits{shares: 51, quota: 5000, memory: 96 * mib}
	s.edit(spec("{limits: {cpu: 100m, memory: 40Mi}}"))
	s.until(15*time.Second, resize("PodResizeInProgress Error"))
	require.Contains(t, s.said(corev1.PodResizeInProgress), "cannot decrease memory limits")
	require.Contains(t, s.said(corev1.PodResizeInProgress), "container c uses")
	s.box().wantLimits(t, had)
	s.ContainerBox(t, "c").wantLimits(t, had)
	c := s.Status(t, "c")
	require.NoError(t, sameAmounts("limits", amounts("-/50m -/96Mi").Limits, c.Resources.Limits), "what is in force")
	require.Equal(t, "40Mi", c.AllocatedResources.Memory().String())
	s.untouched()

	// Another edit that can be carried out ends it.
	s.edit(spec("{limits: {cpu: 100m, memory: 80Mi}}"))
	s.until(20*time.Second, resize(""), has("c", "100m/100m 80Mi/80Mi"))
	want := limits{shares: 102, quota: 10_000, memory: 80 * mib}
	s.box().wantLimits(t, want)
	s.ContainerBox(t, "c").wantLimits(t, want)
	s.untouched()
}

func resizePodLevel(t *testing.T, a *Agent, pod string) {
	spec := func(resources string) string {
		return "  resources: " + resources + "\n  containers:\n" + sleeps("c", "{}") + sleeps("d", "{limits: {memory: 10Mi}}")
	}
	s := begin(t, a, pod, spec("{limits: {cpu: 60m, memory: 40Mi}, requests: {cpu: 30m, memory: 20Mi}}"))
	for _, step := range []struct {
		resources, amounts string
		pod, c, d          limits
	}{
		{"{limits: {cpu: 120m, memory: 80Mi}, requests: {cpu: 60m, memory: 20Mi}}", "60m/120m 20Mi/80Mi",
			limits{shares: 61, quota: 12_000, memory: 80 * mib}, limits{quota: 12_000, memory: 80 * mib}, limits{quota: 12_000, memory: 10 * mib}},
		{"{limits: {cpu: 80m, memory: 48Mi}, requests: {cpu: 40m, memory: 20Mi}}", "40m/80m 20Mi/48Mi",
			limits{shares: 40, quota: 8000, memory: 48 * mib}, limits{quota: 8000, memory: 48 * mib}, limits{quota: 8000, memory: 10 * mib}},
	} {
		s.edit(spec(step.resources))
		s.until(10*time.Second, resize(""), func(p corev1.Pod) error {
			want := amounts(step.amounts)
			if p.Status.Resources == nil {
				return errors.New("no resources of the pod")
			}
			return errors.Join(sameAmounts("limits of the pod", want.Limits, p.Status.Resources.Limits),
				sameAmounts("requests of the pod", want.Requests, p.Status.Resources.Requests),
				sameAmounts("what is allocated to the pod", want.Requests, p.Status.AllocatedResources))
		})
		s.box().wantLimits(t, step.pod)
		s.ContainerBox(t, "c").wantLimits(t, step.c)
		s.ContainerBox(t, "d").wantLimits(t, step.d)
		s.untouched()
	}
}

// The API server refuses these; nobody does for a manifest.
func resizeForbidden(t *testing.T, a *Agent, pod string) {
	s := begin(t, a, pod, oneContainer("{limits: {cpu: 50m, memory: 32Mi}}"))
	for _, c := range []struct{ resources, words string }{
		{"{requests: {cpu: 20m, memory: 32Mi}, limits: {cpu: 50m, memory: 32Mi}}", "QoS class"},
		{"{limits: {cpu: 50m}}", "QoS class"},
		{"{}", "QoS class"},
	} {
		s.edit(oneContainer(c.resources))
		s.until(10*time.Second, resize("PodResizePending Infeasible"), has("c", "50m/50m 32Mi/32Mi"))
		require.Contains(t, s.said(corev1.PodResizePending), c.words)
		s.box().wantLimits(t, limits{shares: 51, quota: 5000, memory: 32 * mib})
		s.untouched()
	}
	s.edit(oneContainer("{limits: {cpu: 60m, memory: 32Mi}}"))
	s.until(10*time.Second, resize(""), has("c", "60m/60m 32Mi/32Mi"))
	s.untouched()
}

func TestResizeUnderOtherSettings(t *testing.T) {
	for _, c := range []struct {
		name, field string
		value       any
		want        limits
	}{
		{"without quotas a CPU limit changes nothing but what is reported", "cpuCFSQuota", false, limits{shares: 512, quota: -1, memory: 64 * mib}},
		{"with another period", "cpuCFSQuotaPeriod", "20ms", limits{shares: 512, quota: 10_000, period: 20_000, memory: 64 * mib}},
		{"without cgroups of pods", "cgroupsPerQOS", false, limits{shares: 512, quota: 50_000, period: 100_000, memory: 64 * mib}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := StartAgent(t, Options{Config: map[string]any{c.field: c.value}})
			s := begin(t, a, "web", oneContainer("{limits: {cpu: 100m, memory: 32Mi}}"))
			s.edit(oneContainer("{limits: {cpu: 500m, memory: 64Mi}}"))
			s.until(10*time.Second, has("c", "500m/500m 64Mi/64Mi"), resize(""))
			box(s.Asked(t, "c").RuntimeSpec.Linux.CgroupsPath).wantLimits(t, c.want)
			if c.field != "cgroupsPerQOS" {
				s.box().wantLimits(t, c.want)
			}
			s.edit(oneContainer("{limits: {cpu: 100m, memory: 24Mi}}"))
			s.until(10*time.Second, has("c", "100m/100m 24Mi/24Mi"), resize(""))
			s.untouched()
			a.Remove("web.yaml")
			a.NothingLeft(30 * time.Second)
		})
	}
}

// A container that waits out its back-off may try again at once with other amounts,
// and one that has ended for good is not in the way.
func TestResizeOfContainersThatDoNotRun(t *testing.T) {
	a := StartAgent(t, Options{})
	spec := func(memory string) string {
		resources := "{limits: {cpu: 20m, memory: " + memory + "}}"
		return "  initContainers:\n  - {name: i, image: KK, args: [exit, \"0\"], resources: " + resources + "}\n" +
			"  containers:\n  - {name: c, image: KK, args: [sleep, forever], resources: " + resources + "}\n" +
			"  - {name: d, image: KK, args: [exit, --after, 1s, \"1\"], resources: " + resources + "}\n"
	}
	s := &story{T: t, sight: sight{agent: a, Name: "web"}}
	a.Write("web.yaml", resizable("web", spec("24Mi")))
	s.until(30*time.Second, waiting("d", "CrashLoopBackOff"))
	s.started = s.Status(t, "c").ContainerID
	before := s.Status(t, "d").RestartCount
	s.edit(spec("32Mi"))
	s.until(8*time.Second, has("c", "20m/20m 32Mi/32Mi"), resize(""), func(p corev1.Pod) error {
		if d := p.Status.ContainerStatuses[1]; d.RestartCount != before+1 {
			return fmt.Errorf("d was restarted %d times, want %d", d.RestartCount, before+1)
		}
		return nil
	})
	require.EqualValues(t, 32*mib, s.Asked(t, "d").Config.GetLinux().GetResources().GetMemoryLimitInBytes()) // it may have ended again
	s.box().wantLimits(t, limits{shares: 40, quota: 4000, memory: 64 * mib})
	s.untouched()
	a.Remove("web.yaml")
	a.NothingLeft(60 * time.Second)
}

func TestResizesOutliveTheAgent(t *testing.T) {
	a := StartAgent(t, Options{})
	spec := func(cpu, memory string) string {
		return oneContainer("{limits: {cpu: " + cpu + ", memory: " + memory + "}}")
	}
	waits := begin(t, a, "waits", spec("50m", "32Mi"))
	midway := begin(t, a, "midway", spec("50m", "32Mi"))
	edited := begin(t, a, "edited", spec("50m", "32Mi"))
	waits.edit(spec("900", "32Mi"))
	waits.until(10*time.Second, resize("PodResizePending Deferred"))

	// Killed as soon as it may have begun, and somewhere in the middle.
	memory := []string{"48Mi", "64Mi", "40Mi"}
	for i, after := range []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond} {
		midway.edit(spec("100m", memory[i]))
		time.Sleep(after)
		a.Kill9()
		a.Start()
	}
	a.Kill9()
	edited.edit(spec("80m", "48Mi"))
	a.Start()

	// Who was granted something keeps it, whatever the manifest says.
	waits.until(10*time.Second, has("c", "50m/50m 32Mi/32Mi"))
	for _, s := range []*story{midway, edited} {
		text := map[string]string{"midway": "100m/100m 40Mi/40Mi", "edited": "80m/80m 48Mi/48Mi"}[s.Name]
		s.until(60*time.Second, runs, has("c", text), resize("")) // asked 30s after the start
		want := map[string]limits{
			"midway": {shares: 102, quota: 10_000, memory: 40 * mib},
			"edited": {shares: 81, quota: 8000, memory: 48 * mib},
		}[s.Name]
		s.box().wantLimits(t, want)
		s.ContainerBox(t, "c").wantLimits(t, want)
	}
	waits.until(60*time.Second, resize("PodResizePending Deferred"), has("c", "50m/50m 32Mi/32Mi"))
	for _, s := range []*story{waits, midway, edited} {
		s.untouched()
		a.Remove(s.Name + ".yaml")
	}
	a.NothingLeft(60 * time.Second)
}

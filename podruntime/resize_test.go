package podruntime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// needs makes resources out of "cpu request/limit memory request/limit", such as
// "1/2 64Mi/128Mi". A dash is none.
func needs(text string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for i, pair := range strings.Fields(text) {
		name := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[i]
		request, limit, _ := strings.Cut(pair, "/")
		if request != "-" {
			r.Requests[name] = resource.MustParse(request)
		}
		if limit != "-" {
			r.Limits[name] = resource.MustParse(limit)
		}
	}
	return r
}

// wants gives a container resources and, if there are any, policies such as
// memory=RestartContainer.
func wants(p *corev1.Pod, name, text string, policies ...string) *corev1.Pod {
	c, _, _ := podspec.Find(p, name)
	c.Resources = needs(text)
	for _, policy := range policies {
		resource, restart, _ := strings.Cut(policy, "=")
		c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{
			ResourceName: corev1.ResourceName(resource), RestartPolicy: corev1.ResourceResizeRestartPolicy(restart),
		})
	}
	return p
}

// had makes inputs from what each container was given last.
func had(pairs ...string) podruntime.Inputs {
	return podruntime.Inputs{Actuated: func(name string) (corev1.ResourceRequirements, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return needs(pairs[i+1]), true
			}
		}
		return corev1.ResourceRequirements{}, false
	}}
}

func TestPlansOfAResize(t *testing.T) {
	withProbes := had("s", "1/1 1Gi/1Gi")
	withProbes.Startup = func(observed.ContainerID) podruntime.ProbeResult { return podruntime.ProbeUnknown }
	podLevel := wants(pod("Always", "a"), "a", "1/1 1Gi/1Gi")
	podLevel.Spec.Resources = ptr(needs("2/2 2Gi/2Gi"))
	bounded := wants(wants(pod("Always", "a", "b"), "a", "1/- 1Gi/-"), "b", "1/- 1Gi/1Gi")
	bounded.Spec.Resources = ptr(needs("2/2 2Gi/4Gi"))
	const restart = "memory=RestartContainer"
	unfinished := func(in podruntime.Inputs) podruntime.Inputs { in.Unfinished = true; return in }
	runPlans(t, []planCase{
		{name: "the same amounts are nothing to do", in: had("a", "1/1 1Gi/1Gi"), want: "nothing to do",
			pod: wants(pod("Always", "a"), "a", "1000m/1 1024Mi/1Gi", restart), seen: seen(run("a"))},
		{name: "other amounts are a resize", in: had("a", "1/1 1Gi/1Gi"), want: "resize pod, resize [a]",
			pod: wants(pod("Always", "a"), "a", "2/2 1Gi/1Gi"), seen: seen(run("a"))},
		{name: "a request alone counts", in: had("a", "1/2 1Gi/1Gi"), want: "resize pod, resize [a]",
			pod: wants(pod("Always", "a"), "a", "2/2 1Gi/1Gi"), seen: seen(run("a"))},
		{name: "a limit where there was none counts", in: had("a", "1/- 1Gi/-"), want: "resize pod, resize [a]",
			pod: wants(pod("Always", "a"), "a", "1/1 1Gi/-"), seen: seen(run("a"))},
		{name: "nobody is resized of whom nothing is known", in: had("b", "1/1"), want: "nothing to do",
			pod: wants(pod("Always", "a"), "a", "2/2"), seen: seen(run("a"))},
		{name: "without records nothing is resized", want: "nothing to do",
			pod: wants(pod("Always", "a"), "a", "2/2"), seen: seen(run("a"))},
		{name: "a policy restarts, under Never too", in: had("a", "1/1 1Gi/1Gi"), want: "kill [a], resize pod, start [a]",
			pod: wants(pod("Never", "a"), "a", "1/1 2Gi/2Gi", restart), seen: seen(run("a")), messages: "Container a resize requires restart"},
		{name: "a policy for another resource does not", in: had("a", "1/1 1Gi/1Gi"), want: "resize pod, resize [a]",
			pod: wants(pod("Always", "a"), "a", "2/2 1Gi/1Gi", restart, "cpu=NotRequired"), seen: seen(run("a"))},
		{name: "a container that does not run gets it with its next start", in: had("a", "1/1"), want: "resize pod, start [a]",
			pod: wants(pod("Always", "a"), "a", "2/2"), seen: seen(ex("a", 1))},
		{name: "one that is stopped anyway, too", in: had("a", "1/1"), want: "kill [a], resize pod, start [a]",
			pod: wants(pod("Always", "a"), "a", "2/2"), seen: seen(was(run("a"), func(c *observed.Container) { c.Hash = "other" })),
			messages: "Container a definition changed, will be restarted"},
		{name: "a running sidecar is resized", in: had("s", "1/1"), want: "resize pod, resize [s]",
			pod: wants(pod("Always", "s:s", "a"), "s", "2/2"), seen: seen(run("a"), run("s"))},
		{name: "a running sidecar is restarted for it", in: had("s", "1/1 1Gi/1Gi"), want: "kill [s], resize pod, start [s]",
			pod: wants(pod("Never", "s:s", "a"), "s", "1/1 2Gi/2Gi", restart), seen: seen(run("a"), run("s")), messages: "Container s resize requires restart"},
		{name: "a sidecar that has not started is not restarted yet", in: withProbes, want: "nothing to do",
			pod: probed(wants(pod("Always", "s:s", "a"), "s", "1/1 2Gi/2Gi", restart), "s"), seen: seen(run("s"))},
		{name: "a running init container is resized", in: had("i", "1/1"), want: "resize pod, resize [i]",
			pod: wants(pod("Always", "i:i", "a"), "i", "2/2"), seen: seen(run("i"))},
		{name: "a running init container is restarted for it", in: had("i", "1/1 1Gi/1Gi"), want: "kill [i], resize pod, start [i]",
			pod: wants(pod("Never", "i:i", "a"), "i", "1/1 2Gi/2Gi", restart), seen: seen(run("i")), messages: "Container i resize requires restart"},
		{name: "a finished init container stays what it was", in: had("i", "1/1 1Gi/1Gi"), want: "nothing to do",
			pod: wants(pod("Never", "i:i", "a"), "i", "1/1 2Gi/2Gi", restart), seen: seen(run("a"), ex("i", 0))},
		{name: "so does a container that has ended for good", in: had("b", "1/1 1Gi/1Gi"), want: "nothing to do",
			pod: wants(pod("Never", "a", "b"), "b", "1/1 2Gi/2Gi"), seen: seen(run("a"), ex("b", 1))},
		{name: "the pod alone is resized", in: had("", "1/1 1Gi/1Gi", "a", "1/1 1Gi/1Gi"), want: "resize pod",
			pod: podLevel, seen: seen(run("a"))},
		{name: "whom the pod's limit bounds is resized with it", in: had("", "2/2 2Gi/2Gi", "a", "1/- 1Gi/-", "b", "1/- 1Gi/1Gi"), want: "resize pod, resize [a]",
			pod: bounded, seen: seen(run("a"), run("b"))},
		{name: "each by the resource that it has no limit of", in: had("", "2/1 2Gi/4Gi", "a", "1/- 1Gi/-", "b", "1/- 1Gi/1Gi"), want: "resize pod, resize [a, b]",
			pod: bounded, seen: seen(run("a"), run("b"))},
		{name: "a request of the pod changes no container", in: had("", "1/2 1Gi/4Gi", "a", "1/- 1Gi/-", "b", "1/- 1Gi/1Gi"), want: "resize pod",
			pod: bounded, seen: seen(run("a"), run("b"))},
		{name: "what an error left behind is made up for", in: unfinished(had("a", "1/1")), want: "resize pod",
			pod: wants(pod("Always", "a"), "a", "1/1"), seen: seen(run("a"))},
		{name: "nothing is resized in a pod that is being deleted", in: had("a", "1/1"), want: "nothing to do",
			pod: deleted(wants(pod("Always", "a"), "a", "2/2")), seen: seen(run("a"))},
		{name: "nor in one that ends", in: had("a", "1/1"), want: "ended",
			pod: wants(pod("Never", "a"), "a", "2/2"), seen: seen(ex("a", 0))},
		{name: "a new sandbox has it all from the start", in: had("a", "1/1"), want: "kill pod, create sandbox, start [a]",
			pod: wants(pod("Always", "a"), "a", "2/2"), seen: deadSandbox(run("a"))},
	})
}

// box is a pod's cgroup in memory. Everything that is written, here and in the
// runtime, is in log.
type box struct {
	usage     int64
	now, want podruntime.PodLimits
	fail      error
	log       *[]string
}

func (b *box) Usage(context.Context) (int64, error) { return b.usage, nil }
func (b *box) Limits(context.Context) (now, want podruntime.PodLimits, err error) {
	return b.now, b.want, nil
}
func (b *box) Set(_ context.Context, l podruntime.PodLimits) error {
	if b.fail != nil {
		return b.fail
	}
	*b.log = append(*b.log, "cgroup "+limits(l.Memory, l.CPUShares, l.CPUQuota))
	return nil
}

func limits(memory, shares, quota int64) string {
	var parts []string
	if memory != 0 {
		parts = append(parts, fmt.Sprint("memory ", memory/mi))
	}
	if shares != 0 {
		parts = append(parts, fmt.Sprint("shares ", shares))
	}
	if quota != 0 {
		parts = append(parts, fmt.Sprint("quota ", quota))
	}
	return strings.Join(parts, " ")
}

// cri is a runtime whose updates are logged beside those of a box.
type cri struct {
	*critest.Runtime
	log     *[]string
	usage   map[string]uint64 // by container name; 0 is not told
	sandbox error
	refuse  string // a line of the log that fails
}

func (c *cri) name(id string) string {
	for _, name := range []string{"a", "b", "s"} {
		if got, _ := c.FindContainer("uid-1", name); got == id {
			return name
		}
	}
	return id
}

func (c *cri) note(line string) error {
	if line == c.refuse {
		return errors.New("refused")
	}
	*c.log = append(*c.log, line)
	return nil
}

func (c *cri) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	l := r.Linux
	if err := c.note("container " + c.name(id) + " " + limits(l.MemoryLimitInBytes, l.CpuShares, l.CpuQuota)); err != nil {
		return err
	}
	return c.Runtime.UpdateContainerResources(ctx, id, r)
}

func (c *cri) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	if c.sandbox != nil {
		return nil, c.sandbox
	}
	l := req.Resources
	return nil, c.note("sandbox " + limits(l.MemoryLimitInBytes, l.CpuShares, l.CpuQuota))
}

func (c *cri) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	if used := c.usage[c.name(id)]; used > 0 {
		return &runtimeapi.ContainerStats{Memory: &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: used << 20}}}, nil
	}
	return &runtimeapi.ContainerStats{}, nil
}

// resize is a pod a, b that runs with half a processor and 100 MiB each, and whose
// spec then changes.
type resize struct {
	a, b      string
	now, want podruntime.PodLimits
	usage     int64
	used      map[string]uint64
	change    func(*cri, *box)
}

const mi = 1 << 20

func (z resize) run(t *testing.T) (log []string, done []podruntime.Actuated, err error) {
	t.Helper()
	n := newNode(t)
	const before = "500m/500m 100Mi/100Mi"
	p := wants(wants(pod("Always", "a", "b"), "a", before), "b", before)
	n.converge(p)
	c := &cri{Runtime: n.rt, log: &log, usage: z.used}
	b := &box{now: z.now, want: z.want, usage: z.usage, log: &log}
	if z.change != nil {
		z.change(c, b)
	}
	r, err := podruntime.New(podruntime.Config{CRI: c, Images: stubImages{}})
	if err != nil {
		t.Fatal(err)
	}
	wants(wants(p, "a", z.a), "b", z.b)
	see := n.see(p)
	plan := podruntime.ComputePodActions(p, see, had("a", before, "b", before))
	done, err = r.Resize(t.Context(), p, see, plan, b)
	return log, done, err
}

var grown = podruntime.PodLimits{Memory: 400 * mi, CPUShares: 2048, CPUQuota: 200_000}
var normal = podruntime.PodLimits{Memory: 200 * mi, CPUShares: 1024, CPUQuota: 100_000}

func TestTheOrderOfAResize(t *testing.T) {
	used := map[string]uint64{"a": 10, "b": 10}
	for _, tt := range []struct {
		name string
		resize
		want string
	}{
		{"growing: the pod before its containers, memory before processors",
			resize{a: "1/1 200Mi/200Mi", b: "1/1 200Mi/200Mi", now: normal, want: grown}, `
			sandbox memory 400 shares 1024 quota 100000
			cgroup memory 400
			container a memory 200 shares 512 quota 50000
			container b memory 200 shares 512 quota 50000
			sandbox memory 400 shares 1024 quota 200000
			cgroup quota 200000
			sandbox memory 400 shares 2048 quota 200000
			cgroup shares 2048
			container a memory 200 shares 1024 quota 100000
			container b memory 200 shares 1024 quota 100000`},
		{"shrinking: the pod after its containers",
			resize{a: "250m/250m 50Mi/50Mi", b: "250m/250m 50Mi/50Mi", used: used, now: normal, want: podruntime.PodLimits{Memory: 100 * mi, CPUShares: 512, CPUQuota: 50_000}}, `
			container a memory 50 shares 512 quota 50000
			container b memory 50 shares 512 quota 50000
			sandbox memory 100 shares 1024 quota 100000
			cgroup memory 100
			container a memory 50 shares 256 quota 25000
			container b memory 50 shares 256 quota 25000
			sandbox memory 100 shares 512 quota 100000
			cgroup shares 512
			sandbox memory 100 shares 512 quota 50000
			cgroup quota 50000`},
		{"from one to the other: who gives goes first",
			resize{a: "750m/750m 150Mi/150Mi", b: "250m/250m 50Mi/50Mi", used: used, now: normal, want: normal}, `
			container b memory 50 shares 512 quota 50000
			container a memory 150 shares 512 quota 50000
			container b memory 50 shares 256 quota 25000
			container a memory 150 shares 768 quota 75000`},
		{"a limit of the pod that is not asked for any more stays",
			resize{a: "500m/1 100Mi/100Mi", b: "500m/500m 100Mi/100Mi", now: normal, want: podruntime.PodLimits{CPUShares: 1024}}, `
			container a memory 100 shares 512 quota 100000`},
		{"a first limit of the pod comes last",
			resize{a: "500m/1 100Mi/100Mi", b: "500m/500m 100Mi/100Mi", now: podruntime.PodLimits{CPUShares: 1024, CPUQuota: -1}, want: normal, usage: mi}, `
			sandbox memory 200 shares 1024 quota -1
			cgroup memory 200
			container a memory 100 shares 512 quota 100000
			sandbox memory 200 shares 1024 quota 100000
			cgroup quota 100000`},
		{"a runtime that does not know the sandbox's call is not asked for more",
			resize{a: "1/1 100Mi/100Mi", b: "500m/500m 100Mi/100Mi", now: normal, want: podruntime.PodLimits{Memory: 200 * mi, CPUShares: 1536, CPUQuota: 100_000},
				change: func(c *cri, _ *box) { c.sandbox = status.Error(codes.Unimplemented, "unknown method") }}, `
			cgroup shares 1536
			container a memory 100 shares 1024 quota 100000`},
		{"nor one that says so in its own words",
			resize{a: "1/1 100Mi/100Mi", b: "500m/500m 100Mi/100Mi", now: normal, want: podruntime.PodLimits{Memory: 200 * mi, CPUShares: 1536, CPUQuota: 100_000},
				change: func(c *cri, _ *box) { c.sandbox = status.Error(codes.Unknown, "Not implemented") }}, `
			cgroup shares 1536
			container a memory 100 shares 1024 quota 100000`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log, done, err := tt.run(t)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Join(strings.FieldsFunc(strings.ReplaceAll(strings.TrimSpace(tt.want), "\t", ""), func(r rune) bool { return r == '\n' }), "\n")
			if got := strings.Join(log, "\n"); got != want {
				t.Errorf("calls:\n%s\nwant:\n%s", got, want)
			}
			for _, d := range done {
				if wanted := needs(map[string]string{"a": tt.a, "b": tt.b}[d.Name]); fmt.Sprint(d.Resources) != fmt.Sprint(wanted) {
					t.Errorf("%s was given %v, want %v", d.Name, d.Resources, wanted)
				}
			}
		})
	}
}

func TestAResizeThatFails(t *testing.T) {
	less := resize{a: "500m/500m 50Mi/50Mi", b: "500m/500m 100Mi/100Mi", now: normal, want: podruntime.PodLimits{Memory: 150 * mi, CPUShares: 1024, CPUQuota: 100_000}}
	more := resize{a: "1/1 200Mi/200Mi", b: "1/1 200Mi/200Mi", now: normal, want: grown}
	for _, tt := range []struct {
		name   string
		base   resize
		change func(*resize)
		want   string
		is     error
		done   string
		calls  int
	}{
		{name: "a container uses as much as it would have", base: less,
			change: func(z *resize) { z.used = map[string]uint64{"a": 50} }, is: podruntime.ErrMemoryInUse,
			want: "resize pod default/web: cannot decrease memory limits: container a uses 52428800 bytes and would have 52428800"},
		{name: "the pod uses more than it would have", base: less,
			change: func(z *resize) { z.used, z.usage = map[string]uint64{"a": 49}, 151*mi }, is: podruntime.ErrMemoryInUse,
			want: "resize pod default/web: cannot decrease memory limits: the pod uses 158334976 bytes and would have 157286400"},
		{name: "what is used is not known", base: less,
			want: "resize pod default/web: measure container a: the runtime does not tell how much memory it uses"},
		{name: "the runtime refuses the pod", base: more,
			change: func(z *resize) {
				z.change = func(c *cri, _ *box) { c.sandbox = status.Error(codes.Internal, "no room") }
			},
			want: "no room"},
		{name: "the cgroup cannot be written, and the runtime is told", base: more,
			change: func(z *resize) { z.change = func(_ *cri, b *box) { b.fail = errors.New("read-only") } },
			want:   "resize pod default/web: set the limits of its cgroup: read-only", calls: 2},
		{name: "the second container refuses; the first keeps what it was given", base: more,
			change: func(z *resize) {
				z.change = func(c *cri, _ *box) { c.refuse = "container b memory 200 shares 512 quota 50000" }
			},
			want: "update memory of container b: refused", done: "a cpu 500m/500m memory 200Mi/200Mi", calls: 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(&tt.base)
			}
			log, done, err := tt.base.run(t)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error = %v\nwant    %s", err, tt.want)
			}
			var got []string
			for _, d := range done {
				r := d.Resources
				got = append(got, fmt.Sprintf("%s cpu %s/%s memory %s/%s", d.Name, r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory()))
			}
			if strings.Join(got, ", ") != tt.done || len(log) != tt.calls {
				t.Errorf("done = %v, want %s; calls %v, want %d", got, tt.done, log, tt.calls)
			}
		})
	}
}

// Of the pod's limits, too, only one resource changes at a time: the kernel allows
// no cgroup more processor time than the one it is in has.
func TestAResizeOfThePodReachesWhomItBounds(t *testing.T) {
	n := newNode(t)
	p := wants(pod("Always", "a"), "a", "500m/- 100Mi/-")
	p.Spec.Resources = ptr(needs("1/1 200Mi/200Mi"))
	n.converge(p)
	p.Spec.Resources = ptr(needs("2/2 400Mi/400Mi"))
	see := n.see(p)
	var log []string
	c := &cri{Runtime: n.rt, log: &log, sandbox: status.Error(codes.Unimplemented, "unknown method")}
	r, err := podruntime.New(podruntime.Config{CRI: c, Images: stubImages{}})
	if err != nil {
		t.Fatal(err)
	}
	plan := podruntime.ComputePodActions(p, see, had("", "1/1 200Mi/200Mi", "a", "500m/- 100Mi/-"))
	done, err := r.Resize(t.Context(), p, see, plan, &box{now: normal, want: grown, log: &log})
	if err != nil || len(done) != 2 || done[0].Name != "a" || done[1].Name != podruntime.PodItself {
		t.Errorf("Resize = %v, %v", done, err)
	}
	want := []string{
		"cgroup memory 400", "container a memory 400 shares 512 quota 100000",
		"cgroup quota 200000", "cgroup shares 2048", "container a memory 400 shares 512 quota 200000",
	}
	if !slices.Equal(log, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
	if p.Spec.Resources.Limits.Cpu().Value() != 2 {
		t.Errorf("the pod was changed: %v", p.Spec.Resources)
	}
}

func TestAResizeOfThePodAlone(t *testing.T) {
	n := newNode(t)
	p := wants(pod("Always", "a"), "a", "1/1 1Gi/1Gi")
	p.Spec.Resources = ptr(needs("2/2 2Gi/2Gi"))
	n.converge(p)
	see := n.see(p)
	plan := podruntime.ComputePodActions(p, see, had("", "1/1 1Gi/1Gi", "a", "1/1 1Gi/1Gi"))
	done, err := n.r.Resize(t.Context(), p, see, plan, nil)
	if err != nil || len(done) != 1 || done[0].Name != podruntime.PodItself || done[0].Resources.Limits.Cpu().Value() != 2 {
		t.Errorf("Resize = %v, %v", done, err)
	}
	if done, err := n.r.Resize(t.Context(), p, see, podruntime.Plan{}, nil); err != nil || done != nil {
		t.Errorf("Resize of nothing = %v, %v", done, err)
	}
	plan.Resize = []podruntime.Resize{{Name: "other"}}
	if _, err := n.r.Resize(t.Context(), p, see, plan, nil); err == nil {
		t.Error("a plan of another pod was carried out")
	}
}

package podruntime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// PodCgroup is the cgroup of one pod, as far as a resize needs it.
type PodCgroup interface {
	// Usage is the memory that the pod uses, in bytes.
	Usage(ctx context.Context) (int64, error)
	// Limits returns what is in force, and what the pod's spec asks for.
	Limits(ctx context.Context) (now, want PodLimits, err error)
	// Set changes the fields that are not zero.
	Set(ctx context.Context, limits PodLimits) error
}

// PodLimits are settings of a pod's cgroup. Zero is no limit.
type PodLimits struct {
	Memory    int64 // in bytes
	CPUShares int64
	CPUQuota  int64 // in microseconds per period
}

// Actuated is what a container, or the pod under [PodItself], has been given.
type Actuated struct {
	Name      string
	Resources corev1.ResourceRequirements
}

// ErrMemoryInUse is in the error of a resize to a memory limit that is used up
// already. Nothing has been changed then; later it may be possible.
var ErrMemoryInUse = errors.New("cannot decrease memory limits")

// Resize carries out plan.Resize and plan.ResizePod. It goes between
// [Runtime.EnsureSandbox] and [Runtime.Converge].
//
// Memory comes before processor time. Of each, the pod's cgroup grows before its
// containers do and shrinks after them, and containers that give something back
// come first. The first step that fails ends the call; the next plan has the rest.
//
// done is what was accepted, also when there is an error. It has to be kept, and
// to be given to the next plan as [Inputs].Actuated. cgroup may be nil when the
// pod has none of its own.
func (r *Runtime) Resize(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan Plan, cgroup PodCgroup) (done []Actuated, err error) {
	if !plan.ResizePod {
		return nil, nil
	}
	z := &resizing{r: r, pod: pod, sandbox: plan.SandboxID, cgroup: cgroup, has: plan.PodFrom}
	for _, change := range plan.Resize {
		c, kind, ok := podspec.Find(pod, change.Name)
		if !ok {
			return nil, fmt.Errorf("resize container %s of pod %s: the plan belongs to another pod spec", change.Name, podName(pod))
		}
		z.containers = append(z.containers, &resized{Resize: change, c: c, kind: kind, has: change.From})
	}
	if err := z.run(ctx); err != nil {
		return z.done(false), fmt.Errorf("resize pod %s: %w", podName(pod), err)
	}
	return z.done(true), nil
}

// resizing is one call of [Runtime.Resize].
type resizing struct {
	r         *Runtime
	pod       *corev1.Pod
	sandbox   observed.SandboxID
	cgroup    PodCgroup
	now, want PodLimits // of the pod's cgroup; now follows what is written
	// has is what containers without limits of their own get from the pod; nil if
	// that does not change.
	has        *corev1.ResourceRequirements
	containers []*resized
}

type resized struct {
	Resize
	c       *corev1.Container
	kind    podspec.Kind
	has     corev1.ResourceRequirements
	changed bool
}

func (z *resizing) run(ctx context.Context) error {
	if z.cgroup != nil {
		var err error
		if z.now, z.want, err = z.cgroup.Limits(ctx); err != nil {
			return fmt.Errorf("read the limits of its cgroup: %w", err)
		}
		// Taking a limit away is no resize that the API knows.
		if z.want.Memory <= 0 {
			z.want.Memory = z.now.Memory
		}
		if z.want.CPUQuota <= 0 {
			z.want.CPUQuota = z.now.CPUQuota
		}
	}
	if err := z.checkMemory(ctx); err != nil {
		return err
	}
	memory := func(l *PodLimits) *int64 { return &l.Memory }
	quota := func(l *PodLimits) *int64 { return &l.CPUQuota }
	shares := func(l *PodLimits) *int64 { return &l.CPUShares }
	for _, step := range []func() error{
		func() error { return z.setPod(ctx, memory, true) },
		func() error { return z.update(ctx, corev1.ResourceMemory) },
		func() error { return z.setPod(ctx, memory, false) },
		func() error { return z.setPod(ctx, quota, true) },
		func() error { return z.setPod(ctx, shares, true) },
		func() error { return z.update(ctx, corev1.ResourceCPU) },
		func() error { return z.setPod(ctx, shares, false) },
		func() error { return z.setPod(ctx, quota, false) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkMemory refuses the whole resize when a memory limit would be at or below
// what is used: the kernel would start to kill.
func (z *resizing) checkMemory(ctx context.Context) error {
	var tight []string
	for _, c := range z.containers {
		limit := c.c.Resources.Limits[corev1.ResourceMemory]
		if !c.Memory || limit.IsZero() || !shrinks(c.From, c.c.Resources, corev1.ResourceMemory) {
			continue
		}
		used, err := z.used(ctx, c.Container.ID)
		if err != nil {
			return fmt.Errorf("measure container %s: %w", c.Name, err)
		}
		if used >= limit.Value() {
			tight = append(tight, fmt.Sprintf("container %s uses %d bytes and would have %d", c.Name, used, limit.Value()))
		}
	}
	if z.want.Memory > 0 && (z.now.Memory <= 0 || z.want.Memory < z.now.Memory) {
		used, err := z.cgroup.Usage(ctx)
		if err != nil {
			return fmt.Errorf("measure it: %w", err)
		}
		if used >= z.want.Memory {
			tight = append(tight, fmt.Sprintf("the pod uses %d bytes and would have %d", used, z.want.Memory))
		}
	}
	if len(tight) > 0 {
		return fmt.Errorf("%w: %s", ErrMemoryInUse, strings.Join(tight, ", "))
	}
	return nil
}

func (z *resizing) used(ctx context.Context, id observed.ContainerID) (int64, error) {
	stats, err := z.r.cfg.CRI.ContainerStats(ctx, string(id))
	if err != nil {
		return 0, criclient.Wrap("", err)
	}
	for _, v := range []*runtimeapi.UInt64Value{stats.GetMemory().GetUsageBytes(), stats.GetMemory().GetWorkingSetBytes()} {
		if v != nil {
			return int64(v.GetValue()), nil
		}
	}
	return 0, errors.New("the runtime does not tell how much memory it uses")
}

// update gives each container its new amount of one resource. The other one stays
// what it is.
func (z *resizing) update(ctx context.Context, name corev1.ResourceName) error {
	var giving, taking []*resized
	for _, c := range z.containers {
		switch {
		case name == corev1.ResourceMemory && !c.Memory, name == corev1.ResourceCPU && !c.CPU:
		case shrinks(c.From, c.c.Resources, name):
			giving = append(giving, c)
		default:
			taking = append(taking, c)
		}
	}
	pod := z.pod
	if z.has != nil {
		has := merged(*z.has, *pod.Spec.Resources, name)
		shown := *pod
		shown.Spec.Resources, z.has, pod = &has, &has, &shown
	}
	for _, c := range slices.Concat(giving, taking) {
		next := *c.c
		next.Resources = merged(c.has, c.c.Resources, name)
		err := z.r.cfg.CRI.UpdateContainerResources(ctx, string(c.Container.ID), &runtimeapi.ContainerResources{
			Linux: z.r.rules.linuxResources(pod, &next, c.kind),
		})
		if err != nil {
			return criclient.Wrap(fmt.Sprintf("update %s of container %s", name, c.Name), err)
		}
		c.has, c.changed = next.Resources, true
	}
	return nil
}

// merged is old with one resource as in next. What is not resized in place is as
// in next, too.
func merged(old, next corev1.ResourceRequirements, name corev1.ResourceName) corev1.ResourceRequirements {
	out := *next.DeepCopy()
	for _, other := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if other != name {
			keep(&out.Requests, old.Requests, other)
			keep(&out.Limits, old.Limits, other)
		}
	}
	return out
}

func keep(list *corev1.ResourceList, old corev1.ResourceList, name corev1.ResourceName) {
	q, ok := old[name]
	switch {
	case !ok:
		delete(*list, name)
	case *list == nil:
		*list = corev1.ResourceList{name: q}
	default:
		(*list)[name] = q
	}
}

// setPod writes one limit of the pod's cgroup, if it grows or if it shrinks. The
// runtime is told before: it may have a virtual machine to change, and may refuse.
func (z *resizing) setPod(ctx context.Context, field func(*PodLimits) *int64, grows bool) error {
	now, want := *field(&z.now), *field(&z.want)
	if now == want || grows != (now > 0 && want > now) {
		return nil // a first limit is less than none
	}
	before, after := z.now, z.now
	*field(&after) = want
	if err := z.tell(ctx, after); err != nil {
		return err
	}
	var write PodLimits
	*field(&write) = want
	if err := z.cgroup.Set(ctx, write); err != nil {
		err = fmt.Errorf("set the limits of its cgroup: %w", err)
		if back := z.tell(ctx, before); back != nil {
			err = errors.Join(err, fmt.Errorf("take that back: %w", back))
		}
		return err
	}
	z.now = after
	return nil
}

// tell says to the runtime what the pod as a whole gets. Not every runtime wants
// to know.
func (z *resizing) tell(ctx context.Context, l PodLimits) error {
	res := z.r.rules.linux(resource.Quantity{}, resource.Quantity{}, resource.Quantity{}) // has the period
	res.CpuShares, res.CpuQuota, res.MemoryLimitInBytes = l.CPUShares, l.CPUQuota, l.Memory
	_, err := z.r.cfg.CRI.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
		PodSandboxId: string(z.sandbox), Resources: res, Overhead: z.r.rules.overhead(z.pod),
	})
	err = criclient.Wrap("update resources of sandbox "+string(z.sandbox), err)
	if err == nil || errors.Is(err, criclient.ErrUnimplemented) ||
		strings.Contains(strings.ToLower(criclient.Message(err)), "not implemented") {
		return nil
	}
	return err
}

// done lists what was accepted. all: nothing is left to do.
func (z *resizing) done(all bool) []Actuated {
	var list []Actuated
	for _, c := range z.containers {
		if c.changed {
			list = append(list, Actuated{Name: c.Name, Resources: c.has})
		}
	}
	if all && z.pod.Spec.Resources != nil {
		list = append(list, Actuated{Name: PodItself, Resources: *z.pod.Spec.Resources.DeepCopy()})
	}
	return list
}

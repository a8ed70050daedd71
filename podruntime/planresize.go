package podruntime

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Resize is a running container that gets other resources without a restart
// (KEP-1287).
type Resize struct {
	Name      string
	Container observed.Container
	// CPU and Memory tell what changes.
	CPU, Memory bool
	// From is what the container was given last.
	From corev1.ResourceRequirements
}

// PodItself is the name under which [Inputs] and [Actuated] have the pod-level
// resources. No container has it.
const PodItself = ""

// actuated returns what the named container was given last. A container of which
// nobody knows is never resized: what it has may be what it should have.
func (d *decision) actuated(name string) (corev1.ResourceRequirements, bool) {
	if d.in.Actuated == nil {
		return corev1.ResourceRequirements{}, false
	}
	return d.in.Actuated(name)
}

// resizeRestarts reports whether a changed resource of the container asks for a
// restart. No policy is NotRequired.
func (d *decision) resizeRestarts(c *corev1.Container) bool {
	from, ok := d.actuated(c.Name)
	if !ok {
		return false
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer && differs(from, c.Resources, p.ResourceName) {
			return true
		}
	}
	return false
}

// resizes plans for running containers that nobody stops. Others get what they were
// granted when they start, but the pod's cgroup has to make room before. A sidecar that has to be restarted for it, and has not started yet, waits.
func (d *decision) resizes() {
	if d.in.Actuated == nil {
		return
	}
	if r := d.pod.Spec.Resources; r != nil {
		from, ok := d.actuated(PodItself)
		if ok && (differs(from, *r, corev1.ResourceCPU) || differs(from, *r, corev1.ResourceMemory)) {
			d.plan.ResizePod, d.plan.PodFrom = true, &from
		}
	}
	if d.in.Unfinished && d.seen.HasRunning() {
		d.plan.ResizePod = true
	}
	killed := make(map[observed.ContainerID]bool, len(d.plan.Kill))
	for _, k := range d.plan.Kill {
		killed[k.Container.ID] = true
	}
	for c, kind := range podspec.All(d.pod) {
		from, ok := d.actuated(c.Name)
		if kind == podspec.Ephemeral || !ok {
			continue
		}
		change := Resize{
			Name: c.Name, From: from,
			CPU:    differs(from, c.Resources, corev1.ResourceCPU) || d.inherits(c, corev1.ResourceCPU),
			Memory: differs(from, c.Resources, corev1.ResourceMemory) || d.inherits(c, corev1.ResourceMemory),
		}
		if !change.CPU && !change.Memory {
			continue
		}
		change.Container, ok = d.seen.Container(c.Name)
		if ok && change.Container.Sandbox == d.plan.SandboxID && change.Container.State == observed.Running && !killed[change.Container.ID] && !d.resizeRestarts(c) {
			d.plan.Resize = append(d.plan.Resize, change)
			d.plan.ResizePod = true
		}
		if slices.ContainsFunc(d.plan.Start, func(s Start) bool { return s.Name == c.Name }) {
			d.plan.ResizePod = true
		}
	}
}

// inherits reports whether the container is bounded by the pod's own limit alone
// (see [limitOf]), and that one changes.
func (d *decision) inherits(c *corev1.Container, name corev1.ResourceName) bool {
	own := c.Resources.Limits[name]
	if d.plan.PodFrom == nil || !own.IsZero() {
		return false
	}
	limit := d.plan.PodFrom.Limits[name]
	return limit.Cmp(d.pod.Spec.Resources.Limits[name]) != 0
}

// differs compares the request and the limit of one resource. None is zero.
func differs(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	request, limit := a.Requests[name], a.Limits[name]
	return request.Cmp(b.Requests[name]) != 0 || limit.Cmp(b.Limits[name]) != 0
}

// shrinks tells an update that gives something back: those go first, so that the
// others find it.
func shrinks(from, to corev1.ResourceRequirements, name corev1.ResourceName) bool {
	limit, request := to.Limits[name], to.Requests[name]
	if c := limit.Cmp(from.Limits[name]); c != 0 {
		was := from.Limits[name]
		return c < 0 && !limit.IsZero() || was.IsZero() // no limit is the largest
	}
	return request.Cmp(from.Requests[name]) < 0
}

func resizeMessage(c *corev1.Container) string {
	return fmt.Sprintf("Container %s resize requires restart", c.Name)
}

package podruntime

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Plan is what has to happen to one pod now. It is a value: compute it, print
// it, compare it in a test. [Runtime.EnsureSandbox] carries out its first half,
// [Runtime.Converge] the second.
type Plan struct {
	// KillPod stops every container and every sandbox of the pod, before anything
	// else. Kill is empty then.
	KillPod bool
	// CreateSandbox makes sandbox number Attempt. Otherwise SandboxID is kept.
	CreateSandbox bool
	Attempt       uint32
	// SandboxID is the sandbox to keep, or the old one that a new one replaces.
	SandboxID observed.SandboxID
	// Reason says why the sandbox does not fit; empty when it does.
	Reason string
	// Kill lists containers to stop while the pod goes on.
	Kill []Kill
	// Reset lists instances to end and to remove, in this order, since all
	// containers of the pod start again. Nothing else is planned then; the next
	// plan starts them. Sync again at once.
	Reset []Reset
	// Resize lists running containers whose resources change without a restart.
	Resize []Resize
	// ResizePod is true when the pod's own resources change.
	ResizePod bool
	// PodFrom is what the pod as a whole was given last, if its pod-level resources
	// change.
	PodFrom *corev1.ResourceRequirements
	// Prune lists instances of init containers that nobody needs any more.
	Prune []observed.Container
	// Start lists containers to start, in this order.
	Start []Start
	// Done is true when nothing runs and nothing will: the pod has ended.
	Done bool
}

// Kill is one container to stop.
type Kill struct {
	Container observed.Container
	Reason    KillReason
	// Message is the text of the Killing event.
	Message string
}

// KillReason tells why a single container is stopped. It decides about the grace
// period: a probe may bring its own.
type KillReason string

// The reasons to stop one container of a pod that goes on.
const (
	KillDefinitionChanged KillReason = "DefinitionChanged"
	KillLivenessFailed    KillReason = "LivenessProbe"
	KillStartupFailed     KillReason = "StartupProbe"
	KillUnknown           KillReason = "Unknown"
	KillResize            KillReason = "Resize"
)

// Start is one container to start.
type Start struct {
	Name string
	Kind podspec.Kind
	// Index is the container's place in its list of the pod spec.
	Index int
	// Images has the image volumes that the container mounts, by volume name. It
	// is filled when a spec is asked for, and empty in a plan.
	Images map[string]observed.Image
	// Attempt is the number of the new instance, the same for each try to make it. It
	// is filled when a spec is asked for.
	Attempt int
}

// ProbeResult is what a prober last said of one container instance.
type ProbeResult uint8

// The results. A container that was not probed yet is ProbeUnknown.
const (
	ProbeUnknown ProbeResult = iota
	ProbeSuccess
	ProbeFailure
)

// Inputs is what a plan depends on beside the pod and its observation.
type Inputs struct {
	// Liveness and Startup give the last result of a container instance. With
	// nil there is no prober, and a declared probe changes nothing.
	Liveness, Startup func(observed.ContainerID) ProbeResult
	// Actuated gives the resources that the named container, or the pod under
	// [PodItself], was given last. With nil nothing is ever resized.
	Actuated func(container string) (corev1.ResourceRequirements, bool)
	// Unfinished: a resize is under way. The pod's cgroup may be behind although
	// each container has what it was granted.
	Unfinished bool
}

// String says in one line, for people, what the plan does.
func (p Plan) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if p.Done {
		return "ended"
	}
	if p.KillPod {
		add("kill pod")
	}
	if len(p.Kill) > 0 {
		add("kill %s", names(p.Kill, func(k Kill) string { return k.Container.Name }))
	}
	if len(p.Reset) > 0 {
		add("reset %s", names(p.Reset, func(r Reset) string { return r.Container.Name }))
	}
	if len(p.Prune) > 0 {
		add("remove %s", names(p.Prune, func(c observed.Container) string { return c.Name }))
	}
	if p.CreateSandbox {
		add("create sandbox")
	}
	if p.ResizePod {
		add("resize pod")
	}
	if len(p.Resize) > 0 {
		add("resize %s", names(p.Resize, func(r Resize) string { return r.Name }))
	}
	if len(p.Start) > 0 {
		add("start %s", names(p.Start, func(s Start) string { return s.Name }))
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

func names[T any](list []T, name func(T) string) string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = name(v)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// ComputePodActions compares the desired pod with what the runtime holds. It is
// the whole decision, and pure.
//
// A pod that is being deleted starts nothing.
func ComputePodActions(pod *corev1.Pod, seen observed.Pod, in Inputs) Plan {
	need := podspec.NeedSandbox(pod, seen)
	d := decision{pod: pod, seen: seen, in: in, plan: Plan{
		CreateSandbox: need.Create,
		Attempt:       need.Attempt,
		SandboxID:     need.ID,
		Reason:        need.Reason,
	}}
	if need.Create {
		d.newSandbox()
	} else {
		d.sameSandbox(need.ID)
	}
	return d.finish()
}

// decision is one run of [ComputePodActions].
type decision struct {
	pod  *corev1.Pod
	seen observed.Pod
	in   Inputs
	plan Plan
}

// finish applies the rules that hold on every path.
func (d *decision) finish() Plan {
	p := &d.plan
	if d.pod.DeletionTimestamp != nil {
		p.Start, p.CreateSandbox = nil, false
	}
	if p.KillPod {
		p.Kill = nil
	}
	switch {
	case len(p.Reset) > 0: // the records go soon enough
	case p.CreateSandbox:
		// A new sandbox runs its init containers again; the old instances would
		// be taken for their results.
		for i := range d.pod.Spec.InitContainers {
			p.Prune = append(p.Prune, d.seen.Instances(d.pod.Spec.InitContainers[i].Name)...)
		}
	default:
		p.Prune = d.oldInit()
		if !p.KillPod && d.pod.DeletionTimestamp == nil {
			d.resizes()
		}
		p.Done = (p.KillPod || !d.seen.Exists()) && len(p.Start) == 0 && !d.seen.HasRunning()
	}
	return *p
}

// oldInit returns the dead instances of init containers except the newest of
// each name, which still tells how that init container ended.
func (d *decision) oldInit() []observed.Container {
	var old []observed.Container
	for i := range d.pod.Spec.InitContainers {
		kept := false
		for _, c := range d.seen.Instances(d.pod.Spec.InitContainers[i].Name) {
			if c.State != observed.Exited && c.State != observed.Unknown {
				continue
			}
			if kept {
				old = append(old, c)
			}
			kept = true
		}
	}
	return old
}

// newSandbox plans for a pod whose sandbox is missing or unfit. Everything of the
// old one is stopped first.
func (d *decision) newSandbox() {
	p, spec := &d.plan, &d.pod.Spec
	p.KillPod = d.seen.Exists()
	initialised := false
	var start []Start
	for i := range spec.Containers {
		c := &spec.Containers[i]
		last, ok := d.seen.Container(c.Name)
		initialised = initialised || ok
		if !ok || !d.finished(c, last) {
			start = append(start, Start{Name: c.Name, Kind: podspec.Regular, Index: i})
		}
	}
	ran := initialised || len(d.seen.Containers) > 0
	switch {
	case ran && spec.RestartPolicy == corev1.RestartPolicyNever,
		initialised && len(start) == 0:
		p.CreateSandbox = false
	case len(spec.InitContainers) > 0:
		p.Start = []Start{{Name: spec.InitContainers[0].Name, Kind: podspec.Init}}
	default:
		p.Start = start
	}
}

// finished reports whether a regular container has to stay down in a new
// sandbox: it succeeded under OnFailure.
func (d *decision) finished(c *corev1.Container, last observed.Container) bool {
	return last.State == observed.Exited && last.ExitCode == 0 && podspec.PolicyOf(d.pod, c) == corev1.RestartPolicyOnFailure
}

// sameSandbox plans for a pod that goes on in its sandbox.
func (d *decision) sameSandbox(id observed.SandboxID) {
	if d.resets(id) {
		return
	}
	for i := range d.pod.Spec.EphemeralContainers {
		name := d.pod.Spec.EphemeralContainers[i].Name
		if _, ok := d.seen.Container(name); !ok {
			d.plan.Start = append(d.plan.Start, Start{Name: name, Kind: podspec.Ephemeral, Index: i})
		}
	}
	if d.initContainers(id) && !d.plan.KillPod {
		d.regularContainers()
	}
}

func (d *decision) kill(c observed.Container, reason KillReason, message string) {
	d.plan.Kill = append(d.plan.Kill, Kill{Container: c, Reason: reason, Message: message})
}

// killPod ends the pod: nothing starts beside it.
func (d *decision) killPod() {
	d.plan.KillPod = true
	d.plan.Start = nil
}

// regularContainers decides about the app containers of an initialised pod.
func (d *decision) regularContainers() {
	keep, start := 0, 0
	for i := range d.pod.Spec.Containers {
		c := &d.pod.Spec.Containers[i]
		last, ok := d.seen.Container(c.Name)
		restart := false
		if !ok || last.State != observed.Running {
			restart = podspec.ShouldStart(d.pod, c, last, ok)
			if ok && restart && last.State == observed.Unknown {
				d.kill(last, KillUnknown, `Container is in "unknown" state, try killing it before restart`)
			}
		} else {
			reason, message := d.unfit(c, last, "Container")
			if reason == "" {
				keep++
				continue
			}
			// A rule on exit codes is judged when the exit is seen, not now.
			restart = reason == KillDefinitionChanged || reason == KillResize ||
				podspec.PolicyOf(d.pod, c) != corev1.RestartPolicyNever
			if restart && reason != KillResize {
				message += ", will be restarted"
			}
			d.kill(last, reason, message)
		}
		if restart {
			start++
			d.plan.Start = append(d.plan.Start, Start{Name: c.Name, Kind: podspec.Regular, Index: i})
		}
	}
	if keep == 0 && start == 0 {
		d.killPod()
	}
}

// unfit says why a running container has to be stopped; an empty reason keeps it.
func (d *decision) unfit(c *corev1.Container, last observed.Container, word string) (KillReason, string) {
	switch {
	case last.Hash != "" && last.Hash != Hash(c):
		return KillDefinitionChanged, fmt.Sprintf("%s %s definition changed", word, c.Name)
	case c.LivenessProbe != nil && d.in.Liveness != nil && d.in.Liveness(last.ID) == ProbeFailure:
		return KillLivenessFailed, fmt.Sprintf("%s %s failed liveness probe", word, c.Name)
	case c.StartupProbe != nil && d.in.Startup != nil && d.in.Startup(last.ID) == ProbeFailure:
		return KillStartupFailed, fmt.Sprintf("%s %s failed startup probe", word, c.Name)
	case d.resizeRestarts(c):
		return KillResize, resizeMessage(c)
	}
	return "", ""
}

package podruntime

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// initContainers decides about init containers and sidecars, and reports whether
// the regular containers may run.
//
// It walks from the last one to the first. The first that the runtime knows in
// this sandbox decides what comes next: those before it must have done their
// work, even if their records are gone (kubernetes issue 90271). Of those only
// the sidecars still matter.
func (d *decision) initContainers(id observed.SandboxID) bool {
	init := d.pod.Spec.InitContainers
	if len(init) == 0 {
		return true
	}
	initialised := d.appHasRun(id)
	later := initialised // a later container was seen, so this one is done
	var start []int
	for i, c := range slices.Backward(init) {
		seen, ok := d.active(c.Name, id)
		sidecar := podspec.IsSidecar(&c)
		switch {
		case !ok:
			if later && sidecar {
				start = append(start, i)
			}
			continue
		case later && !sidecar:
			continue
		case sidecar:
			next, restart := d.sidecar(&c, seen)
			initialised = initialised || next && i == len(init)-1
			if next && !later && i < len(init)-1 {
				start = append(start, i+1)
			}
			if restart {
				start = append(start, i)
			}
		default:
			next, restart := d.initContainer(&c, seen)
			if d.plan.KillPod {
				d.killPod()
				return false
			}
			initialised = initialised || next && i == len(init)-1
			if next && i < len(init)-1 {
				start = append(start, i+1)
			}
			if restart {
				start = append(start, i)
			}
		}
		later = true
	}
	if !later {
		start = append(start, 0)
	}
	for _, i := range slices.Backward(start) {
		d.plan.Start = append(d.plan.Start, Start{Name: init[i].Name, Kind: podspec.Init, Index: i})
	}
	return initialised
}

// appHasRun reports whether any regular container exists in the sandbox. If so
// the pod is initialised, whatever became of the init containers' records.
func (d *decision) appHasRun(id observed.SandboxID) bool {
	return slices.ContainsFunc(d.pod.Spec.Containers, func(c corev1.Container) bool {
		_, ok := d.active(c.Name, id)
		return ok
	})
}

// active returns the newest instance of the container in the given sandbox.
func (d *decision) active(name string, id observed.SandboxID) (observed.Container, bool) {
	for _, c := range d.seen.Containers {
		if c.Name == name && c.Sandbox == id {
			return c, true
		}
	}
	return observed.Container{}, false
}

// initContainer judges the init container that decides. next: it is done, what
// comes after it may start. It sets KillPod when the pod has failed.
func (d *decision) initContainer(c *corev1.Container, seen observed.Container) (next, restart bool) {
	switch seen.State {
	case observed.Created:
		return false, true
	case observed.Running:
		if d.resizeRestarts(c) {
			d.kill(seen, KillResize, resizeMessage(c))
			return false, true
		}
		return false, false
	case observed.Exited:
		if seen.ExitCode == 0 && seen.Reason != "OOMKilled" {
			return true, false
		}
		code := seen.ExitCode
		if code == 0 {
			code = 137 // a kill by the kernel is a failure under any number
		}
		if podspec.MayRestart(d.pod, c, code) {
			return false, true
		}
	default:
		if podspec.PolicyOf(d.pod, c) != corev1.RestartPolicyNever {
			d.kill(seen, KillUnknown, `Init container is in "unknown" state, try killing it before restart`)
			return false, true
		}
	}
	d.plan.KillPod = true
	return false, false
}

// sidecar judges one sidecar. next: it has started, what comes after it may
// start. A sidecar restarts whatever its exit code and the pod's policy are.
func (d *decision) sidecar(c *corev1.Container, seen observed.Container) (next, restart bool) {
	switch seen.State {
	case observed.Created, observed.Exited:
		return false, true
	case observed.Unknown:
		d.kill(seen, KillUnknown, `Init container is in "unknown" state, try killing it before restart`)
		return false, true
	}
	if c.StartupProbe != nil && d.in.Startup != nil {
		switch d.in.Startup(seen.ID) {
		case ProbeFailure:
			d.kill(seen, KillStartupFailed, "Init container "+c.Name+" failed startup probe")
			return false, true
		case ProbeUnknown:
			return false, false
		}
	}
	if reason, message := d.unfit(c, seen, "Init container"); reason != "" {
		d.kill(seen, reason, message)
		return true, true
	}
	return true, false
}

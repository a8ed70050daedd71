package podruntime

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Reset is one container instance to end without grace and to remove, since all
// containers of the pod start again in the same sandbox (KEP-5532). Its log files
// stay, and with them its restart count.
type Reset struct {
	Container observed.Container
	// Source is true for the container whose exit asked for the restart.
	Source bool
}

// resets plans the restart of all containers, and reports whether there is one.
// Either an exit has just asked for it, or the pod's reported status says that it
// is under way. It is over when the runtime holds no instance any more.
//
// The sources go last, and an init container after a regular one. So an agent that
// ends half-way finds the reason again, and no init container's result is missed
// while something that needs it is there.
func (d *decision) resets(id observed.SandboxID) bool {
	if d.pod.DeletionTimestamp != nil {
		return false
	}
	begun := restartingAll(d.pod)
	var sources []string
	for c, kind := range podspec.All(d.pod) {
		if kind == podspec.Ephemeral || c.RestartPolicy == nil {
			continue
		}
		last, ok := d.active(c.Name, id)
		if ok && held(last) && last.State == observed.Exited && podspec.RestartsAll(c, last.ExitCode) {
			sources = append(sources, c.Name)
		}
	}
	if !begun && len(sources) == 0 {
		return false
	}
	order := make(map[string]int)
	for c, kind := range podspec.All(d.pod) {
		if kind == podspec.Ephemeral {
			continue // it is somebody's look at the pod, and never starts again
		}
		order[c.Name] = 0
		if kind == podspec.Init {
			order[c.Name] = 1
		}
		if slices.Contains(sources, c.Name) {
			order[c.Name] += 2
		}
	}
	for _, c := range slices.Backward(d.seen.Containers) { // oldest first
		if place, ok := order[c.Name]; ok && held(c) {
			d.plan.Reset = append(d.plan.Reset, Reset{Container: c, Source: place >= 2})
		}
	}
	slices.SortStableFunc(d.plan.Reset, func(a, b Reset) int {
		return order[a.Container.Name] - order[b.Container.Name]
	})
	return len(d.plan.Reset) > 0
}

// held reports whether the runtime itself holds the instance. One that is only
// remembered from a reported status has no hash, and nothing to remove.
func held(c observed.Container) bool { return c.Hash != "" }

func restartingAll(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.AllContainersRestarting && c.Status == corev1.ConditionTrue
	})
}

// reset carries out the resets in their order.
func (r *Runtime) reset(ctx context.Context, pod *corev1.Pod, seen observed.Pod, resets []Reset) error {
	var none int64
	for _, reset := range resets {
		c := reset.Container
		if reset.Source {
			// Its record goes, but not its crash-loop back-off.
			r.backoffs.removed(observed.UID(pod.UID), c.Name, c.FinishedAt)
		}
		if c.State == observed.Running || c.State == observed.Unknown {
			if err := r.stopContainer(ctx, pod, c, stop{seen: seen, message: "killing", grace: &none}); err != nil {
				return err
			}
		}
		if err := r.cfg.CRI.RemoveContainer(ctx, string(c.ID)); !gone(err) {
			return criclient.Wrap("remove container "+c.Name+" ("+string(c.ID)+")", err)
		}
	}
	return nil
}

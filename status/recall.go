package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Recall adds to seen the containers that were reported before and that the
// runtime has no record of any more, as exited. A decision about what to start
// has to be made on the result: otherwise a container that has ended for good
// runs a second time once its record is removed (kubernetes issue 51142). seen
// must be a real observation of the pod, not the lack of one.
//
// What was removed so that all containers start again is not recalled.
func Recall(pod *corev1.Pod, seen observed.Pod, last corev1.PodStatus) observed.Pod {
	out := seen
	if isTrue(last.Conditions, corev1.AllContainersRestarting) {
		return out
	}
	for c, kind := range podspec.All(pod) {
		if _, known := seen.Container(c.Name); known {
			continue
		}
		cs := find(*statusesOf(&last, kind), c.Name)
		if cs == nil {
			continue
		}
		end := ended(cs)
		if cs.State.Running != nil {
			end = lost(cs, messageLost).Terminated
		}
		if end == nil || end.Reason == ReasonRestartingAll {
			continue
		}
		if len(out.Containers) == len(seen.Containers) {
			// seen is shared, so its list is not appended to.
			out.Containers = slices.Clone(seen.Containers)
		}
		out.Containers = append(out.Containers, observed.Container{
			ID:           bareID(end.ContainerID),
			Sandbox:      sandboxAt(seen, end),
			Name:         c.Name,
			RestartCount: int(cs.RestartCount),
			State:        observed.Exited,
			Image:        cs.Image,
			ImageRef:     cs.ImageID,
			CreatedAt:    end.StartedAt.Time,
			StartedAt:    end.StartedAt.Time,
			FinishedAt:   end.FinishedAt.Time,
			ExitCode:     end.ExitCode,
			Reason:       end.Reason,
			Message:      end.Message,
		})
	}
	if len(out.Containers) > len(seen.Containers) {
		out.Sandboxes = slices.Clone(seen.Sandboxes)
		out.Sort()
	}
	return out
}

// sandboxAt returns the sandbox in which a container with this end has run: the
// newest that is not younger than the container. Reported times are whole
// seconds.
func sandboxAt(seen observed.Pod, end *corev1.ContainerStateTerminated) observed.SandboxID {
	for _, s := range seen.Sandboxes {
		if !end.StartedAt.Time.Before(s.CreatedAt.Truncate(time.Second)) {
			return s.ID
		}
	}
	return ""
}

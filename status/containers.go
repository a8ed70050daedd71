package status

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Reasons of container states that come from this room, in the kubelet's words.
const (
	ReasonCreating     = "ContainerCreating"
	ReasonInitializing = "PodInitializing"
	// ReasonLost is the reason of an exit that nobody saw. Its exit code is 137,
	// as if the container had been killed.
	ReasonLost    = "ContainerStatusUnknown"
	exitCodeLost  = 137
	messageLost   = "The container could not be located when the pod was deleted.  The container used to be Running"
	messageUnsure = "The container could not be located when the pod was terminated"
	messageInit   = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

// containersOf returns a status that has nothing but the container statuses.
func containersOf(in *Input) corev1.PodStatus {
	var st corev1.PodStatus
	for c, kind := range podspec.All(in.Pod) {
		list := statusesOf(&st, kind)
		*list = append(*list, containerStatus(in, c, kind))
	}
	return st
}

// statusesOf returns the list of st that containers of kind are reported in.
func statusesOf(st *corev1.PodStatus, kind podspec.Kind) *[]corev1.ContainerStatus {
	switch kind {
	case podspec.Init:
		return &st.InitContainerStatuses
	case podspec.Ephemeral:
		return &st.EphemeralContainerStatuses
	default:
		return &st.ContainerStatuses
	}
}

// find returns the status of the named container, nil when there is none. The
// lists are short.
func find(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func containerStatus(in *Input, c *corev1.Container, kind podspec.Kind) corev1.ContainerStatus {
	old := find(*statusesOf(&in.Last, kind), c.Name)
	var st corev1.ContainerStatus
	var details observed.Details
	instances := in.Seen.Instances(c.Name)
	switch {
	case len(instances) > 0:
		st = fromRuntime(in, instances, old)
		details = instances[0].Details
		if st.Image == "" {
			st.Image = c.Image
		}
	case wasReset(in, kind, old):
		st = afterReset(c, old)
	default:
		st = fromMemory(in, c, old)
	}
	switch failure, failed := in.Failures[c.Name]; {
	case !mayStart(in, c, kind, &st):
	case kind == podspec.Init && !podspec.IsSidecar(c) && len(instances) == 0 && st.State.Waiting != nil && regularSeen(in):
		st.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: messageInit}}
	case failed:
		if st.State.Terminated != nil {
			st.LastTerminationState = st.State
		}
		st.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: failure.Reason, Message: failure.Message}}
	}
	setProbeResults(in, c, kind, &st, old)
	setDetails(in, c, kind, &st, old, details)
	return st
}

// fromMemory is the status of a container that the runtime knows nothing about:
// one that has not been created yet, or one whose record was removed.
func fromMemory(in *Input, c *corev1.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old.DeepCopy()
	}
	reason := ReasonCreating
	if len(in.Pod.Spec.InitContainers) > 0 {
		reason = ReasonInitializing
	}
	st := corev1.ContainerStatus{
		Name:  c.Name,
		Image: c.Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
	}
	if old == nil {
		return st
	}
	st.RestartCount = old.RestartCount
	st.LastTerminationState = *old.LastTerminationState.DeepCopy()
	if old.State.Running != nil {
		// It ran when it was last reported. The end of that run counts, even
		// where an older one is remembered: the restart policy asks for it.
		st.LastTerminationState = lost(old, messageLost)
		if in.Pod.DeletionTimestamp == nil && !in.Terminal {
			st.RestartCount++
		}
	}
	return st
}

// lost is the end of a container of which only the old status tells.
func lost(old *corev1.ContainerStatus, message string) corev1.ContainerState {
	t := &corev1.ContainerStateTerminated{
		ExitCode:    exitCodeLost,
		Reason:      ReasonLost,
		Message:     message,
		ContainerID: old.ContainerID,
	}
	if old.State.Running != nil {
		t.StartedAt = old.State.Running.StartedAt
	}
	return corev1.ContainerState{Terminated: t}
}

// fromRuntime is the status of a container with at least one instance, newest
// first.
func fromRuntime(in *Input, instances []observed.Container, old *corev1.ContainerStatus) corev1.ContainerStatus {
	c := instances[0]
	st := corev1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		ImageID:      c.ImageRef, // the API means the digested reference
		ContainerID:  containerID(in.RuntimeName, c.ID),
		RestartCount: int32(c.RestartCount),
		State:        state(in, c),
	}
	if old != nil {
		same := old.ContainerID == st.ContainerID
		if old.State.Terminated != nil && !same && st.RestartCount <= old.RestartCount {
			// A new instance after a known end is a restart, whatever its
			// annotation was counted from.
			st.RestartCount = old.RestartCount + 1
		}
		st.RestartCount = max(st.RestartCount, old.RestartCount)
		st.LastTerminationState = lastEnd(old, st.ContainerID)
		if c.State == observed.Unknown && same {
			st.State = whileUnknown(old)
		}
	}
	if len(instances) > 1 && instances[1].State == observed.Exited {
		st.LastTerminationState = state(in, instances[1])
	}
	return st
}

func state(in *Input, c observed.Container) corev1.ContainerState {
	switch c.State {
	case observed.Running:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: apiTime(c.StartedAt)}}
	case observed.Exited:
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode:    c.ExitCode,
			Reason:      exitReason(c),
			Message:     c.Message,
			StartedAt:   apiTime(c.StartedAt),
			FinishedAt:  apiTime(c.FinishedAt),
			ContainerID: containerID(in.RuntimeName, c.ID),
		}}
	default:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	}
}

// exitReason fills in for runtimes that give no reason of their own.
func exitReason(c observed.Container) string {
	switch {
	case c.Reason != "":
		return c.Reason
	case c.ExitCode == 0:
		return "Completed"
	default:
		return "Error"
	}
}

// whileUnknown is the state of an instance that the runtime cannot tell about.
// The restart count is left alone: nothing has been restarted yet.
func whileUnknown(old *corev1.ContainerStatus) corev1.ContainerState {
	switch {
	case old.State.Running != nil:
		return lost(old, messageUnsure)
	case old.State.Terminated != nil:
		return *old.State.DeepCopy()
	default:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	}
}

// lastEnd is the newest end that old knows of an instance other than current.
func lastEnd(old *corev1.ContainerStatus, current string) corev1.ContainerState {
	if old.State.Terminated != nil && old.ContainerID != current {
		return *old.State.DeepCopy()
	}
	if t := old.LastTerminationState.Terminated; t != nil && t.ContainerID != current {
		return *old.LastTerminationState.DeepCopy()
	}
	return corev1.ContainerState{}
}

// mayStart reports whether the next sync would start the container, judged by
// its status: that knows ends which the runtime has forgotten.
func mayStart(in *Input, c *corev1.Container, kind podspec.Kind, st *corev1.ContainerStatus) bool {
	if in.Terminal || in.Pod.DeletionTimestamp != nil || st.State.Running != nil || restartingAll(in) {
		return false
	}
	end := ended(st)
	switch {
	case end == nil:
		return true
	case kind == podspec.Ephemeral:
		return false
	case kind == podspec.Init && !podspec.IsSidecar(c) && st.State.Terminated != nil && end.ExitCode == 0:
		return false
	default:
		return mayRunAgain(in.Pod, c, end)
	}
}

// ended returns the newest end of the container, nil while it runs or when it
// never ran.
func ended(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case st.State.Terminated != nil:
		return st.State.Terminated
	case st.State.Running != nil:
		return nil
	default:
		return st.LastTerminationState.Terminated
	}
}

// regularSeen reports whether the runtime has an instance of any regular
// container, which means that the init containers are over.
func regularSeen(in *Input) bool {
	for i := range in.Pod.Spec.Containers {
		if _, ok := in.Seen.Container(in.Pod.Spec.Containers[i].Name); ok {
			return true
		}
	}
	return false
}

// setProbeResults fills ready and started. A result that is not known (the agent
// has just started, or the probe has not run) keeps what was reported for this
// very instance, so that a restart of the agent never flips a pod's readiness.
func setProbeResults(in *Input, c *corev1.Container, kind podspec.Kind, st, old *corev1.ContainerStatus) {
	if kind == podspec.Ephemeral {
		st.Ready, st.Started = false, nil
		return
	}
	same := old != nil && old.ContainerID == st.ContainerID
	id := bareID(st.ContainerID)
	started := st.State.Running != nil
	if started && c.StartupProbe != nil && in.Started != nil {
		known, ok := in.Started(c.Name, id)
		before := same && old.Started != nil && *old.Started
		started = known && ok || !known && before
	}
	st.Started = &started
	if kind == podspec.Init && !podspec.IsSidecar(c) {
		st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		return
	}
	st.Ready = started
	if started && c.ReadinessProbe != nil && in.Ready != nil {
		known, ok := in.Ready(c.Name, id)
		before := same && old.Ready && isTrue(in.Last.Conditions, corev1.PodReady)
		st.Ready = known && ok || !known && before
	}
}

func containerID(runtime string, id observed.ContainerID) string {
	return runtime + "://" + string(id)
}

// bareID undoes [containerID]. Something without a scheme has no usable ID.
func bareID(id string) observed.ContainerID {
	_, bare, ok := strings.Cut(id, "://")
	if !ok {
		return ""
	}
	return observed.ContainerID(bare)
}

func apiTime(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t)
}

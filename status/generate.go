package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Input is all that a status is made from. Pod, Seen and Now are required.
type Input struct {
	// Pod is the desired pod, its resources those that are allocated to it: a
	// resize that waits is not in it.
	Pod  *corev1.Pod
	Seen observed.Pod
	// Last is the status reported before: what [Store.Get] has, else the one in
	// the pod. Zero for a pod that was never reported.
	Last corev1.PodStatus
	// Failures has why a container could not be started at the last try, by
	// container name.
	Failures map[string]Failure
	// Terminal is true once the pod is being stopped: nothing starts any more,
	// so the exit codes alone decide between Succeeded and Failed.
	Terminal bool
	// Verdict is set when the node ends the pod for a reason of its own, such as
	// a deadline or an eviction. The phase becomes Failed with these words.
	Verdict *Failure
	Now     time.Time
	// RuntimeName is the scheme of container IDs, for example containerd.
	RuntimeName string
	// HostIPs are the node's addresses, the one of its primary family first.
	HostIPs []string
	// Ready and Started are the probe results of one container instance; known
	// is false as long as its probe has not said anything. Nil: no probes run.
	Ready, Started func(container string, id observed.ContainerID) (known, ok bool)
	// Actuated are the resources that were last put in force, by container name:
	// asked of the runtime and accepted. They stand in where the runtime tells
	// nothing. ActuatedPod is the same for pod-level resources.
	Actuated    map[string]corev1.ResourceRequirements
	ActuatedPod *corev1.ResourceRequirements
	// Resize has the conditions PodResizePending and PodResizeInProgress that hold
	// (KEP-1287), with their own probe times and generations. Transition times are
	// filled in here.
	Resize []corev1.PodCondition
}

// Failure is a reason in CamelCase and a message for people.
type Failure struct {
	Reason  string
	Message string
}

// Decide returns the phase the pod has come to. When it is Failed or Succeeded
// the pod has to be stopped, even if [Generate] still reports another phase
// because something runs.
func Decide(in Input) corev1.PodPhase {
	st := containersOf(&in)
	return decide(&in, &st)
}

// Generate returns the status to report now. It never reports a terminal phase
// while a container may run: controllers take such a pod for gone
// (kubernetes issue 88613). Until then phase, reason and message stay as they
// were.
func Generate(in Input) corev1.PodStatus {
	st := containersOf(&in)
	st.Phase = decide(&in, &st)
	held := IsTerminal(st.Phase) && !IsTerminal(in.Last.Phase) && !IsTerminal(in.Pod.Status.Phase) && in.Seen.HasRunning()
	if held {
		st.Phase = heldPhase(&in)
	}
	st.Reason, st.Message = words(&in, st.Phase)
	st.QOSClass = in.Last.QOSClass
	if st.QOSClass == "" {
		st.QOSClass = podspec.QoS(in.Pod)
	}
	st.ObservedGeneration = in.Pod.Generation
	keepOfOthers(&st, &in.Pod.Status)
	setPodResources(&in, &st)
	st.StartTime = startTime(&in)
	setIPs(&in, &st)
	st.Conditions = conditions(&in, &st)
	return Normalize(in.Pod, st)
}

// IsTerminal reports whether the phase is final: a pod UID that has reached it
// never leaves it.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodFailed || phase == corev1.PodSucceeded
}

func decide(in *Input, st *corev1.PodStatus) corev1.PodPhase {
	switch {
	case IsTerminal(in.Pod.Status.Phase):
		return in.Pod.Status.Phase
	case IsTerminal(in.Last.Phase):
		return in.Last.Phase
	case in.Verdict != nil:
		return corev1.PodFailed
	default:
		return phase(in, st)
	}
}

func heldPhase(in *Input) corev1.PodPhase {
	if in.Last.Phase != "" {
		return in.Last.Phase
	}
	return corev1.PodRunning
}

func words(in *Input, phase corev1.PodPhase) (reason, message string) {
	switch {
	case phase == in.Last.Phase:
		return in.Last.Reason, in.Last.Message
	case phase == in.Pod.Status.Phase:
		return in.Pod.Status.Reason, in.Pod.Status.Message
	case in.Verdict != nil && phase == corev1.PodFailed:
		return in.Verdict.Reason, in.Verdict.Message
	default:
		return "", ""
	}
}

// startTime never changes. Where nobody remembers it, because no result has been
// saved and there is no API server, a pod that runs has begun when its sandbox did.
func startTime(in *Input) *metav1.Time {
	for _, known := range []*metav1.Time{in.Last.StartTime, in.Pod.Status.StartTime} {
		if known != nil {
			return known.DeepCopy()
		}
	}
	start := metav1.NewTime(in.Now)
	if s, ok := readySandbox(in.Seen); ok && !s.CreatedAt.IsZero() && s.CreatedAt.Before(in.Now) {
		start = metav1.NewTime(s.CreatedAt)
	}
	return &start
}

// keepOfOthers takes over what other components write into a pod's status.
func keepOfOthers(st, api *corev1.PodStatus) {
	st.ResourceClaimStatuses = api.ResourceClaimStatuses
	st.ExtendedResourceClaimStatus = api.ExtendedResourceClaimStatus
	st.NodeAllocatableResourceClaimStatuses = api.NodeAllocatableResourceClaimStatuses
}

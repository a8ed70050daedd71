package admission

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// Attributes is what a decision is made from.
type Attributes struct {
	Pod *corev1.Pod
	// Others are the pods that were admitted before and hold something of the
	// node: a pod that is being stopped still does, one whose containers have
	// ended does not. A pod that is wanted but not admitted yet holds nothing.
	// Pod itself is passed over if it is among them.
	Others []*corev1.Pod
}

// Decision is yes, or no with a reason in CamelCase and a message for people.
type Decision struct {
	OK      bool
	Reason  string
	Message string
}

// Admitter has one objection that it may raise.
type Admitter interface {
	Admit(Attributes) Decision
}

// Func is a function that is an [Admitter].
type Func func(Attributes) Decision

// Admit calls f.
func (f Func) Admit(a Attributes) Decision { return f(a) }

// Chain asks its admitters in order. An empty one admits everything.
type Chain []Admitter

// Admit returns the first no. The admitters after it are not asked.
func (c Chain) Admit(a Attributes) Decision {
	for _, admitter := range c {
		if d := admitter.Admit(a); !d.OK {
			return d
		}
	}
	return yes()
}

func yes() Decision { return Decision{OK: true} }

func no(reason, message string) Decision { return Decision{Reason: reason, Message: message} }

// Rejected is the whole status of a pod that was refused: nothing of it has run
// or will.
func Rejected(pod *corev1.Pod, d Decision) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:              corev1.PodFailed,
		Reason:             d.Reason,
		Message:            rejected + d.Message,
		QOSClass:           podspec.QoS(pod),
		ObservedGeneration: pod.Generation,
	}
}

// rejected is how the message of a pod that was refused begins.
const rejected = "Pod was rejected: "

// IsRejected reports whether st is a status that [Rejected] has made.
func IsRejected(st corev1.PodStatus) bool {
	return st.Phase == corev1.PodFailed && len(st.ContainerStatuses) == 0 && strings.HasPrefix(st.Message, rejected)
}

// Sort puts pods into the order in which they have to be admitted so that the
// same pod wins after every restart of the agent: those that ran before, then the
// older ones, then by name. ran may be nil.
func Sort(pods []*corev1.Pod, ran func(*corev1.Pod) bool) {
	first := make(map[*corev1.Pod]bool, len(pods))
	if ran != nil {
		for _, pod := range pods {
			first[pod] = ran(pod)
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		switch {
		case first[a] && !first[b]:
			return -1
		case first[b] && !first[a]:
			return 1
		}
		return cmp.Or(age(a).Compare(age(b)), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// age is when the API server made the pod. A static pod has no such time and is
// as old as can be: it is meant to be there from the start.
func age(pod *corev1.Pod) time.Time { return pod.CreationTimestamp.Time }

// others yields the pods that are in the way of a.Pod, which is not one of them.
func (a Attributes) others(yield func(*corev1.Pod) bool) {
	for _, pod := range a.Others {
		if pod.UID != a.Pod.UID && !yield(pod) {
			return
		}
	}
}

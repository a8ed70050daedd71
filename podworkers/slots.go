package podworkers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// slots holds, per name, the pod that has the name and behind it those that wait
// for it, in the order in which they came.
type slots map[string][]observed.UID

// join queues uid for name and reports whether it has the name now.
func (s slots) join(name string, uid observed.UID) bool {
	s[name] = append(s[name], uid)
	return len(s[name]) == 1
}

// leave takes uid out of the queue for name. If that passes the name on, next is
// the pod that has it now.
func (s slots) leave(name string, uid observed.UID) (next observed.UID, passed bool) {
	queue := s[name]
	i := slices.Index(queue, uid)
	if i < 0 {
		return "", false
	}
	queue = slices.Delete(queue, i, i+1)
	if len(queue) == 0 {
		delete(s, name)
		return "", false
	}
	s[name] = queue
	return queue[0], i == 0
}

// staticName gives static pods, those from a file or from HTTP, a slot by full
// name. Their UID follows their content, so an edited manifest is a new pod of
// the same name, and ports and host paths are the old one's until it has ended.
func staticName(pod *corev1.Pod) (string, bool) {
	return pod.Name + "_" + pod.Namespace, podspec.IsStatic(pod)
}

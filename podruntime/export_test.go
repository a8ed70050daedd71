package podruntime

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// LinuxResources is what a container's requests and limits become.
func LinuxResources(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, nodeMemory int64) *runtimeapi.LinuxContainerResources {
	rules, err := newRules(ResourcePolicy{HugePageSizes: []int64{}}, nodeMemory)
	if err != nil {
		panic(err)
	}
	return rules.linuxResources(pod, c, kind)
}

// Delay is the crash-loop back-off of one container.
type Delay = delay

// Next is one start attempt.
func (d Delay) Next(spec uint64, finished, now time.Time, initial, limit time.Duration) (Delay, bool) {
	return d.next(spec, finished, now, initial, limit)
}

// Wait is what the next start has to wait after the exit.
func (d Delay) Wait() time.Duration { return d.delay }

// Until is the end of the wait that was decided last.
func (d Delay) Until() time.Time { return d.until }

// Mapped returns the table's keys for pods and for containers.
func Mapped() (pod, container []string) {
	for k := range podFields {
		pod = append(pod, k)
	}
	for k := range containerFields {
		container = append(container, k)
	}
	return pod, container
}

// Note is what the table says of a field: empty for one that is honoured, ok false
// for one that it does not know. inside: ask about its parts.
func Note(key string) (note string, inside, ok bool) {
	v, ok := lookup(key)
	return v.note, v.inside, ok
}

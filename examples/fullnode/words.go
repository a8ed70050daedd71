package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// event is a Kubernetes Event about a pod, one of its containers, or the node itself. Without an
// API server it goes to the log: warnings for everybody, once a minute; the rest for
// who asks.
func (b *builder) event(pod *corev1.Pod, container, eventType, reason, message string) {
	log := b.logFor("event")
	if eventType != corev1.EventTypeWarning {
		log = log.V(1)
	} else if b.echoes.is(echo{podUID(pod), container, reason, message}, time.Now()) {
		return
	}
	facts := []any{"reason", reason}
	if pod == nil { // about the node
		facts = append(facts, "node", b.o.nodeName)
	} else {
		facts = append(facts, "pod", podName(pod), "podUID", podUID(pod))
	}
	if container != "" {
		facts = append(facts, "container", container)
	}
	log.Info(message, facts...)
}

func podUID(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	return string(pod.UID)
}

func outcome(err error) string {
	if err != nil {
		return ": " + err.Error()
	}
	return ""
}

// describe is a status in a few words.
func describe(st corev1.PodStatus) string {
	ready := corev1.ConditionUnknown
	for _, c := range st.Conditions {
		if c.Type == corev1.PodReady {
			ready = c.Status
		}
	}
	words := []string{string(st.Phase), "Ready=" + string(ready)}
	for _, all := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, c := range all {
			words = append(words, c.Name+"="+describeState(c.State))
		}
	}
	return strings.Join(words, " ")
}

func describeState(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running"
	case s.Terminated != nil:
		return fmt.Sprintf("Terminated(%d)", s.Terminated.ExitCode)
	case s.Waiting != nil && s.Waiting.Reason != "":
		return s.Waiting.Reason
	default:
		return "Waiting"
	}
}

// maxParallelPulls is imagepull's number for the configuration's two fields.
func maxParallelPulls(o options) int {
	switch n := ptr.Deref(o.config.MaxParallelImagePulls, 0); {
	case n > 0:
		return int(n)
	case *o.config.SerializeImagePulls:
		return 1
	default:
		return -1
	}
}

// pullQPS is imagepull's number: the configuration says 0 for no limit.
func pullQPS(o options) float64 {
	if *o.config.RegistryPullQPS == 0 {
		return -1
	}
	return float64(*o.config.RegistryPullQPS)
}

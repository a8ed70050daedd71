package podruntime_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

// A plan is a value: compute it, print it, compare it.
func ExampleComputePodActions() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy:  corev1.RestartPolicyAlways,
		InitContainers: []corev1.Container{{Name: "setup", Image: "tools:1"}},
		Containers:     []corev1.Container{{Name: "app", Image: "web:1"}},
	}}
	plan := func(seen observed.Pod) {
		fmt.Println(podruntime.ComputePodActions(pod, seen, podruntime.Inputs{}))
	}

	plan(observed.Pod{})

	sandbox := []observed.Sandbox{{ID: "s0", Ready: true, IPs: []string{"10.88.0.2"}}}
	setup := observed.Container{Name: "setup", Sandbox: "s0", State: observed.Exited}
	plan(observed.Pod{Sandboxes: sandbox, Containers: []observed.Container{setup}})

	app := observed.Container{Name: "app", Sandbox: "s0", State: observed.Running}
	plan(observed.Pod{Sandboxes: sandbox, Containers: []observed.Container{app, setup}})

	app.State, app.ExitCode = observed.Exited, 1
	plan(observed.Pod{Sandboxes: sandbox, Containers: []observed.Container{app, setup}})
	// Output:
	// create sandbox, start [setup]
	// start [app]
	// nothing to do
	// start [app]
}

// A field that this version would have to ignore is named instead.
func ExampleUnmapped() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", Image: "web:1", LivenessProbe: &corev1.Probe{},
	}}}}
	fmt.Println(podruntime.Unmapped(pod).ToAggregate())
	// Output:
	// spec.containers[0].livenessProbe: Forbidden: needs a prober, which this version does not have
}

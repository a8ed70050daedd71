package pleg_test

import (
	"context"
	"fmt"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// oneContainer is a runtime with one pod, whose container ends when its channel
// is closed. A criclient.Observer is a Runtime for any CRI runtime.
type oneContainer struct{ ended chan struct{} }

func (r oneContainer) InspectPod(context.Context, observed.Pod) (observed.Pod, error) {
	c := observed.Container{ID: "c1", Name: "app", State: observed.Running}
	select {
	case <-r.ended:
		c.State, c.ExitCode = observed.Exited, 3
	default:
	}
	return observed.Pod{UID: "uid-1", Namespace: "default", Name: "web", Containers: []observed.Container{c}}, nil
}

func (r oneContainer) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	pod, err := r.InspectPod(ctx, observed.Pod{})
	if !pod.HasRunning() {
		return nil, err
	}
	return []observed.Pod{pod}, err
}

func Example() {
	rt := oneContainer{ended: make(chan struct{})}
	g, err := pleg.New(pleg.Config{Runtime: rt})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = g.Run(ctx) }()

	for e := range g.Watch() { // until Run has returned
		pod, _ := g.Cache().Get(e.ID) // has what the event is about
		c, _ := pod.Container("app")
		fmt.Printf("%s of %s/%s: %v, exit code %d\n", e.Type, pod.Namespace, pod.Name, c.State, c.ExitCode)
		switch e.Type {
		case pleg.ContainerStarted:
			close(rt.ended)
		case pleg.ContainerDied:
			cancel()
		}
	}
	// Output:
	// ContainerStarted of default/web: running, exit code 0
	// ContainerDied of default/web: exited, exit code 3
}

// A worker that has changed a pod waits for an observation that has seen it.
func ExampleGenerator_Wait() {
	rt := oneContainer{ended: make(chan struct{})}
	g, err := pleg.New(pleg.Config{Runtime: rt})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()

	close(rt.ended) // as a stop call would
	seq := g.MarkDirty("uid-1")
	pod, err := g.Wait(ctx, "uid-1", seq)
	c, _ := pod.Container("app")
	fmt.Println(c.State, err)

	cancel()
	fmt.Println(<-done)
	// Output:
	// exited <nil>
	// <nil>
}

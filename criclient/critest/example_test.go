package critest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

var (
	examplePod = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"},
	}
	exampleContainer = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		Image:    &runtimeapi.ImageSpec{Image: "nginx"},
	}
)

// start runs the example pod and returns the container's ID.
func start(rt *critest.Runtime) string {
	ctx := context.Background()
	sandbox, err := rt.RunPodSandbox(ctx, examplePod, "")
	if err != nil {
		panic(err)
	}
	id, err := rt.CreateContainer(ctx, sandbox, exampleContainer, examplePod)
	if err != nil {
		panic(err)
	}
	if err := rt.StartContainer(ctx, id); err != nil {
		panic(err)
	}
	return id
}

func show(rt *critest.Runtime, id string) {
	resp, err := rt.ContainerStatus(context.Background(), id, false)
	if err != nil {
		panic(err)
	}
	st := resp.GetStatus()
	fmt.Printf("%s %s %d %q\n", st.GetMetadata().GetName(), st.GetState(), st.GetExitCode(), st.GetReason())
}

// The smallest use: one image, one pod, in process.
func Example() {
	rt := critest.New(critest.Config{})
	rt.AddImage("nginx", critest.Behavior{})

	id := start(rt)
	show(rt, id)
	if err := rt.StopContainer(context.Background(), id, 30); err != nil {
		panic(err)
	}
	show(rt, id)
	// Output:
	// app CONTAINER_RUNNING 0 ""
	// app CONTAINER_EXITED 143 "Error"
}

// What a container does is said per image. This one prints, and crashes after
// ten milliseconds; in a bubble of testing/synctest ten hours take no longer.
func ExampleBehavior() {
	rt := critest.New(critest.Config{})
	rt.AddImage("nginx", critest.Behavior{
		Print: []critest.Line{{Text: "starting"}},
		Exits: true, After: 10 * time.Millisecond, ExitCode: 3,
	})
	ctx, cancel := context.WithCancel(context.Background())
	events, open := make(chan *runtimeapi.ContainerEventResponse), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = rt.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(open) })
	})
	defer wg.Wait()
	defer cancel()
	<-open

	id := start(rt)
	for ev := range events {
		if ev.GetContainerId() == id {
			fmt.Println(ev.GetContainerEventType())
		}
		if ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			break
		}
	}
	show(rt, id)
	// Output:
	// CONTAINER_CREATED_EVENT
	// CONTAINER_STARTED_EVENT
	// CONTAINER_STOPPED_EVENT
	// app CONTAINER_EXITED 3 "Error"
}

// The call takes effect and its answer is lost. Whoever tries again without a
// look finds the name taken.
func ExampleRuntime_Inject() {
	rt := critest.New(critest.Config{})
	rt.Inject(critest.Fault{Method: "RunPodSandbox", Late: true, Hang: true, Times: 1})

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := rt.RunPodSandbox(ctx, examplePod, "")
	fmt.Println(status.Code(err))

	list, _ := rt.ListPodSandbox(context.Background(), nil)
	fmt.Println(len(list), "sandbox")
	_, err = rt.RunPodSandbox(context.Background(), examplePod, "")
	fmt.Println(err != nil)
	// Output:
	// DeadlineExceeded
	// 1 sandbox
	// true
}

// One failure, once.
func ExampleRuntime_FailNext() {
	rt := critest.New(critest.Config{})
	rt.FailNext("Version", errors.New("out of order"))
	for range 2 {
		v, err := rt.Version(context.Background(), "")
		fmt.Println(v.GetRuntimeName(), err)
	}
	// Output:
	//  rpc error: code = Unknown desc = out of order
	// critest <nil>
}

// Behind gRPC the runtime can be reached by any client of the CRI, crictl and
// the kubelet among them:
//
//	crictl --runtime-endpoint unix:///tmp/critest/cri.sock ps -a
func ExampleServe() {
	dir, err := os.MkdirTemp("", "critest")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	rt := critest.New(critest.Config{RuntimeName: "my-runtime", Registry: critest.AnyImage})
	srv, err := critest.Serve(rt, filepath.Join(dir, "cri.sock"))
	if err != nil {
		panic(err)
	}
	defer srv.Close()

	client, err := criclient.New(criclient.Config{Endpoint: srv.Endpoint()})
	if err != nil {
		panic(err)
	}
	defer client.Close(context.Background())
	v, err := client.Version(context.Background(), "")
	fmt.Println(v.GetRuntimeName(), err)
	// Output:
	// my-runtime <nil>
}

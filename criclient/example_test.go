package criclient_test

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

// An agent may start before its runtime: New does not need one, and a call says
// so at once instead of waiting.
func Example() {
	client, err := criclient.New(criclient.Config{Endpoint: "unix:///no/such/runtime.sock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer client.Close(ctx)

	_, err = client.Check(ctx)
	fmt.Println("away:", errors.Is(err, criclient.ErrUnavailable))
	// Output:
	// away: true
}

// tiny is a runtime with one pod: all that an Observer asks for.
type tiny struct{}

var labels = map[string]string{
	observed.LabelPodUID: "5f1d", observed.LabelPodNamespace: "default", observed.LabelPodName: "web",
	observed.LabelContainerName: "app",
}

func (tiny) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{{Id: "s1", Labels: labels}}, nil
}

func (tiny) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{Id: "c1", PodSandboxId: "s1", Labels: labels, State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil
}

func (tiny) PodSandboxStatus(context.Context, string, bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.7"},
	}}, nil
}

func (tiny) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 137, Reason: "OOMKilled",
	}}, nil
}

func ExampleObserver() {
	observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: tiny{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	pods, err := observer.RunningPods(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pod := range pods {
		pod, err := observer.InspectPod(ctx, pod)
		if err != nil {
			fmt.Println(err)
			return
		}
		app, _ := pod.Container("app")
		fmt.Println(pod.Namespace, pod.Name, pod.IPs(), app.Name, app.State, app.Reason, app.ExitCode)
	}
	// Output:
	// default web [10.0.0.7] app exited OOMKilled 137
}

// Errors of k8s.io/cri-client are gRPC statuses. Wrap makes them this package's.
func ExampleWrap() {
	fromElsewhere := status.Error(codes.NotFound, "no such image")
	err := criclient.Wrap("pull image for container app", fromElsewhere)
	fmt.Println(err)
	fmt.Println(errors.Is(err, criclient.ErrNotFound), criclient.Message(err))
	// Output:
	// pull image for container app: no such image
	// true no such image
}

// What a runtime can do decides what a node may promise. A runtime that says
// nothing can do nothing of it.
func ExampleFeatures() {
	for _, cfg := range []critest.Config{{Handlers: []string{"kata"}}, critest.Containerd16()} {
		resp, err := critest.New(cfg).Status(context.Background(), false)
		if err != nil {
			fmt.Println(err)
			return
		}
		can := criclient.Features(resp)
		fmt.Println(can.SupplementalGroupsPolicy, can.Handler("kata").UserNamespaces, can.Handler("").RecursiveReadOnlyMounts)
	}
	// Output:
	// true true true
	// false false false
}

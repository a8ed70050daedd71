package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Eventually tries until there is no error, and fails the test with the last
// one when that takes longer than within.
func Eventually(t *testing.T, within time.Duration, try func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", within, err)
		}
		<-tick.C
	}
}

// Stays tries again and again for a while and fails the test on an error.
func Stays(t *testing.T, during time.Duration, try func() error) {
	t.Helper()
	over := time.After(during)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := try(); err != nil {
			t.Fatalf("did not stay so for %v: %v", during, err)
		}
		select {
		case <-over:
			return
		case <-tick.C:
		}
	}
}

// sandboxes lists a pod's sandboxes, or all for "".
func sandboxes(t *testing.T, pod string) []*cri.PodSandbox {
	t.Helper()
	list, err := the.daemon.Runtime().ListPodSandbox(look(t), &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: labels(pod, "")},
	})
	require.NoError(t, err)
	return list.Items
}

// containers lists the instances of a pod's container in any state; "" is any
// pod or container. The manifest's name of the pod, without the node's, will do.
func containers(t *testing.T, pod, name string) []*cri.Container {
	t.Helper()
	list, err := the.daemon.Runtime().ListContainers(look(t), &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: labels(pod, name)},
	})
	require.NoError(t, err)
	return list.Containers
}

// running lists the instances of a pod's container that run now.
func running(t *testing.T, pod, name string) []*cri.Container {
	t.Helper()
	list, err := the.daemon.Runtime().ListContainers(look(t), &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{
			LabelSelector: labels(pod, name),
			State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
		},
	})
	require.NoError(t, err)
	return list.Containers
}

// listed returns the runtime's word on an instance of a list, or nil when it has
// been cleared away since.
func listed(t *testing.T, c *cri.Container) *cri.ContainerStatus {
	t.Helper()
	answer, err := the.daemon.Runtime().ContainerStatus(look(t), &cri.ContainerStatusRequest{ContainerId: c.Id})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	require.NoError(t, err)
	return answer.Status
}

// container returns the runtime's word on one instance.
func container(t *testing.T, id string) *cri.ContainerStatus {
	t.Helper()
	answer, err := the.daemon.Runtime().ContainerStatus(look(t), &cri.ContainerStatusRequest{ContainerId: id})
	require.NoError(t, err)
	return answer.Status
}

func labels(pod, container string) map[string]string {
	selector := map[string]string{}
	if pod != "" {
		selector[observed.LabelPodName] = pod + "-" + nodeName
	}
	if container != "" {
		selector[observed.LabelContainerName] = container
	}
	return selector
}

// look is a context for one question; cleanups ask after the test's own ended.
func look(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

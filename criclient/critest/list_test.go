package critest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestAListAboveTheLimitIsResourceExhaustedAndItsPartsAreNot(t *testing.T) {
	rt := critest.New(critest.Config{MaxAnswer: 4096})
	rt.AddImage("img", critest.Behavior{})
	big := strings.Repeat("x", 1000)
	for i := range 8 {
		uid := fmt.Sprint("u", i)
		p := pod(uid)
		p.Annotations = map[string]string{"big": big}
		sb, err := rt.RunPodSandbox(t.Context(), p, "")
		require.NoError(t, err)
		cfg := ctr(uid, "app", "img")
		cfg.Annotations = map[string]string{"big": big}
		id, err := rt.CreateContainer(t.Context(), sb, cfg, p)
		require.NoError(t, err)
		if i < 2 {
			require.NoError(t, rt.StartContainer(t.Context(), id))
		}
	}
	_, err := rt.ListContainers(t.Context(), nil)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, err = rt.ListPodSandbox(t.Context(), nil)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	list, err := rt.ListContainers(t.Context(), &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	require.NoError(t, err)
	require.Len(t, list, 2)

	// The streams carry it in messages below the limit.
	srv, err := critest.Serve(rt, socketDir(t)+"/s")
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Close()) }()
	conn, err := grpc.NewClient(srv.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4096)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})
	require.NoError(t, err)
	seen := map[string]bool{}
	for {
		part, err := stream.Recv()
		if err != nil {
			require.ErrorContains(t, err, "EOF")
			break
		}
		for _, c := range part.GetContainers() {
			seen[c.GetId()] = true
		}
	}
	require.Len(t, seen, 8)
}

func TestListsAreOldestFirstAndTheCallersOwn(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.AddImage("img", critest.Behavior{})
	var ids []string
	for i := range 20 {
		_, id := run(t, rt, fmt.Sprint("u", i), "img")
		ids = append(ids, id)
	}
	for range 2 {
		list, err := rt.ListContainers(t.Context(), nil)
		require.NoError(t, err)
		for i, c := range list {
			require.Equal(t, ids[i], c.GetId())
			require.Equal(t, fmt.Sprint("u", i), c.GetLabels()[observed.LabelPodUID])
			c.Labels[observed.LabelPodUID] = "changed by the caller"
			c.Metadata.Name = "changed by the caller"
		}
	}
	list, err := rt.ListContainers(t.Context(), &runtimeapi.ContainerFilter{Id: ids[3][:20]})
	require.NoError(t, err)
	require.Len(t, list, 1, "a short ID will do")
}

// crowd makes 100 pods with a running container each, and exited ones beside them.
func crowd(t testing.TB, exited int) *critest.Runtime {
	t.Helper()
	rt := critest.New(critest.Config{KeepCalls: -1})
	rt.AddImage("img", critest.Behavior{})
	for i := range 100 {
		uid := fmt.Sprint("u", i)
		sb, _ := run(t, rt, uid, "img")
		for n := range exited / 100 {
			cfg := ctr(uid, "job", "img")
			cfg.Metadata.Attempt = uint32(n)
			id, err := rt.CreateContainer(t.Context(), sb, cfg, pod(uid))
			require.NoError(t, err)
			require.NoError(t, rt.StartContainer(t.Context(), id))
			require.NoError(t, rt.Kill(id, 0))
		}
	}
	runtime.GC() // of what the preparation left
	return rt
}

func listRunning(t testing.TB, rt *critest.Runtime) {
	list, err := rt.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil || len(list) != 100 {
		t.Fatalf("%d containers, %v", len(list), err)
	}
}

// The house's decision 2 from the runtime's side: exited containers must not
// make the list of the running ones dearer. Time is for the benchmark below;
// what is allocated does not depend on the machine.
func TestAListByStateCostsWhatItMatches(t *testing.T) {
	alone, beside := crowd(t, 0), crowd(t, 5000)
	want := testing.AllocsPerRun(20, func() { listRunning(t, alone) })
	got := testing.AllocsPerRun(20, func() { listRunning(t, beside) })
	require.InDelta(t, want, got, want/20)
}

func BenchmarkListRunning(b *testing.B) {
	for _, exited := range []int{0, 20000} {
		b.Run(fmt.Sprintf("exited=%d", exited), func(b *testing.B) {
			rt := crowd(b, exited)
			b.ReportAllocs()
			for b.Loop() {
				listRunning(b, rt)
			}
		})
	}
}

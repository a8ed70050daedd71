package critest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func sandboxOf(t *testing.T, rt *critest.Runtime, id string) *runtimeapi.PodSandboxStatus {
	t.Helper()
	resp, err := rt.PodSandboxStatus(t.Context(), id, false)
	require.NoError(t, err)
	return resp.GetStatus()
}

func TestWhatHappensBehindTheAgentsBack(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.AddImage("img", critest.Behavior{})
	sb, id := run(t, rt, "u1", "img")
	require.Equal(t, "10.88.0.2", sandboxOf(t, rt, sb).GetNetwork().GetIp())

	require.NoError(t, rt.FailSandbox(sb))
	require.Equal(t, runtimeapi.PodSandboxState_SANDBOX_NOTREADY, sandboxOf(t, rt, sb).GetState())
	require.Equal(t, "10.88.0.2", sandboxOf(t, rt, sb).GetNetwork().GetIp(), "the network outlives the process")
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, statusOf(t, rt, id).GetState())

	require.NoError(t, rt.LoseIP(sb))
	require.Empty(t, sandboxOf(t, rt, sb).GetNetwork().GetIp())

	require.NoError(t, rt.Vanish(id))
	_, err := rt.ContainerStatus(t.Context(), id, false)
	require.Equal(t, codes.NotFound, status.Code(err))
	require.NoError(t, rt.Vanish(sb))
	_, ok := rt.FindSandbox("u1")
	require.False(t, ok)

	for _, err := range []error{rt.Vanish(sb), rt.FailSandbox(sb), rt.LoseIP(sb), rt.Kill(id, 1), rt.OOM(id), rt.SetUnknown(id)} {
		require.Equal(t, codes.NotFound, status.Code(err))
	}
	sb2, id2 := run(t, rt, "u1", "img") // the names are free
	found, ok := rt.FindContainer("u1", "app")
	require.True(t, ok)
	require.Equal(t, id2, found)
	found, _ = rt.FindSandbox("u1")
	require.Equal(t, sb2, found)
	require.NoError(t, rt.Kill(id2, 0))
	require.Equal(t, codes.FailedPrecondition, status.Code(rt.Kill(id2, 0)))
}

func TestAddressesAreGivenBack(t *testing.T) {
	rt := critest.New(critest.Config{})
	const size = 1<<16 - 3
	var first string
	for i := range size {
		sb, err := rt.RunPodSandbox(t.Context(), pod(fmt.Sprint(i)), "")
		require.NoError(t, err)
		if i == 0 {
			first = sb
		}
	}
	_, err := rt.RunPodSandbox(t.Context(), pod("one more"), "")
	require.ErrorContains(t, err, "no IP addresses available")
	host := pod("on the host")
	host.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	_, err = rt.RunPodSandbox(t.Context(), host, "")
	require.NoError(t, err)
	require.NoError(t, rt.StopPodSandbox(t.Context(), first))
	sb, err := rt.RunPodSandbox(t.Context(), pod("one more"), "")
	require.NoError(t, err)
	require.Equal(t, "10.88.0.2", sandboxOf(t, rt, sb).GetNetwork().GetIp())
}

func TestNetworkNotReady(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.SetNetworkReady(false)
	resp, err := rt.Status(t.Context(), true)
	require.NoError(t, err)
	require.False(t, resp.GetStatus().GetConditions()[1].GetStatus())
	require.Contains(t, resp.GetStatus().GetConditions()[1].GetMessage(), "cni plugin not initialized")
	_, err = rt.RunPodSandbox(t.Context(), pod("u1"), "")
	require.ErrorContains(t, err, "cni plugin not initialized")
	rt.SetNetworkReady(true)
	_, err = rt.RunPodSandbox(t.Context(), pod("u1"), "")
	require.NoError(t, err)
}

func TestAFullDisk(t *testing.T) {
	rt := critest.New(critest.Config{Registry: critest.AnyImage})
	rt.AddImage("img", critest.Behavior{})
	sb, _ := run(t, rt, "u1", "img")
	rt.FillDisk(true)
	const text = "no space left on device"
	_, err := rt.RunPodSandbox(t.Context(), pod("u2"), "")
	require.ErrorContains(t, err, text)
	_, err = rt.CreateContainer(t.Context(), sb, ctr("u1", "more", "img"), pod("u1"))
	require.ErrorContains(t, err, text)
	_, err = rt.PullImage(t.Context(), spec("more"), nil, nil)
	require.ErrorContains(t, err, text)
	rt.FillDisk(false)
	_, err = rt.CreateContainer(t.Context(), sb, ctr("u1", "more", "img"), pod("u1"))
	require.NoError(t, err, "the failure has kept no name")
}

func TestHandlers(t *testing.T) {
	rt := critest.New(critest.Config{Handlers: []string{"gvisor"}})
	sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "gvisor")
	require.NoError(t, err)
	require.Equal(t, "gvisor", sandboxOf(t, rt, sb).GetRuntimeHandler())
	_, err = rt.RunPodSandbox(t.Context(), pod("u2"), "kata")
	require.ErrorContains(t, err, `no runtime for "kata" is configured`)
}

func TestBehaviorByAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("flaky", critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior {
			if c.GetMetadata().GetAttempt() < 2 {
				return critest.Exit(1, 0)
			}
			return critest.Behavior{}
		}})
		sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
		require.NoError(t, err)
		for attempt, want := range []runtimeapi.ContainerState{
			runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_RUNNING,
		} {
			cfg := ctr("u1", "app", "flaky")
			cfg.Metadata.Attempt = uint32(attempt)
			id, err := rt.CreateContainer(t.Context(), sb, cfg, pod("u1"))
			require.NoError(t, err)
			require.NoError(t, rt.StartContainer(t.Context(), id))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, want, statusOf(t, rt, id).GetState())
		}
	})
}

func TestExecSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Behavior{Exec: func(cmd []string) critest.ExecResult {
			switch cmd[0] {
			case "slow":
				return critest.ExecResult{Takes: time.Hour}
			case "fail":
				return critest.ExecResult{Stderr: "sorry", Code: 42}
			}
			return critest.ExecResult{Stdout: cmd[0]}
		}})
		_, id := run(t, rt, "u1", "img")
		out, _, err := rt.ExecSync(t.Context(), id, []string{"hello"}, time.Second)
		require.NoError(t, err)
		require.Equal(t, "hello", string(out))

		_, stderr, err := rt.ExecSync(t.Context(), id, []string{"fail"}, 0)
		var exit *critest.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 42, exit.ExitStatus())
		require.Equal(t, "sorry", string(stderr))

		began := time.Now()
		_, _, err = rt.ExecSync(t.Context(), id, []string{"slow"}, 2*time.Second)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Equal(t, 2*time.Second, time.Since(began))
		_, _, err = rt.ExecSync(t.Context(), id, []string{"slow"}, 0)
		require.NoError(t, err, "without a timeout it may take its time")
	})
}

func TestCallsTellWhatWasAsked(t *testing.T) {
	rt := critest.New(critest.Config{KeepCalls: 4})
	rt.AddImage("img", critest.Behavior{})
	sb, id := run(t, rt, "u1", "img")
	require.NoError(t, rt.StopContainer(t.Context(), id, 3))
	_, err := rt.ContainerStatus(t.Context(), "nobody", false)
	require.Error(t, err)
	calls := rt.Calls()
	require.Len(t, calls, 4, "the oldest is forgotten")
	type row struct{ method, uid, container, id, image string }
	var got []row
	for _, c := range calls {
		require.True(t, c.Done)
		require.False(t, c.Time.IsZero())
		got = append(got, row{c.Method, c.PodUID, c.Container, c.ID, c.Image})
	}
	require.Equal(t, []row{
		{"CreateContainer", "u1", "app", sb, "img"},
		{"StartContainer", "u1", "app", id, ""},
		{"StopContainer", "u1", "app", id, ""},
		{"ContainerStatus", "", "", "nobody", ""},
	}, got)
	require.Equal(t, int64(3), calls[2].Request.(*runtimeapi.StopContainerRequest).GetTimeout())
	require.Equal(t, codes.NotFound, status.Code(calls[3].Err))
	rt.ForgetCalls()
	require.Empty(t, rt.Calls())
}

func TestUnimplemented(t *testing.T) {
	rt := critest.New(critest.Containerd16())
	rt.AddImage("img", critest.Behavior{})
	sb, id := run(t, rt, "u1", "img")
	_, err := rt.RuntimeConfig(t.Context())
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.Equal(t, codes.Unimplemented, status.Code(rt.GetContainerEvents(t.Context(), nil, nil)))
	_, err = rt.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = rt.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sb})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.Equal(t, codes.Unimplemented, status.Code(rt.CheckpointContainer(t.Context(), &runtimeapi.CheckpointContainerRequest{})))
	require.Equal(t, codes.NotFound, status.Code(rt.StopContainer(t.Context(), "nobody", 0)))

	rt = critest.New(critest.Config{StreamURL: func(method string, _ any) (string, error) { return "http://127.0.0.1/" + method, nil }})
	rt.AddImage("img", critest.Behavior{})
	_, id = run(t, rt, "u1", "img")
	resp, err := rt.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id})
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1/Attach", resp.GetUrl())
	require.NoError(t, rt.Kill(id, 0))
	_, err = rt.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id})
	require.Error(t, err)
}

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Behavior{})
		sb, id := run(t, rt, "u1", "img")
		var cpu, network uint64
		for range 3 {
			time.Sleep(time.Minute)
			s, err := rt.PodSandboxStats(t.Context(), sb)
			require.NoError(t, err)
			require.Len(t, s.GetLinux().GetContainers(), 1)
			require.Greater(t, s.GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue(), cpu)
			require.Greater(t, s.GetLinux().GetNetwork().GetDefaultInterface().GetRxBytes().GetValue(), network)
			cpu = s.GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue()
			network = s.GetLinux().GetNetwork().GetDefaultInterface().GetRxBytes().GetValue()
		}
		all, err := rt.ListContainerStats(t.Context(), &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{observed.LabelPodUID: "u1"}})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, rt.Kill(id, 0))
		_, err = rt.ContainerStats(t.Context(), id)
		require.Equal(t, codes.NotFound, status.Code(err))
		pods, err := rt.ListPodSandboxStats(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, pods, 1)
		require.Empty(t, pods[0].GetLinux().GetContainers())
	})
}

func TestResourcesAreUpdated(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.AddImage("img", critest.Behavior{})
	sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
	require.NoError(t, err)
	cfg := ctr("u1", "app", "img")
	cfg.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 100, MemoryLimitInBytes: 1 << 20}}
	id, err := rt.CreateContainer(t.Context(), sb, cfg, pod("u1"))
	require.NoError(t, err)
	require.NoError(t, rt.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{CpuShares: 200}}))
	got := statusOf(t, rt, id).GetResources().GetLinux()
	require.Equal(t, int64(200), got.GetCpuShares())
	require.Equal(t, int64(1<<20), got.GetMemoryLimitInBytes())
}

func TestServeLeavesForeignFilesAlone(t *testing.T) {
	dir := socketDir(t)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	_, err := critest.Serve(critest.New(critest.Config{}), file)
	require.ErrorContains(t, err, "no socket")
	require.FileExists(t, file)

	rt := critest.New(critest.Config{})
	path := filepath.Join(dir, "s")
	for range 2 {
		srv, err := critest.Serve(rt, path)
		require.NoError(t, err)
		require.Equal(t, "unix://"+path, srv.Endpoint())
		require.NoError(t, srv.Close())
		require.NoFileExists(t, path)
	}
}

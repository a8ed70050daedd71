package critest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a sandbox configuration for uid with the labels an agent sets.
func pod(uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: uid},
		Labels: map[string]string{
			observed.LabelPodName: "web", observed.LabelPodNamespace: "default", observed.LabelPodUID: uid,
		},
	}
}

// ctr is a container configuration for a pod.
func ctr(uid, name, image string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: image},
		Labels: map[string]string{
			observed.LabelPodName: "web", observed.LabelPodNamespace: "default", observed.LabelPodUID: uid,
			observed.LabelContainerName: name,
		},
	}
}

// run makes a pod with one started container "app" and returns both IDs.
func run(t testing.TB, rt *critest.Runtime, uid, image string) (sandbox, container string) {
	t.Helper()
	ctx := t.Context()
	sandbox, err := rt.RunPodSandbox(ctx, pod(uid), "")
	require.NoError(t, err)
	container, err = rt.CreateContainer(ctx, sandbox, ctr(uid, "app", image), pod(uid))
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(ctx, container))
	return sandbox, container
}

func statusOf(t testing.TB, rt *critest.Runtime, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	resp, err := rt.ContainerStatus(t.Context(), id, false)
	require.NoError(t, err)
	return resp.GetStatus()
}

func TestContainersEndAsTheirImageSays(t *testing.T) {
	tests := []struct {
		name     string
		behavior critest.Behavior
		act      func(t *testing.T, rt *critest.Runtime, id string)
		took     time.Duration
		code     int32
		reason   string
	}{
		{name: "exit 0 by itself", behavior: critest.Exit(0, time.Hour), took: time.Hour, code: 0, reason: "Completed"},
		{name: "exit 3 by itself", behavior: critest.Exit(3, 0), code: 3, reason: "Error"},
		{name: "out of memory by itself", behavior: critest.Behavior{Exits: true, OOM: true, After: time.Second}, took: time.Second, code: 137, reason: "OOMKilled"},
		{name: "TERM ends at once", act: stop(30), code: 143, reason: "Error"},
		{name: "TERM is caught", behavior: critest.Behavior{CatchTERM: true, TermAfter: 2 * time.Second}, act: stop(30), took: 2 * time.Second, code: 0, reason: "Completed"},
		{name: "TERM is ignored", behavior: critest.Behavior{IgnoreTERM: true}, act: stop(30), took: 30 * time.Second, code: 137, reason: "Error"},
		{name: "TERM takes longer than the grace", behavior: critest.Behavior{TermAfter: time.Minute}, act: stop(5), took: 5 * time.Second, code: 137, reason: "Error"},
		{name: "grace 0 is KILL", behavior: critest.Behavior{CatchTERM: true}, act: stop(0), code: 137, reason: "Error"},
		{
			name: "a shorter second stop wins", behavior: critest.Behavior{IgnoreTERM: true},
			act: func(t *testing.T, rt *critest.Runtime, id string) {
				first := make(chan error, 1)
				go func() { first <- rt.StopContainer(t.Context(), id, 600) }()
				synctest.Wait()
				require.NoError(t, rt.StopContainer(t.Context(), id, 1))
				require.NoError(t, <-first)
			}, took: time.Second, code: 137, reason: "Error",
		},
		{
			name: "killed by hand", act: func(t *testing.T, rt *critest.Runtime, id string) { require.NoError(t, rt.Kill(id, 9)) },
			code: 9, reason: "Error",
		},
		{
			name: "the kernel's OOM killer", act: func(t *testing.T, rt *critest.Runtime, id string) { require.NoError(t, rt.OOM(id)) },
			code: 137, reason: "OOMKilled",
		},
		{
			name: "unknown to the runtime, then stopped", act: func(t *testing.T, rt *critest.Runtime, id string) {
				require.NoError(t, rt.SetUnknown(id))
				require.Equal(t, runtimeapi.ContainerState_CONTAINER_UNKNOWN, statusOf(t, rt, id).GetState())
				require.NoError(t, rt.StopContainer(t.Context(), id, 10))
			}, code: 255, reason: "Unknown",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Config{})
				rt.AddImage("img", tt.behavior)
				_, id := run(t, rt, "u1", "img")
				began := time.Now()
				if tt.act != nil {
					tt.act(t, rt, id)
				} else {
					time.Sleep(tt.took)
					synctest.Wait()
				}
				st := statusOf(t, rt, id)
				require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, st.GetState())
				require.Equal(t, tt.code, st.GetExitCode())
				require.Equal(t, tt.reason, st.GetReason())
				require.Equal(t, tt.took, time.Since(began).Truncate(time.Millisecond))
				require.Less(t, st.GetCreatedAt(), st.GetStartedAt())
				require.Less(t, st.GetStartedAt(), st.GetFinishedAt())
			})
		})
	}
}

func stop(grace int64) func(*testing.T, *critest.Runtime, string) {
	return func(t *testing.T, rt *critest.Runtime, id string) {
		require.NoError(t, rt.StopContainer(t.Context(), id, grace))
	}
}

func TestStartFails(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.AddImage("broken", critest.Behavior{StartError: `exec: "nope": executable file not found in $PATH`})
	sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
	require.NoError(t, err)
	id, err := rt.CreateContainer(t.Context(), sb, ctr("u1", "app", "broken"), pod("u1"))
	require.NoError(t, err)

	err = rt.StartContainer(t.Context(), id)
	require.ErrorContains(t, err, "executable file not found")
	require.Equal(t, codes.Unknown, status.Code(err))
	st := statusOf(t, rt, id)
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, st.GetState())
	require.Equal(t, int32(128), st.GetExitCode())
	require.Equal(t, "StartError", st.GetReason())
	require.Contains(t, st.GetMessage(), "executable file not found")
	require.Zero(t, st.GetStartedAt())
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	tests := []struct {
		name   string
		fault  critest.Fault
		took   time.Duration
		code   codes.Code
		exists bool // the container was created all the same
	}{
		{name: "fail", fault: critest.Fault{Err: boom}, code: codes.Unknown},
		{name: "fail with a code", fault: critest.Fault{Err: status.Error(codes.AlreadyExists, "there")}, code: codes.AlreadyExists},
		{name: "slow", fault: critest.Fault{Delay: time.Second}, took: time.Second, code: codes.OK, exists: true},
		{name: "slower than the caller waits", fault: critest.Fault{Delay: time.Hour}, took: time.Minute, code: codes.DeadlineExceeded},
		{name: "hang", fault: critest.Fault{Hang: true}, took: time.Minute, code: codes.DeadlineExceeded},
		{name: "late answer", fault: critest.Fault{Hang: true, Late: true}, took: time.Minute, code: codes.DeadlineExceeded, exists: true},
		{name: "lost answer", fault: critest.Fault{Err: boom, Late: true}, code: codes.Unknown, exists: true},
		{name: "too large", fault: critest.Fault{TooLarge: true}, code: codes.ResourceExhausted, exists: true},
		{name: "another method", fault: critest.Fault{Method: "StopContainer", Err: boom}, code: codes.OK, exists: true},
		{name: "another container", fault: critest.Fault{Container: "other", Err: boom}, code: codes.OK, exists: true},
		{name: "another pod", fault: critest.Fault{PodUID: "u2", Err: boom}, code: codes.OK, exists: true},
		{name: "this pod and container", fault: critest.Fault{PodUID: "u1", Container: "app", Err: boom}, code: codes.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Config{})
				rt.AddImage("img", critest.Behavior{})
				sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
				require.NoError(t, err)
				clear := rt.Inject(tt.fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err = rt.CreateContainer(ctx, sb, ctr("u1", "app", "img"), pod("u1"))
				require.Equal(t, tt.code, status.Code(err), "%v", err)
				require.Equal(t, tt.took, time.Since(began))
				clear()
				_, exists := rt.FindContainer("u1", "app")
				require.Equal(t, tt.exists, exists)
				_, err = rt.CreateContainer(t.Context(), sb, ctr("u1", "app", "img"), pod("u1"))
				if tt.exists {
					require.ErrorContains(t, err, "is reserved for")
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestFailNextHitsOnce(t *testing.T) {
	rt := critest.New(critest.Config{})
	boom := errors.New("boom")
	rt.FailNext("Version", boom)
	_, err := rt.Version(t.Context(), "")
	require.ErrorIs(t, err, boom)
	_, err = rt.Version(t.Context(), "")
	require.NoError(t, err)
}

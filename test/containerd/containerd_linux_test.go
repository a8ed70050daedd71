package containerd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/containerd"
	"github.com/kubeletkit/kubeletkit/test/images"
	"github.com/kubeletkit/kubeletkit/test/registry"
)

func start(t *testing.T, bin containerd.Binary) *containerd.Daemon {
	t.Helper()
	dir := shortDir(t)
	d, err := containerd.Start(t.Context(), containerd.Config{Dir: dir, Binary: bin.Path})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			data, _ := os.ReadFile(d.LogFile())
			t.Log(string(data[max(0, len(data)-4000):]))
		}
		require.NoError(t, d.Close())
		require.Empty(t, containerd.Leftovers(dir))
	})
	return d
}

// shortDir is [testing.T.TempDir] with a path that fits a unix socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kk")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, containerd.Reap(dir))
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

func run(t *testing.T, d *containerd.Daemon, image string, args ...string) (sandbox, container string) {
	t.Helper()
	sandbox, container, err := runPod(t.Context(), d, t.TempDir(), image, args...)
	require.NoError(t, err)
	return sandbox, container
}

// runPod starts a pod of one container with a host port and returns the IDs.
func runPod(ctx context.Context, d *containerd.Daemon, logs, image string, args ...string) (sandbox, container string, err error) {
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u"},
		LogDirectory: logs,
		PortMappings: []*cri.PortMapping{{ContainerPort: 8080, HostPort: 28080, HostIp: "127.0.0.1"}},
		Linux:        &cri.LinuxPodSandboxConfig{},
	}
	p, err := d.Runtime().RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return "", "", err
	}
	c, err := d.Runtime().CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.PodSandboxId, SandboxConfig: config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "c"},
			Image:    &cri.ImageSpec{Image: image},
			Args:     args, LogPath: "c.log", Linux: &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", "", err
	}
	_, err = d.Runtime().StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId})
	return p.PodSandboxId, c.ContainerId, err
}

func state(t *testing.T, d *containerd.Daemon, container string) cri.ContainerState {
	t.Helper()
	s, err := d.Runtime().ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: container})
	require.NoError(t, err)
	return s.Status.State
}

func each(t *testing.T, test func(t *testing.T, bin containerd.Binary)) {
	all, err := containerd.Binaries(t.Context())
	require.NoError(t, err)
	for _, bin := range all {
		t.Run(bin.Name+" "+bin.Version, func(t *testing.T) { test(t, bin) })
	}
}

func TestAPodRunsFromAPulledImageAndNothingIsLeftAfterClose(t *testing.T) {
	reg, err := registry.Start("127.0.0.1:0")
	require.NoError(t, err)
	defer reg.Close()
	set, err := images.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, set.Push(t.Context(), reg.Host()))

	each(t, func(t *testing.T, bin containerd.Binary) {
		before := reg.Asked(images.KK)
		d := start(t, bin)
		ref := images.Ref(reg.Host(), images.KK)
		_, err := d.Images().PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		require.NoError(t, err)
		require.Greater(t, reg.Asked(images.KK).Manifests, before.Manifests)

		sandbox, c := run(t, d, ref, "serve", ":8080")
		require.Equal(t, cri.ContainerState_CONTAINER_RUNNING, state(t, d, c))
		require.Contains(t, d.ShimPids(), sandbox)
	})
}

func TestPodsOutliveTheDaemonAndAreFoundAgain(t *testing.T) {
	each(t, func(t *testing.T, bin containerd.Binary) {
		d := start(t, bin)
		_, c := run(t, d, images.Ref(images.Local, images.KK), "sleep", "forever")
		require.NoError(t, d.Kill())
		require.Len(t, d.ShimPids(), 1)
		require.NoError(t, d.Start(t.Context()))
		require.Equal(t, cri.ContainerState_CONTAINER_RUNNING, state(t, d, c))
		require.NoError(t, d.Stop())
		require.Zero(t, d.Pid())
		require.NoError(t, d.Start(t.Context()))
		require.Equal(t, cri.ContainerState_CONTAINER_RUNNING, state(t, d, c))
	})
}

// A process that is killed can't clean up; whoever uses its folder next does.
func TestReapCleansUpAfterAKilledOwner(t *testing.T) {
	each(t, func(t *testing.T, bin containerd.Binary) {
		dir := shortDir(t)
		owner := exec.Command(os.Args[0])
		owner.Env = append(os.Environ(), ownerDir+"="+dir, ownerBinary+"="+bin.Path)
		stdout, err := owner.StdoutPipe()
		require.NoError(t, err)
		owner.Stderr = os.Stderr
		require.NoError(t, owner.Start())
		line, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "pod runs\n", line)

		require.ErrorContains(t, containerd.Reap(dir), "another process", "a living owner keeps Reap out")
		require.NoError(t, owner.Process.Kill())
		_ = owner.Wait()

		left := strings.Join(containerd.Leftovers(dir), "\n")
		for _, kind := range []string{"process", "mount", "network namespace", "cgroup", "link", "iptables nat:"} {
			require.Contains(t, left, kind+" ", "Leftovers sees a running pod")
		}
		require.NoError(t, containerd.Reap(dir))
		require.Empty(t, containerd.Leftovers(dir))
		require.NoError(t, containerd.Reap(dir), "twice is no mistake")
		require.NoError(t, containerd.Reap(filepath.Join(dir, "none")), "an empty folder is clean")
	})
}

const (
	ownerDir    = "CONTAINERD_TEST_OWNER_DIR"
	ownerBinary = "CONTAINERD_TEST_OWNER_BINARY"
)

// TestMain doubles as the process that dies in
// [TestReapCleansUpAfterAKilledOwner].
func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		if err := own(dir, os.Getenv(ownerBinary)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until killed
	}
	goleak.VerifyTestMain(m)
}

func own(dir, binary string) error {
	ctx := context.Background()
	d, err := containerd.Start(ctx, containerd.Config{Dir: dir, Binary: binary, Masquerade: true})
	if err != nil {
		return err
	}
	if _, _, err := runPod(ctx, d, dir, images.Ref(images.Local, images.KK), "sleep", "--ignore-term", "forever"); err != nil {
		return err
	}
	fmt.Println("pod runs")
	return nil
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	_, err := containerd.Start(t.Context(), containerd.Config{Dir: long})
	require.ErrorContains(t, err, "too long for a unix socket")

	_, err = containerd.Start(t.Context(), containerd.Config{Dir: t.TempDir(), Binary: "/bin/true"})
	require.ErrorContains(t, err, "no number in")

	var log bytes.Buffer
	dir := shortDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = containerd.Start(ctx, containerd.Config{Dir: dir, Log: &log})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, containerd.Leftovers(dir))
}

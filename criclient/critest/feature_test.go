package critest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

// create makes a pod with one container that change has had its way with.
func create(t *testing.T, rt *critest.Runtime, change func(*runtimeapi.ContainerConfig)) (id string, err error) {
	t.Helper()
	sandbox, err := rt.RunPodSandbox(t.Context(), pod("u"), "")
	require.NoError(t, err)
	cfg := ctr("u", "app", "app")
	cfg.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{}}
	change(cfg)
	return rt.CreateContainer(t.Context(), sandbox, cfg, pod("u"))
}

func TestMountsARuntimeRefuses(t *testing.T) {
	private, slave := runtimeapi.MountPropagation_PROPAGATION_PRIVATE, runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	tests := []struct {
		name  string
		mount *runtimeapi.Mount
		cfg   critest.Config
		code  codes.Code
	}{
		{name: "a host path", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host"}},
		{name: "nothing to show", mount: &runtimeapi.Mount{ContainerPath: "/a"}, code: codes.Unknown},
		{name: "nowhere to show it", mount: &runtimeapi.Mount{HostPath: "/host"}, code: codes.Unknown},
		{name: "an image that is there", mount: &runtimeapi.Mount{ContainerPath: "/a", Image: spec("app")}},
		{name: "an image that is not there", mount: &runtimeapi.Mount{ContainerPath: "/a", Image: spec("other")}, code: codes.NotFound},
		{name: "an image and a host path", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", Image: spec("app")}, code: codes.Unknown},
		{name: "recursive read-only", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", Readonly: true, RecursiveReadOnly: true, Propagation: private}},
		{name: "recursive read-only and writable", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", RecursiveReadOnly: true}, code: codes.Unknown},
		{name: "recursive read-only and shared", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", Readonly: true, RecursiveReadOnly: true, Propagation: slave}, code: codes.Unknown},
		{name: "recursive read-only without the feature", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", Readonly: true, RecursiveReadOnly: true},
			cfg: critest.Config{Features: &observed.RuntimeFeatures{}}, code: codes.Unknown},
		{name: "recursive read-only on containerd 1.6, which does not see it", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host", Readonly: true, RecursiveReadOnly: true}, cfg: critest.Containerd16()},
		{name: "an image on containerd 1.6, which does not see it", mount: &runtimeapi.Mount{ContainerPath: "/a", Image: spec("app")}, cfg: critest.Containerd16(), code: codes.Unknown},
		{name: "a host path that the test refuses", mount: &runtimeapi.Mount{ContainerPath: "/a", HostPath: "/host"},
			cfg: critest.Config{HostPath: func(string) error { return errors.New("not today") }}, code: codes.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := critest.New(tt.cfg)
			rt.AddImage("app", critest.Behavior{})
			_, err := create(t, rt, func(c *runtimeapi.ContainerConfig) { c.Mounts = []*runtimeapi.Mount{tt.mount} })
			require.Equal(t, tt.code, status.Code(err), "%v", err)
		})
	}
}

func TestAMissingHostPathBecomesADirectory(t *testing.T) {
	rt := critest.New(critest.Config{HostPath: critest.MakeHostPath})
	rt.AddImage("app", critest.Behavior{})
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	missing := filepath.Join(t.TempDir(), "a", "b")
	_, err := create(t, rt, func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/f", HostPath: file}, {ContainerPath: "/d", HostPath: missing}}
	})
	require.NoError(t, err)
	require.DirExists(t, missing)
	require.Error(t, critest.MakeHostPath(filepath.Join(file, "below")))
}

func TestUserNamespacesNeedTheFeature(t *testing.T) {
	own := func(network runtimeapi.NamespaceMode) *runtimeapi.PodSandboxConfig {
		cfg := pod("u")
		cfg.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: network, UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD}},
		}}
		return cfg
	}
	only := &observed.RuntimeFeatures{Handlers: map[string]observed.HandlerFeatures{"kata": {UserNamespaces: true}}}
	tests := []struct {
		name    string
		cfg     critest.Config
		handler string
		network runtimeapi.NamespaceMode
		refused bool
	}{
		{name: "a runtime that can do all"},
		{name: "a handler that cannot", cfg: critest.Config{Features: only, Handlers: []string{"kata"}}, refused: true},
		{name: "a handler that can", cfg: critest.Config{Features: only, Handlers: []string{"kata"}}, handler: "kata"},
		{name: "on the host's network", network: runtimeapi.NamespaceMode_NODE, refused: true},
		{name: "containerd 1.6 does not see what is asked for", cfg: critest.Containerd16()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := critest.New(tt.cfg).RunPodSandbox(t.Context(), own(tt.network), tt.handler)
			require.Equal(t, tt.refused, err != nil, "%v", err)
		})
	}
}

func TestUsers(t *testing.T) {
	num := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	tests := []struct {
		name     string
		image    string
		sec      *runtimeapi.LinuxContainerSecurityContext
		uid, gid int64
		groups   []int64
	}{
		{name: "root where nobody is named", groups: []int64{0}},
		{name: "the image's number and group", image: "7:8", uid: 7, gid: 8, groups: []int64{8}},
		{name: "the image's name", image: "app", uid: 1000, groups: []int64{0}},
		{name: "the container's own, without the image's group", image: "7:8", sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(9)}, uid: 9, groups: []int64{0}},
		{name: "the container's name", image: "7:8", sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "root"}, groups: []int64{0}},
		{name: "groups", sec: &runtimeapi.LinuxContainerSecurityContext{RunAsUser: num(9), RunAsGroup: num(10), SupplementalGroups: []int64{11}}, uid: 9, gid: 10, groups: []int64{10, 11}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := critest.New(critest.Config{})
			rt.Load(critest.Image{Ref: "app", User: tt.image})
			id, err := create(t, rt, func(c *runtimeapi.ContainerConfig) { c.Linux.SecurityContext = tt.sec })
			require.NoError(t, err)
			u := statusOf(t, rt, id).GetUser().GetLinux()
			require.Equal(t, tt.uid, u.GetUid())
			require.Equal(t, tt.gid, u.GetGid())
			require.Equal(t, tt.groups, u.GetSupplementalGroups())
		})
	}
}

func TestAnOldRuntimeTellsNoNewFields(t *testing.T) {
	rt := critest.New(critest.Containerd16())
	rt.AddImage("app", critest.Behavior{})
	id, err := create(t, rt, func(c *runtimeapi.ContainerConfig) {
		c.StopSignal = runtimeapi.Signal_SIGNAL_SIGINT
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 2}
	})
	require.NoError(t, err)
	st := statusOf(t, rt, id)
	require.Nil(t, st.GetUser())
	require.Nil(t, st.GetResources())
	require.Zero(t, st.GetStopSignal())
	require.Empty(t, st.GetImageId())
	list, err := rt.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, list[0].GetImageId())
	require.NotEmpty(t, list[0].GetImageRef())
}

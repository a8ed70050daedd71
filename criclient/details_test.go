package criclient_test

import (
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

// oneContainer runs a pod with one container and returns how it is observed.
func oneContainer(t *testing.T, rt *critest.Runtime, change func(*runtimeapi.ContainerConfig)) observed.Container {
	t.Helper()
	rt.Load(critest.Image{Ref: "app:1", User: "7:8"})
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}, Labels: podLabels("u"),
	}
	sandbox, err := rt.RunPodSandbox(t.Context(), pod, "")
	if err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app:1"},
		Labels: podLabels("u"), Linux: &runtimeapi.LinuxContainerConfig{},
	}
	change(config)
	id, err := rt.CreateContainer(t.Context(), sandbox, config, pod)
	if err == nil {
		err = rt.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := inspect(t, observe(t, rt), observed.Pod{UID: "u"})
	if len(p.Containers) != 1 {
		t.Fatalf("containers = %v", p.Containers)
	}
	return p.Containers[0]
}

func TestDetailsOfAContainer(t *testing.T) {
	full := func(c *runtimeapi.ContainerConfig) {
		c.StopSignal = runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20}
		c.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
			RunAsUser: &runtimeapi.Int64Value{Value: 1}, RunAsGroup: &runtimeapi.Int64Value{Value: 2}, SupplementalGroups: []int64{3},
		}
		c.Mounts = []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/host/data", Readonly: true, RecursiveReadOnly: true},
			{ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "app:1"}, Readonly: true},
		}
	}
	resources := &observed.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: 1 << 20}
	data := observed.Mount{ContainerPath: "/data", ReadOnly: true, RecursiveReadOnly: true}

	rt := critest.New(critest.Config{})
	rt.AddImage("app:1", critest.Behavior{})
	image, err := rt.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "app:1"}, false)
	if err != nil {
		t.Fatal(err)
	}
	model := observed.Mount{ContainerPath: "/model", ReadOnly: true, Image: image.GetImage().GetRepoDigests()[0]}
	want := observed.Details{
		User:      &observed.User{UID: 1, GID: 2, SupplementalGroups: []int64{2, 3}},
		Resources: resources, Mounts: []observed.Mount{data, model}, StopSignal: "SIGRTMIN+3",
	}
	if diff := cmp.Diff(want, oneContainer(t, rt, full).Details); diff != "" {
		t.Errorf("containerd 2 (-want +got):\n%s", diff)
	}

	data.RecursiveReadOnly = false
	want = observed.Details{Mounts: []observed.Mount{data}}
	got := oneContainer(t, critest.New(critest.Containerd16()), func(c *runtimeapi.ContainerConfig) {
		full(c)
		c.Mounts = c.Mounts[:1]
		c.Mounts[0].RecursiveReadOnly = false
	}).Details
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containerd 1.6 (-want +got):\n%s", diff)
	}
}

func TestStopSignalsAreSpelledAsInTheAPI(t *testing.T) {
	for signal, want := range map[runtimeapi.Signal]corev1.Signal{
		runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT:       "",
		runtimeapi.Signal_SIGNAL_SIGTERM:               corev1.SIGTERM,
		runtimeapi.Signal_SIGNAL_SIGUSR1:               corev1.SIGUSR1,
		runtimeapi.Signal_SIGNAL_SIGRTMIN:              corev1.SIGRTMIN,
		runtimeapi.Signal_SIGNAL_SIGRTMINPLUS15:        corev1.SIGRTMINPLUS15,
		runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS1:        corev1.SIGRTMAXMINUS1,
		runtimeapi.Signal_SIGNAL_SIGRTMAX:              corev1.SIGRTMAX,
		runtimeapi.Signal(len(runtimeapi.Signal_name)): "", // one of a newer CRI
	} {
		if got := criclient.SignalName(signal); got != string(want) {
			t.Errorf("%s is spelled %q, want %q", signal, got, want)
		}
	}
	spelling := regexp.MustCompile(`^SIG([A-Z]+[12]?|RTMIN\+[1-9][0-9]?|RTMAX-[1-9][0-9]?)$`)
	for value, name := range runtimeapi.Signal_name {
		if got := criclient.SignalName(runtimeapi.Signal(value)); value != 0 && !spelling.MatchString(got) {
			t.Errorf("%s is spelled %q", name, got)
		}
	}
}

func TestFeaturesOfARuntime(t *testing.T) {
	if got := criclient.Features(nil); !reflect.DeepEqual(got, observed.RuntimeFeatures{}) {
		t.Errorf("of no answer = %+v", got)
	}
	ask := func(cfg critest.Config) observed.RuntimeFeatures {
		resp, err := critest.New(cfg).Status(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return criclient.Features(resp)
	}
	if got := ask(critest.Containerd16()); !reflect.DeepEqual(got, observed.RuntimeFeatures{}) {
		t.Errorf("of containerd 1.6 = %+v, want nothing", got)
	}
	all := observed.HandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
	got := ask(critest.Config{Handlers: []string{"kata"}})
	want := observed.RuntimeFeatures{SupplementalGroupsPolicy: true, Handlers: map[string]observed.HandlerFeatures{"": all, "kata": all}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("of containerd 2 (-want +got):\n%s", diff)
	}
	if got.Handler("kata") != all || got.Handler("nobody") != (observed.HandlerFeatures{}) {
		t.Errorf("Handler = %+v, %+v", got.Handler("kata"), got.Handler("nobody"))
	}
	some := observed.RuntimeFeatures{
		UserNamespacesHostNetwork: true,
		Handlers:                  map[string]observed.HandlerFeatures{"": {UserNamespaces: true}, "gvisor": {}},
	}
	if diff := cmp.Diff(some, ask(critest.Config{Handlers: []string{"gvisor"}, Features: &some})); diff != "" {
		t.Errorf("as configured (-want +got):\n%s", diff)
	}
}

package podruntime_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

func TestNonRoot(t *testing.T) {
	image := func(uid int64) observed.Image { return observed.Image{UID: &uid} }
	user := func(uid int64) *corev1.PodSecurityContext {
		return &corev1.PodSecurityContext{RunAsNonRoot: ptr(true), RunAsUser: &uid}
	}
	asked := &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)}
	const who = ` (pod: "web_default(uid-1)", container: a)`
	for _, tt := range []struct {
		name  string
		pod   *corev1.PodSecurityContext
		own   *corev1.SecurityContext
		image observed.Image
		want  string
	}{
		{"nobody asked", nil, nil, image(0), ""},
		{"said to be unimportant", &corev1.PodSecurityContext{RunAsNonRoot: ptr(false)}, nil, image(0), ""},
		{"the container takes it back", asked, &corev1.SecurityContext{RunAsNonRoot: ptr(false)}, image(0), ""},
		{"the container asks for itself", nil, &corev1.SecurityContext{RunAsNonRoot: ptr(true)}, image(0), "container has runAsNonRoot and image will run as root" + who},
		{"the user is root", user(0), nil, image(1000), "container's runAsUser breaks non-root policy" + who},
		{"the user is not", user(1000), nil, image(0), ""},
		{"the container's user is not", user(0), &corev1.SecurityContext{RunAsUser: ptr(int64(7))}, image(0), ""},
		{"the container's user is root", user(7), &corev1.SecurityContext{RunAsUser: ptr(int64(0))}, image(7), "container's runAsUser breaks non-root policy" + who},
		{"the user counts, whatever name the image has", user(7), nil, observed.Image{UserName: "root"}, ""},
		{"the image is root", asked, nil, image(0), "container has runAsNonRoot and image will run as root" + who},
		{"the image's user is another", asked, nil, image(1), ""},
		{"the largest user", asked, nil, image(math.MaxInt32), ""},
		{"a user beyond", asked, nil, image(math.MaxInt32 + 1), "container has runAsNonRoot and image has an invalid user id (2147483648)" + who},
		{"a user that a 32-bit number makes root", asked, nil, image(1 << 32), "container has runAsNonRoot and image has an invalid user id (4294967296)" + who},
		{"a user below", asked, nil, image(-1), "container has runAsNonRoot and image has an invalid user id (-1)" + who},
		{"the image names nobody", asked, nil, observed.Image{}, "container has runAsNonRoot and image will run as root" + who},
		{"the image has a name for it", asked, nil, observed.Image{UserName: "nobody"},
			"container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root" + who},
	} {
		p := pod("Always", "a")
		p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = tt.pod, tt.own
		got := ""
		if err := podruntime.VerifyNonRoot(p, &p.Spec.Containers[0], tt.image); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestNamesForTheKernel(t *testing.T) {
	for in, want := range map[string]string{
		"kernel.sem":                      "kernel.sem",
		"kernel/sem":                      "kernel.sem",
		"net/ipv4/conf/eth0.1/forwarding": "net.ipv4.conf.eth0/1.forwarding",
		"net.ipv4.conf.eth0/1.forwarding": "net.ipv4.conf.eth0/1.forwarding",
		"":                                "",
		"plain":                           "plain",
	} {
		if got := podruntime.Dotted(in); got != want {
			t.Errorf("Dotted(%q) = %q, want %q", in, got, want)
		}
	}
	for size, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 512 << 20: "512MB", 1 << 30: "1GB", 16 << 30: "16GB", 512: "512B", 0: "0B"} {
		if got := podruntime.PageName(size); got != want {
			t.Errorf("PageName(%d) = %s, want %s", size, got, want)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, cfg := range map[string]podruntime.Config{
		"CPUPeriod 1.5s":       {Resources: podruntime.ResourcePolicy{CPUPeriod: 1500 * time.Millisecond}},
		"CPUPeriod 1ns":        {Resources: podruntime.ResourcePolicy{CPUPeriod: 1}},
		"CPUPeriod -1ms":       {Resources: podruntime.ResourcePolicy{CPUPeriod: -time.Millisecond}},
		"ThrottlingFactor 1.1": {Resources: podruntime.ResourcePolicy{MemoryQoS: podruntime.MemoryQoS{ThrottlingFactor: 1.1}}},
		"ThrottlingFactor NaN": {Resources: podruntime.ResourcePolicy{MemoryQoS: podruntime.MemoryQoS{ThrottlingFactor: math.NaN()}}},
		"HugePageSizes":        {Resources: podruntime.ResourcePolicy{HugePageSizes: []int64{0}}},
		`SeccompRoot "a"`:      {SeccompRoot: "a"},
	} {
		if _, err := podruntime.NewMapper(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestWhatThisKernelHides(t *testing.T) {
	n := newNode(t)
	masked := n.r.MaskedPaths()
	for _, path := range []string{"/proc/kcore", "/proc/keys", "/proc/interrupts", "/sys/firmware", "/sys/devices/virtual/powercap"} {
		if !slices.Contains(masked, path) {
			t.Errorf("%s is not hidden", path)
		}
	}
	throttle, err := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil || len(masked) != 12+len(throttle) {
		t.Errorf("%d paths are hidden, %d of them throttle counters, %v", len(masked), len(throttle), err)
	}
}

// large is a pod with containers that have env variables and mounts each.
func large(containers, env, mounts int) (*corev1.Pod, podruntime.ContainerSpec) {
	names := make([]string, containers)
	for i := range names {
		names[i] = fmt.Sprint("c", i)
	}
	p := pod("Always", names...)
	p.Labels = map[string]string{"app": "web"}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(100)), SupplementalGroups: []int64{1, 2}}
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Resources = corev1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("1", "128Mi")}
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: int32(8000 + i), Protocol: corev1.ProtocolTCP}}
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr(int64(1000)), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	}
	var spec podruntime.ContainerSpec
	for i := range env {
		spec.Env = append(spec.Env, podruntime.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: "some value"})
	}
	for i := range mounts {
		spec.Mounts = append(spec.Mounts, podruntime.Mount{ContainerPath: fmt.Sprint("/mnt/", i), HostPath: fmt.Sprint("/srv/", i), ReadOnly: true})
	}
	return p, spec
}

type mapper interface {
	Sandbox(*corev1.Pod, podruntime.SandboxSpec) (*runtimeapi.PodSandboxConfig, error)
	Container(*corev1.Pod, string, *runtimeapi.PodSandboxConfig, observed.Pod, podruntime.ContainerSpec, observed.Image) (*runtimeapi.ContainerConfig, error)
}

// mapAll maps a whole pod, as one start of it does.
func mapAll(tb testing.TB, m mapper, p *corev1.Pod, spec podruntime.ContainerSpec) {
	sandbox, err := m.Sandbox(p, podruntime.SandboxSpec{Hostname: p.Name})
	if err != nil {
		tb.Fatal(err)
	}
	for c := range podspec.All(p) {
		if _, err := m.Container(p, c.Name, sandbox, observed.Pod{}, spec, observed.Image{ID: "sha256:1"}); err != nil {
			tb.Fatal(err)
		}
	}
}

func newMapper(tb testing.TB) mapper {
	m, err := podruntime.NewMapper(podruntime.Config{NodeMemory: 16 << 30,
		Resources: podruntime.ResourcePolicy{HugePageSizes: []int64{2 << 20, 1 << 30}, CgroupV2: true}})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func BenchmarkMapping10Containers(b *testing.B) {
	m := newMapper(b)
	p, spec := large(10, 20, 10)
	b.ReportAllocs()
	for b.Loop() {
		mapAll(b, m, p, spec)
	}
}

// Ten times as many variables or mounts may cost ten times as much. Memory is
// counted, not time, since it is the same on every machine and every day.
func TestMappingGrowsWithThePodAndNoFaster(t *testing.T) {
	m := newMapper(t)
	cost := func(containers, env, mounts int) float64 {
		p, spec := large(containers, env, mounts)
		return testing.AllocsPerRun(20, func() { mapAll(t, m, p, spec) })
	}
	for name, sizes := range map[string][2][3]int{
		"variables":  {{1, 100, 0}, {1, 1000, 0}},
		"mounts":     {{1, 0, 100}, {1, 0, 1000}},
		"containers": {{5, 5, 5}, {50, 5, 5}},
	} {
		few, many := cost(sizes[0][0], sizes[0][1], sizes[0][2]), cost(sizes[1][0], sizes[1][1], sizes[1][2])
		if many > 11*few {
			t.Errorf("ten times the %s cost %.0f allocations, and %.0f before", name, many, few)
		}
	}
}

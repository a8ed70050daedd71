package podruntime_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Words for strings that have few meanings. Others are just words, and now and then
// these are, too.
var (
	someWords   = []string{"", "a", "web", "../../x", "/abs", "localhost/p", "runtime/default", "\x00é", "Always"}
	wordsOfType = map[reflect.Type][]string{
		reflect.TypeFor[corev1.SeccompProfileType]():       {"RuntimeDefault", "Unconfined", "Localhost"},
		reflect.TypeFor[corev1.AppArmorProfileType]():      {"RuntimeDefault", "Unconfined", "Localhost"},
		reflect.TypeFor[corev1.ProcMountType]():            {"Default", "Unmasked"},
		reflect.TypeFor[corev1.SupplementalGroupsPolicy](): {"Merge", "Strict"},
		reflect.TypeFor[corev1.Signal]():                   {"SIGTERM", "SIGRTMIN+1", "SIGRTMAX-14"},
		reflect.TypeFor[corev1.Protocol]():                 {"TCP", "UDP", "SCTP"},
		reflect.TypeFor[corev1.ResourceName]():             {"cpu", "memory", "hugepages-2Mi", "hugepages-x"},
		reflect.TypeFor[corev1.MountPropagationMode]():     {"", "None", "HostToContainer", "Bidirectional"},
		reflect.TypeFor[corev1.PodQOSClass]():              {"", "Guaranteed", "Burstable", "BestEffort"},
	}
)

// Most IDs are good ones, or no pod would get far.
var someNumbers = []int64{0, 1, 7, 100, 1000, 3000, 65534, math.MaxInt32, 0, 1, 7, 100, 1000, 3000, 65534, 2_000_000_000,
	-1, math.MaxInt32 + 1, 1 << 32, math.MaxInt64, math.MinInt64}

var someQuantities = []string{"0", "1", "100m", "1Gi", "-1", "9223372036854775807", "1e30", "1n"}

// fill makes any value of any type out of dice. It goes depth levels down.
func (d *dice) fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*p = resource.MustParse(someQuantities[d.roll(len(someQuantities))])
		return
	case *metav1.Time, *metav1.FieldsV1:
		return
	case *intstr.IntOrString:
		p.Type, p.IntVal = intstr.Type(d.roll(3)), int32(d.roll(3))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.roll(2) == 1)
	case reflect.String:
		words := someWords
		if own, ok := wordsOfType[v.Type()]; ok && d.roll(16) > 0 {
			words = own
		}
		v.SetString(words[d.roll(len(words))])
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(someNumbers[d.roll(len(someNumbers))])
	case reflect.Uint8:
		v.SetUint(uint64(d.roll(256)))
	case reflect.Float64:
		v.SetFloat(float64(d.roll(10)) / 9)
	case reflect.Pointer:
		if depth > 0 && d.roll(2) == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			d.fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), d.roll(3), 3))
			for i := range v.Len() {
				d.fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if n := d.roll(3); depth > 0 && n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				d.fill(key, depth-1)
				d.fill(value, depth-1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				d.fill(v.Field(i), depth-1)
			}
		}
	}
}

// anyPod has what matters to a runtime; volumes and the like are other rooms'.
func (d *dice) anyPod() *corev1.Pod {
	p := pod("Always", "s:s", "i:i", "a", "b", "e:e")
	for _, part := range []any{&p.Spec.SecurityContext, &p.Spec.HostUsers, &p.Spec.HostNetwork, &p.Spec.HostPID, &p.Spec.HostIPC,
		&p.Spec.ShareProcessNamespace, &p.Spec.Overhead, &p.Spec.Resources, &p.Spec.Priority, &p.Spec.PriorityClassName,
		&p.Annotations, &p.Labels, &p.Status.QOSClass, &p.Spec.TerminationGracePeriodSeconds} {
		d.fill(reflect.ValueOf(part).Elem(), 5)
	}
	for c := range podspec.All(p) {
		for _, part := range []any{&c.SecurityContext, &c.Resources, &c.Ports, &c.Lifecycle, &c.TTY} {
			d.fill(reflect.ValueOf(part).Elem(), 5)
		}
	}
	p.Spec.EphemeralContainers[0].TargetContainerName = []string{"", "a", "b", "none"}[d.roll(4)]
	return p
}

// FuzzConfig maps any pod on any node. What comes out is an error, or something
// that keeps the promises below.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) { mapAny(t, &dice{data}) })
}

// Most of what the dice make has to be mapped, or the promises mean little.
func TestAnyPodIsMappedOrRefused(t *testing.T) {
	mapped := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 2000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		mapped += mapAny(t, &dice{data})
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	if mapped < 200 {
		t.Errorf("%d containers were mapped of 1500", mapped)
	}
}

// mapAny returns how many containers of the pod were mapped.
func mapAny(t *testing.T, d *dice) (mapped int) {
	t.Helper()
	p := d.anyPod()
	cfg := podruntime.Config{NodeMemory: someNumbers[d.roll(len(someNumbers))]}
	d.fill(reflect.ValueOf(&cfg.Resources).Elem(), 3)
	cfg.Resources.CPUPeriod = []time.Duration{0, time.Microsecond, time.Second}[d.roll(3)]
	cfg.Resources.HugePageSizes = [][]int64{nil, {2 << 20}, {64 << 10, 2 << 20, 1 << 30}}[d.roll(3)]
	cfg.SeccompDefault = d.roll(2) == 1
	m, err := podruntime.NewMapper(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var spec podruntime.SandboxSpec
	if d.roll(8) > 0 {
		ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
		spec.UserNamespace = &runtimeapi.UserNamespace{Uids: ids, Gids: ids}
	}
	before := p.DeepCopy()
	sandbox, err := m.Sandbox(p, spec)
	if err != nil {
		return 0
	}
	seen := observed.Pod{Containers: []observed.Container{{ID: "1", Name: "a", State: observed.State(d.roll(4))}}}
	for c := range podspec.All(p) {
		var own podruntime.ContainerSpec
		var image observed.Image
		d.fill(reflect.ValueOf(&own).Elem(), 3)
		d.fill(reflect.ValueOf(&image).Elem(), 3)
		config, err := m.Container(p, c.Name, sandbox, seen, own, image)
		if err != nil {
			continue
		}
		again, err := m.Container(p, c.Name, sandbox, seen, own, image)
		if err != nil || !proto.Equal(config, again) {
			t.Errorf("the same container is mapped in two ways: %v", err)
		}
		checkPromises(t, p, c, sandbox, config)
		mapped++
	}
	if !reflect.DeepEqual(before, p) {
		t.Error("the pod was changed")
	}
	return mapped
}

func checkPromises(t *testing.T, p *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) {
	t.Helper()
	res, sc := config.Linux.Resources, config.Linux.SecurityContext
	if res.CpuShares < 2 || res.CpuShares > 262144 || res.OomScoreAdj < -997 || res.OomScoreAdj > 1000 {
		t.Errorf("resources out of the kernel's range: %v", res)
	}
	if res.CpuQuota != 0 && res.CpuQuota < 1000 {
		t.Errorf("a quota that the kernel does not take: %v", res)
	}
	if u := sc.RunAsUser; u != nil && (u.Value < 0 || u.Value >= math.MaxUint32) {
		t.Errorf("user %d does not exist", u.Value)
	}
	if (sc.RunAsUser == nil) == (sc.RunAsUsername == "") {
		t.Errorf("one user by number or by name is needed: %v, %q", sc.RunAsUser, sc.RunAsUsername)
	}
	nonRoot := p.Spec.SecurityContext != nil && p.Spec.SecurityContext.RunAsNonRoot != nil && *p.Spec.SecurityContext.RunAsNonRoot
	if c.SecurityContext != nil && c.SecurityContext.RunAsNonRoot != nil {
		nonRoot = *c.SecurityContext.RunAsNonRoot
	}
	if nonRoot && sc.RunAsUser.GetValue() == 0 {
		t.Errorf("runAsNonRoot, and it would run as %v %q", sc.RunAsUser, sc.RunAsUsername)
	}
	if sc.Privileged && !sandbox.Linux.SecurityContext.Privileged {
		t.Error("a privileged container in a sandbox that is not")
	}
	if s := sc.Seccomp; s.ProfileType == runtimeapi.SecurityProfile_Localhost {
		if below, err := filepath.Rel("/var/lib/kubelet/seccomp", s.LocalhostRef); err != nil || strings.HasPrefix(below, "..") {
			t.Errorf("seccomp profile %s", s.LocalhostRef)
		}
	}
	own := p.Spec.HostUsers != nil && !*p.Spec.HostUsers
	if mode := sc.NamespaceOptions.UsernsOptions.Mode; own != (mode == runtimeapi.NamespaceMode_POD) {
		t.Errorf("hostUsers %v, user namespace %v", !own, mode)
	}
	if len(sc.MaskedPaths) == 0 && !own {
		t.Error("nothing of /proc is hidden from the node's root")
	}
	for _, m := range config.Mounts {
		if !filepath.IsAbs(m.ContainerPath) || m.RecursiveReadOnly && (!m.Readonly || m.Propagation != 0) ||
			m.Image != nil && (m.HostPath != "" || !m.Readonly) || own != (len(m.UidMappings) > 0 && len(m.GidMappings) > 0) {
			t.Errorf("mount %v with users of its own %v", m, own)
		}
	}
}

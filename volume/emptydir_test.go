package volume

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestMemorySize(t *testing.T) {
	limited := func(limits ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, l := range limits {
			c := corev1.Container{}
			if l != "" {
				c.Resources.Limits = list("memory", l)
			}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
		return pod
	}
	podLevel := limited("", "")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Limits: list("memory", "64Mi")}
	overhead := limited("100Mi")
	overhead.Spec.Overhead = list("memory", "20Mi")
	const mi = 1 << 20
	cases := []struct {
		name  string
		pod   *corev1.Pod
		node  corev1.ResourceList
		limit string
		want  int64
	}{
		{"nothing is known", limited(""), nil, "", 0},
		{"the node", limited(""), list("memory", "1Gi"), "", 1024 * mi},
		{"the volume's own limit", limited(""), list("memory", "1Gi"), "10Mi", 10 * mi},
		{"a limit of zero is none", limited(""), list("memory", "1Gi"), "0", 1024 * mi},
		{"a limit above the node", limited(""), list("memory", "1Gi"), "2Gi", 1024 * mi},
		{"all containers together", limited("100Mi", "50Mi"), list("memory", "1Gi"), "", 150 * mi},
		{"one container without a limit", limited("100Mi", ""), list("memory", "1Gi"), "", 1024 * mi},
		{"the pod's limit below the volume's", limited("100Mi"), list("memory", "1Gi"), "200Mi", 100 * mi},
		{"a limit of the pod as a whole", podLevel, list("memory", "1Gi"), "", 64 * mi},
		{"the cgroup has the overhead too", overhead, list("memory", "1Gi"), "", 120 * mi},
	}
	for _, c := range cases {
		var limit *resource.Quantity
		if c.limit != "" {
			q := resource.MustParse(c.limit)
			limit = &q
		}
		if got := memorySize(c.pod, c.node, limit); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPageSize(t *testing.T) {
	asking := func(names ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, n := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(n, "4Mi", "cpu", "1")}})
		}
		return pod
	}
	cases := []struct {
		name    string
		pod     *corev1.Pod
		medium  corev1.StorageMedium
		want    int64
		problem string
	}{
		{"the only size", asking("hugepages-2Mi"), "HugePages", 2 << 20, ""},
		{"the only size, twice", asking("hugepages-2Mi", "hugepages-2Mi"), "HugePages", 2 << 20, ""},
		{"one of two", asking("hugepages-2Mi", "hugepages-1Gi"), "HugePages-1Gi", 1 << 30, ""},
		{"another unit", asking("hugepages-2Mi"), "HugePages-2048Ki", 2 << 20, ""},
		{"none", asking("memory"), "HugePages", 0, "requests no huge pages"},
		{"two and no choice", asking("hugepages-2Mi", "hugepages-1Gi"), "HugePages", 0, "several sizes"},
		{"one that is not asked for", asking("hugepages-2Mi"), "HugePages-1Gi", 0, "add a hugepages-1Gi limit"},
		{"no size", asking("hugepages-2Mi"), "HugePages-big", 0, "is no page size"},
		{"a negative size", asking("hugepages-2Mi"), "HugePages--2Mi", 0, "is no page size"},
	}
	for _, c := range cases {
		got, err := pageSize(c.pod, c.medium)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %d, %v; want %d, %q", c.name, got, err, c.want, c.problem)
		}
	}
}

func TestWhatIsMounted(t *testing.T) {
	v, k := newFake(t, Config{Allocatable: list("memory", "1Gi")})
	limit := resource.MustParse("1Mi")
	memory := emptyDirOf("mem", corev1.StorageMediumMemory)
	memory.EmptyDir.SizeLimit = &limit
	down := corev1.Volume{Name: "down", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}}
	pod := mounting(emptyDirOf("disk", ""), memory, emptyDirOf("huge", corev1.StorageMediumHugePages), down)
	pod.Spec.Containers[0].Resources.Limits = list("hugepages-2Mi", "4Mi")
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"mount mem tmpfs mode=0777,size=1048576,noswap",
		"mount huge hugetlbfs mode=0777,pagesize=2097152",
		"mount down tmpfs mode=0777,size=1073741824,noswap",
	}
	if !slices.Equal(k.calls, want) {
		t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(k.calls, "\n"), strings.Join(want, "\n"))
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil || len(k.calls) != len(want) {
		t.Errorf("the second SetUp: %v, calls %v", err, k.calls[len(want):])
	}
	// A reboot takes the memory and leaves the markers.
	k.table = nil
	if _, err := v.SetUp(t.Context(), pod); err != nil || len(k.calls) != 2*len(want) {
		t.Errorf("SetUp after a reboot: %v, calls %v", err, k.calls[len(want):])
	}
	// A crash after the mount, before the marker.
	if err := os.Remove(v.pods + "/u1/plugins/kubernetes.io~empty-dir/mem/ready"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil || len(k.calls) != 2*len(want) {
		t.Errorf("SetUp mounts over what is mounted: %v, calls %v", err, k.calls[2*len(want):])
	}
	if err := v.TearDown(t.Context(), "u1"); err != nil || len(k.table) != 0 {
		t.Errorf("TearDown = %v, left %v", err, k.table)
	}
	if _, err := os.Stat(paths["mem"].HostPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after TearDown: %v", err)
	}
}

func TestKernelsWithoutNoswap(t *testing.T) {
	v, k := newFake(t, Config{})
	pod := mounting(emptyDirOf("m", corev1.StorageMediumMemory))
	k.mountErrors = []error{syscall.EINVAL}
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Errorf("SetUp = %v", err)
	}
	if want := []string{"mount m tmpfs mode=0777,noswap", "mount m tmpfs mode=0777"}; !slices.Equal(k.calls, want) {
		t.Errorf("calls = %q, want %q", k.calls, want)
	}
	k.table, k.mountErrors = nil, []error{syscall.EPERM}
	_, err := v.SetUp(t.Context(), pod)
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "run as root on Linux, or set Config.NoTmpfs") {
		t.Errorf("SetUp = %v", err)
	}
}

func TestNoTmpfsMountsNothing(t *testing.T) {
	v, k := newFake(t, Config{NoTmpfs: true})
	down := corev1.Volume{Name: "down", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}}
	if _, err := v.SetUp(t.Context(), mounting(emptyDirOf("m", corev1.StorageMediumMemory), down)); err != nil || len(k.calls) != 0 {
		t.Errorf("SetUp = %v, calls %v", err, k.calls)
	}
	huge := mounting(emptyDirOf("h", corev1.StorageMediumHugePages))
	huge.Spec.Containers[0].Resources.Limits = list("hugepages-2Mi", "4Mi")
	if _, err := v.SetUp(t.Context(), huge); err == nil || !strings.Contains(err.Error(), "does not mount") {
		t.Errorf("SetUp = %v: a directory on disk has no huge pages", err)
	}
}

func TestEmptyDirBeginsWithTheModeItAsksFor(t *testing.T) {
	for mode, want := range map[int32]os.FileMode{
		0o700: 0o700, 0: 0, 0o1777: 0o777 | os.ModeSticky, 0o1000: os.ModeSticky, 0o755: 0o755,
	} {
		for _, medium := range []corev1.StorageMedium{"", "Memory"} {
			vol := emptyDirOf("v", medium)
			vol.EmptyDir.Mode = &mode
			v, _ := newFake(t, Config{})
			ready, err := v.SetUp(t.Context(), mounting(vol))
			if err != nil {
				t.Fatal(err)
			}
			fi, err := os.Stat(ready["v"].HostPath)
			if err != nil {
				t.Fatal(err)
			}
			if got := fi.Mode() &^ os.ModeDir; got != want {
				t.Errorf("%#o on %q: %v, want %v", mode, medium, got, want)
			}
		}
	}
	for _, mode := range []int32{-1, 0o2777} {
		vol := emptyDirOf("v", "")
		vol.EmptyDir.Mode = &mode
		v, _ := newFake(t, Config{})
		if _, err := v.SetUp(t.Context(), mounting(vol)); err == nil || !strings.Contains(err.Error(), "between 0 and 01777") {
			t.Errorf("%#o: error %v", mode, err)
		}
	}
}

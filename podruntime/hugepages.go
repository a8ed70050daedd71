package podruntime

import (
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kernelHugePages are the page sizes that this machine's kernel offers, in bytes.
// A machine without any has no such directory.
func kernelHugePages() []int64 {
	entries, _ := os.ReadDir("/sys/kernel/mm/hugepages")
	var sizes []int64
	for _, e := range entries {
		kib, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, isKiB := strings.CutSuffix(kib, "kB")
		if n, err := strconv.ParseInt(kib, 10, 43); ok && isKiB && err == nil && n > 0 {
			sizes = append(sizes, n<<10)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// pageName is the name of a page size in the kernel's file names: 64KB, 2MB, 1GB.
func pageName(size int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; size >= 1024 && i < len(units)-1; i++ {
		size /= 1024
	}
	return strconv.FormatInt(size, 10) + units[i]
}

// hugePageLimits has an entry for every page size of the node. One without a limit
// would be free for all.
func (r rules) hugePageLimits(pod *corev1.Pod, c *corev1.Container) []*runtimeapi.HugepageLimit {
	if len(r.HugePageSizes) == 0 {
		return nil
	}
	limits := make([]*runtimeapi.HugepageLimit, len(r.HugePageSizes))
	for i, size := range r.HugePageSizes {
		limits[i] = &runtimeapi.HugepageLimit{PageSize: pageName(size)}
	}
	set := func(list corev1.ResourceList) {
		for name, q := range list {
			if i := slices.Index(r.HugePageSizes, pageSize(name)); i >= 0 {
				limits[i].Limit = uint64(max(q.Value(), 0))
			}
		}
	}
	if pod.Spec.Resources != nil {
		set(pod.Spec.Resources.Limits)
	}
	set(c.Resources.Limits)
	return limits
}

// pageSize reads the size out of a name such as hugepages-2Mi; 0 for other names.
func pageSize(name corev1.ResourceName) int64 {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return 0
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0
	}
	return q.Value()
}

// checkHugePages refuses pages of a size that the node has not. The kernel could
// neither give nor limit them.
func (r rules) checkHugePages(limits corev1.ResourceList, path func() *field.Path) error {
	for name, q := range limits {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && !q.IsZero() &&
			!slices.Contains(r.HugePageSizes, pageSize(name)) {
			return field.Forbidden(path().Child("resources", "limits").Key(string(name)), "the node has no pages of this size")
		}
	}
	return nil
}

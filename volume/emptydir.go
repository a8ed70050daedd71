package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/podspec"
)

func (v *Volumes) setUpEmptyDir(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (string, error) {
	src := vol.EmptyDir
	if src == nil { // the API server's default for a volume without a source
		src = &corev1.EmptyDirVolumeSource{}
	}
	mode, err := dirMode(src.Mode)
	if err != nil {
		return "", fmt.Errorf("emptyDir mode: %w", err)
	}
	on, err := v.emptyDirBacking(pod, src)
	if err != nil {
		return "", fmt.Errorf("emptyDir medium %q: %w", src.Medium, err)
	}
	return v.makeDir(ctx, pod, pluginEmptyDir, vol.Name, mode, on)
}

// forAll is open to every user of the pod's containers.
const forAll fs.FileMode = 0o777

// dirMode is what an emptyDir begins with. The API allows up to 01777: a sticky
// directory, as /tmp is.
func dirMode(mode *int32) (fs.FileMode, error) {
	if mode == nil {
		return forAll, nil
	}
	if *mode < 0 || *mode > 0o1777 {
		return 0, fmt.Errorf("%d must be a number between 0 and 01777 (octal), both inclusive", *mode)
	}
	own := fs.FileMode(*mode) & fs.ModePerm
	if *mode&0o1000 != 0 {
		own |= fs.ModeSticky
	}
	return own, nil
}

func (v *Volumes) emptyDirBacking(pod *corev1.Pod, src *corev1.EmptyDirVolumeSource) (backing, error) {
	switch {
	case src.Medium == corev1.StorageMediumDefault:
		return backing{}, nil
	case src.Medium == corev1.StorageMediumMemory:
		return v.memory(pod, src.SizeLimit), nil
	case src.Medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(src.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		size, err := pageSize(pod, src.Medium)
		if err != nil {
			return backing{}, err
		}
		if v.cfg.NoTmpfs {
			return backing{}, errors.New("this node does not mount, and a directory on its disk has no huge pages")
		}
		return backing{hugetlbfs, fmt.Sprintf("mode=0777,pagesize=%d", size)}, nil
	default:
		return backing{}, fmt.Errorf("%w: use Memory, HugePages, HugePages-<size> or leave it empty", ErrUnsupported)
	}
}

// memory is a tmpfs for the pod, or its disk where nothing may be mounted.
func (v *Volumes) memory(pod *corev1.Pod, limit *resource.Quantity) backing {
	if v.cfg.NoTmpfs {
		return backing{}
	}
	options := "mode=0777"
	if size := memorySize(pod, v.cfg.Allocatable, limit); size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	return backing{tmpfs, options}
}

// memorySize is the smallest of what the node has for pods, what the pod as a
// whole may use, and the volume's own limit (KEP-1967). 0 is no bound.
func memorySize(pod *corev1.Pod, allocatable corev1.ResourceList, limit *resource.Quantity) int64 {
	var size int64
	bound := func(q resource.Quantity) {
		if n := q.Value(); n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	bound(allocatable[corev1.ResourceMemory])
	if podspec.AllLimited(pod, corev1.ResourceMemory) {
		bound(podspec.Limits(pod)[corev1.ResourceMemory])
	}
	if limit != nil {
		bound(*limit)
	}
	return size
}

// pageSize is the size in the medium's name, or else the only one that the pod has
// huge pages of. Either must be among what the pod asks for: a page that is not
// counted can't be used.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	asked := hugePages(pod)
	if medium == corev1.StorageMediumHugePages {
		switch len(asked) {
		case 0:
			return 0, errors.New("the pod requests no huge pages, add a hugepages-<size> limit to a container")
		case 1:
			for size := range asked {
				return size, nil
			}
		}
		return 0, errors.New("the pod requests huge pages of several sizes, use the medium HugePages-<size>")
	}
	name := strings.TrimPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	q, err := resource.ParseQuantity(name)
	if err != nil || q.Value() <= 0 {
		return 0, fmt.Errorf("%q is no page size, use one like 2Mi", name)
	}
	if !asked[q.Value()] {
		return 0, fmt.Errorf("the pod requests no huge pages of that size, add a %s%s limit to a container", corev1.ResourceHugePagesPrefix, name)
	}
	return q.Value(), nil
}

// hugePages has the sizes of the huge pages that the pod asks for.
func hugePages(pod *corev1.Pod) map[int64]bool {
	sizes := map[int64]bool{}
	add := func(all ...corev1.ResourceList) {
		for _, list := range all {
			for name := range list {
				size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
				if q, err := resource.ParseQuantity(size); ok && err == nil && q.Value() > 0 {
					sizes[q.Value()] = true
				}
			}
		}
	}
	for c := range podspec.All(pod) {
		add(c.Resources.Requests, c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil {
		add(r.Requests, r.Limits)
	}
	return sizes
}

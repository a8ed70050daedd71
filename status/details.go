package status

import (
	"math"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// setDetails fills in what the runtime tells of the instance beside its state. What
// it does not tell again of the same instance stays as it was reported: an old
// record, and one that was recalled, has less.
func setDetails(in *Input, c *corev1.Container, kind podspec.Kind, st, old *corev1.ContainerStatus, seen observed.Details) {
	same := old != nil && old.ContainerID != "" && old.ContainerID == st.ContainerID
	switch {
	case seen.User != nil:
		st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
			UID: seen.User.UID, GID: seen.User.GID, SupplementalGroups: seen.User.SupplementalGroups,
		}}
	case same:
		st.User = old.User
	}
	switch {
	case seen.StopSignal != "":
		signal := corev1.Signal(seen.StopSignal)
		st.StopSignal = &signal
	case same:
		st.StopSignal = old.StopSignal
	}
	switch {
	case seen.Mounts != nil:
		st.VolumeMounts = volumeMounts(c, seen.Mounts)
	case same:
		st.VolumeMounts = old.VolumeMounts
	}
	if kind == podspec.Ephemeral {
		return // it has no resources of its own
	}
	var before *corev1.ResourceRequirements
	if same {
		before = old.Resources
	}
	st.Resources = resources(in, c, st, seen.Resources, before)
	st.AllocatedResources = c.Resources.Requests.DeepCopy()
}

// maxImageRef is the API's limit for the reference of a mounted image.
const maxImageRef = 256

// volumeMounts says of each mount in the spec what became of it (KEP-3857).
func volumeMounts(c *corev1.Container, mounts []observed.Mount) []corev1.VolumeMountStatus {
	at := make(map[string]observed.Mount, len(mounts))
	for _, m := range mounts {
		at[path.Clean(m.ContainerPath)] = m
	}
	var list []corev1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		seen := at[path.Clean("/"+m.MountPath)]
		vs := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if seen.RecursiveReadOnly {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			vs.RecursiveReadOnly = &mode
		}
		if seen.Image != "" && len(seen.Image) <= maxImageRef {
			vs.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: seen.Image}}
		}
		list = append(list, vs)
	}
	return list
}

// resources are those in force for a running container, and the allocated ones for
// any other. In force is what the runtime tells, else what was asked of it, else
// what was reported before.
func resources(in *Input, c *corev1.Container, st *corev1.ContainerStatus, seen *observed.Resources, before *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	res := c.Resources.DeepCopy()
	if st.State.Running == nil {
		return res
	}
	if seen == nil {
		seen = &observed.Resources{}
	}
	if before == nil {
		before = &corev1.ResourceRequirements{}
	}
	asked := in.Actuated[c.Name]
	inForce(res.Limits, corev1.ResourceCPU, quota{seen.CPUQuota, seen.CPUPeriod}, asked.Limits, before.Limits)
	inForce(res.Limits, corev1.ResourceMemory, bytes(seen.MemoryLimit), asked.Limits, before.Limits)
	inForce(res.Requests, corev1.ResourceCPU, shares(seen.CPUShares), asked.Requests, before.Requests)
	// No runtime knows a memory request.
	inForce(res.Requests, corev1.ResourceMemory, bytes(0), asked.Requests, before.Requests)
	return res
}

// kernel is a value in the kernel's units.
type kernel interface {
	// told is false when the runtime said nothing.
	told() bool
	// is reports whether this is what the kernel's units make of the quantity.
	is(q resource.Quantity) bool
	// near allows for a runtime that reads it back from coarser units.
	near(q resource.Quantity) bool
	quantity() *resource.Quantity
}

// inForce replaces the allocated quantity by the one in force. A value that the
// kernel's units make of a quantity is that quantity: nobody wants to read of a
// request for 100m that it is 99m. Only resources that are allocated are reported.
func inForce(allocated corev1.ResourceList, name corev1.ResourceName, seen kernel, asked, before corev1.ResourceList) {
	want, ok := allocated[name]
	if !ok {
		return
	}
	last, known := asked[name]
	switch {
	case seen.told() && (seen.is(want) || !known && seen.near(want)):
	case seen.told() && known && seen.near(last):
		allocated[name] = last.DeepCopy()
	case seen.told():
		allocated[name] = *seen.quantity()
	case known:
		allocated[name] = last.DeepCopy()
	default:
		if q, ok := before[name]; ok {
			allocated[name] = q.DeepCopy()
		}
	}
}

type bytes int64

func (b bytes) told() bool                    { return b > 0 }
func (b bytes) is(q resource.Quantity) bool   { return q.Value() == int64(b) }
func (b bytes) near(q resource.Quantity) bool { return b.is(q) }
func (b bytes) quantity() *resource.Quantity {
	return resource.NewQuantity(int64(b), resource.BinarySI)
}

type quota struct{ quota, period int64 }

func (k quota) told() bool { return k.quota > 0 && k.period > 0 }
func (k quota) is(q resource.Quantity) bool {
	return podspec.CPUQuota(podspec.Milli(q), k.period) == k.quota
}
func (k quota) near(q resource.Quantity) bool { return k.is(q) }
func (k quota) quantity() *resource.Quantity {
	return milli(float64(k.quota) * 1000 / float64(k.period))
}

type shares int64

func (s shares) told() bool                  { return s > 0 }
func (s shares) is(q resource.Quantity) bool { return podspec.CPUShares(podspec.Milli(q)) == int64(s) }

// near: the weights of cgroup v2, 1 to 10000, are too few for all shares.
func (s shares) near(q resource.Quantity) bool {
	d := weight(podspec.CPUShares(podspec.Milli(q))) - weight(int64(s))
	return -1 <= d && d <= 1
}

func (s shares) quantity() *resource.Quantity { return milli(math.Ceil(float64(s) * 1000 / 1024)) }

// weight is what cgroup v2 has for shares (KEP-2254).
func weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

func milli(n float64) *resource.Quantity {
	return resource.NewMilliQuantity(int64(n), resource.DecimalSI)
}

// setPodResources fills in the resources of the pod as a whole (KEP-5419).
func setPodResources(in *Input, st *corev1.PodStatus) {
	if sum := podspec.WithoutOverhead(in.Pod).Requests; len(sum) > 0 {
		st.AllocatedResources = sum
	}
	switch {
	case in.Pod.Spec.Resources == nil:
	case in.ActuatedPod != nil:
		st.Resources = in.ActuatedPod.DeepCopy()
	default:
		st.Resources = in.Pod.Spec.Resources.DeepCopy()
	}
}

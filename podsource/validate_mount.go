package podsource

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) mounts(ctr *corev1.Container, at *field.Path) {
	paths, mounted := sets.New[string](), sets.New[string]()
	privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
	for i := range ctr.VolumeMounts {
		m, at := &ctr.VolumeMounts[i], at.Child("volumeMounts").Index(i)
		if c.required(at.Child("name"), m.Name) && c.volumes[m.Name] == nil {
			c.add(field.NotFound(at.Child("name"), m.Name))
		}
		mounted.Insert(m.Name)
		if c.required(at.Child("mountPath"), m.MountPath) {
			c.unique(paths, at.Child("mountPath"), m.MountPath)
		}
		c.mount(m, at, privileged)
	}
	for i, d := range ctr.VolumeDevices {
		at := at.Child("volumeDevices").Index(i)
		c.device(&d, at, mounted)
		if c.required(at.Child("devicePath"), d.DevicePath) {
			c.noUpwards(at.Child("devicePath"), d.DevicePath)
			c.unique(paths, at.Child("devicePath"), d.DevicePath)
		}
	}
	c.forbid(len(ctr.VolumeDevices) > 0 && c.spec.HostUsers != nil && !*c.spec.HostUsers,
		at.Child("volumeDevices"), "when `hostUsers` is false")
}

func (c *checker) unique(paths sets.Set[string], at *field.Path, p string) {
	c.invalid(paths.Has(p), at, p, "must be unique")
	paths.Insert(p)
}

func (c *checker) mount(m *corev1.VolumeMount, at *field.Path, privileged bool) {
	if m.SubPath != "" {
		c.relative(at.Child("subPath"), m.SubPath)
	}
	if m.SubPathExpr != "" {
		c.relative(at.Child("subPathExpr"), m.SubPathExpr)
		c.invalid(m.SubPath != "", at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
	}
	spreads := m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone
	oneOf(c, at.Child("mountPropagation"), m.MountPropagation, corev1.MountPropagationNone,
		corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
	c.forbid(spreads && *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged,
		at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
	deep := m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled
	oneOf(c, at.Child("recursiveReadOnly"), m.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled,
		corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	c.forbid(deep && !m.ReadOnly, at.Child("recursiveReadOnly"), "may only be specified when readOnly is true")
	c.forbid(deep && spreads, at.Child("recursiveReadOnly"), "may only be specified when mountPropagation is None or not specified")
	options := sets.New[string]()
	for i, option := range m.BindMountOptions {
		at := at.Child("bindMountOptions").Index(i)
		oneOf(c, at, &option, "noexec", "nodev", "nosuid")
		twice(c, options, at, option)
	}
	v := c.volumes[m.Name]
	c.forbid(len(m.BindMountOptions) > 0 && v != nil && v.Image != nil, at.Child("bindMountOptions"), "may not be set for image volumes")
}

// device checks one block device. A static pod can't have the volumes for it, so
// this is about the reason that it is told.
func (c *checker) device(d *corev1.VolumeDevice, at *field.Path, mounted sets.Set[string]) {
	at = at.Child("name")
	if !c.required(at, d.Name) {
		return
	}
	v := c.volumes[d.Name]
	switch {
	case v == nil:
		c.add(field.NotFound(at, d.Name))
	case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
		c.add(field.Invalid(at, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
	}
	c.invalid(mounted.Has(d.Name), at, d.Name, "must not already exist in volumeMounts")
}

// relative checks a path that must stay inside its volume.
func (c *checker) relative(at *field.Path, p string) {
	if c.required(at, p) {
		c.invalid(path.IsAbs(p), at, p, "must be a relative path")
		c.noUpwards(at, p)
	}
}

// newFile checks the path of a file in a volume that is written as a whole: the
// names that begin with two dots are kept for swapping its content.
func (c *checker) newFile(at *field.Path, p string) {
	c.relative(at, p)
	c.invalid(strings.HasPrefix(p, "..") && !goesUp(p), at, p, "must not start with '..'")
}

func goesUp(p string) bool { return slices.Contains(strings.Split(p, "/"), "..") }

func (c *checker) noUpwards(at *field.Path, p string) {
	c.invalid(goesUp(p), at, p, "must not contain '..'")
}

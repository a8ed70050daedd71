package podsync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// mounts are the container's volumes, in its order.
func (s *Syncer) mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, start podruntime.Start, env podenv.Env, g ground) ([]podruntime.Mount, error) {
	var all []podruntime.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		v, ok := g.volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
		}
		one := podruntime.Mount{
			ContainerPath: m.MountPath, HostPath: v.HostPath, ReadOnly: m.ReadOnly || v.ReadOnly, SELinuxRelabel: v.SELinuxRelabel,
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			one.Propagation = *m.MountPropagation
		}
		var err error
		if one.RecursiveReadOnly, err = recursiveReadOnly(m, one.ReadOnly, g); err != nil {
			return nil, fmt.Errorf("mount volume %q into container %q: %w", m.Name, c.Name, err)
		}
		path := m.SubPath
		if m.SubPathExpr != "" {
			if path, err = env.SubPath(m.SubPathExpr); err != nil {
				return nil, fmt.Errorf("mount volume %q into container %q: %w", m.Name, c.Name, err)
			}
		}
		switch image, ok := start.Images[m.Name]; {
		case ok:
			one.Image, one.ImageSubPath = &image, path
		case path != "":
			one.HostPath, err = s.cfg.Volumes.SubPath(ctx, volume.SubPath{
				Pod: pod, Container: c.Name, Index: i, Volume: m.Name, Path: path, ReadOnly: one.ReadOnly,
			})
			if err != nil {
				return nil, fmt.Errorf("mount volume %q into container %q: %w", m.Name, c.Name, err)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// recursiveReadOnly decides whether mounts below the volume are read-only, too
// (KEP-3857). The runtime's handler has to know how.
func recursiveReadOnly(m *corev1.VolumeMount, readOnly bool, g ground) (bool, error) {
	if m.RecursiveReadOnly == nil {
		return false, nil
	}
	switch mode := *m.RecursiveReadOnly; mode {
	case corev1.RecursiveReadOnlyDisabled:
		return false, nil
	case corev1.RecursiveReadOnlyIfPossible:
		return readOnly && g.can.RecursiveReadOnlyMounts, nil
	case corev1.RecursiveReadOnlyEnabled:
		if !readOnly {
			return false, fmt.Errorf("recursiveReadOnly %q needs readOnly", mode)
		}
		if !g.can.RecursiveReadOnlyMounts {
			return false, fmt.Errorf("recursiveReadOnly %q is not supported by runtime handler %q", mode, g.sandbox.RuntimeHandler)
		}
		return true, nil
	default:
		return false, fmt.Errorf("recursiveReadOnly %q is unknown", mode)
	}
}

package podruntime

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// volumeImages are the images of a pod's image volumes (KEP-4639) as far as one
// pass has asked for them. Each volume is asked for once in a pass, so that two
// containers that mount it see the same image, or fail with the same words.
type volumeImages map[string]volumeImage

type volumeImage struct {
	image observed.Image
	err   error
}

// imageVolumes makes the images present that the container mounts, by volume name.
func (r *Runtime) imageVolumes(ctx context.Context, s starting) (map[string]observed.Image, *StartFailure) {
	var images map[string]observed.Image
	for _, m := range s.c.VolumeMounts {
		source := imageSource(s.pod, m.Name)
		if source == nil {
			continue
		}
		v, asked := s.volumes[m.Name]
		if !asked {
			v.image, v.err = r.cfg.Images.EnsureImage(ctx, s.pod, &corev1.Container{
				Name: s.c.Name, Image: source.Reference, ImagePullPolicy: source.PullPolicy,
			}, s.sandbox.Config)
			s.volumes[m.Name] = v
		}
		r.cfg.Hooks.ImageVolume(s.pod, s.c.Name, m.Name, v.err)
		if v.err != nil {
			failure := r.imageFailed(ctx, s, v.err)
			failure.Message = fmt.Sprintf("image of volume %s: %s", m.Name, failure.Message)
			return nil, failure
		}
		if images == nil {
			images = make(map[string]observed.Image)
		}
		images[m.Name] = v.image
	}
	return images, nil
}

// hintAtImages ends the message of a runtime that did not make a container. One that
// does not know image volumes takes them for a path of the host that is empty, and
// its words are of no help.
func hintAtImages(images map[string]observed.Image) string {
	if len(images) == 0 {
		return ""
	}
	return " (the container mounts an image as a volume, for which the runtime has to be containerd 2.1, CRI-O 1.31 or newer)"
}

// imageSource is nil for a volume of another kind, and for one that is not there.
func imageSource(pod *corev1.Pod, volume string) *corev1.ImageVolumeSource {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volume {
			return v.Image
		}
	}
	return nil
}

package podspec

import (
	corev1 "k8s.io/api/core/v1"
)

// Object names one object that a pod reads, in the pod's own namespace.
type Object struct {
	Kind string // KindConfigMap or KindSecret
	Name string
}

// The kinds of [Object].
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
)

// References returns the config maps and secrets that the pod reads: in its
// containers' environment, in its volumes, and to pull its images. Optional ones
// count: they are looked for.
func References(pod *corev1.Pod) map[Object]struct{} {
	all := make(map[Object]struct{})
	add := func(kind, name string) {
		if name != "" {
			all[Object{kind, name}] = struct{}{}
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(KindSecret, s.Name)
	}
	for c := range All(pod) {
		for i := range c.EnvFrom {
			if r := c.EnvFrom[i].ConfigMapRef; r != nil {
				add(KindConfigMap, r.Name)
			}
			if r := c.EnvFrom[i].SecretRef; r != nil {
				add(KindSecret, r.Name)
			}
		}
		for i := range c.Env {
			from := c.Env[i].ValueFrom
			if from == nil {
				continue
			}
			if r := from.ConfigMapKeyRef; r != nil {
				add(KindConfigMap, r.Name)
			}
			if r := from.SecretKeyRef; r != nil {
				add(KindSecret, r.Name)
			}
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.ConfigMap != nil {
			add(KindConfigMap, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add(KindSecret, v.Secret.SecretName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(KindConfigMap, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(KindSecret, s.Secret.Name)
			}
		}
	}
	return all
}

// MountedVolumes has the names of the volumes that some container of the pod
// mounts, or uses as a device. The others are nobody's business on the node.
func MountedVolumes(pod *corev1.Pod) map[string]bool {
	names := make(map[string]bool, len(pod.Spec.Volumes))
	for c := range All(pod) {
		for i := range c.VolumeMounts {
			names[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			names[c.VolumeDevices[i].Name] = true
		}
	}
	return names
}

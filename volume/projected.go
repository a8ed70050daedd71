package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// fromProjected puts all sources into one payload. Where two of them have a file of
// the same name, the later one counts; a path that two lists of items spell out is
// a mistake, as in the API server's validation.
func (v *Volumes) fromProjected(ctx context.Context, pod *corev1.Pod, src *corev1.ProjectedVolumeSource) (payload, error) {
	common := rights{src.DefaultMode, src.DefaultUser}
	if err := common.check(); err != nil {
		return nil, err
	}
	all := payload{}
	spelled := map[string]bool{}
	for i := range src.Sources {
		one := &src.Sources[i]
		files, err := v.fromProjection(ctx, pod, one, common)
		if err != nil {
			return nil, fmt.Errorf("projected source %d: %w", i+1, err)
		}
		for name, f := range files {
			if spellsOut(one) {
				if spelled[name] {
					return nil, fmt.Errorf("projected source %d: conflicting duplicate paths: %s", i+1, name)
				}
				spelled[name] = true
			}
			all[name] = f
		}
	}
	return all, nil
}

func (v *Volumes) fromProjection(ctx context.Context, pod *corev1.Pod, one *corev1.VolumeProjection, common rights) (payload, error) {
	switch {
	case one.ConfigMap != nil:
		s := one.ConfigMap
		return v.fromConfigMap(ctx, pod, s.Name, s.Items, common, s.Optional)
	case one.Secret != nil:
		s := one.Secret
		return v.fromSecret(ctx, pod, s.Name, s.Items, common, s.Optional)
	case one.DownwardAPI != nil:
		return v.fromDownwardAPI(pod, one.DownwardAPI.Items, common)
	case one.ServiceAccountToken != nil:
		return nil, fmt.Errorf("serviceAccountToken: %w: it needs an API server, which makes tokens", ErrUnsupported)
	case one.ClusterTrustBundle != nil:
		return nil, fmt.Errorf("clusterTrustBundle: %w: it needs an API server, which has bundles", ErrUnsupported)
	case one.PodCertificate != nil:
		return nil, fmt.Errorf("podCertificate: %w: it needs an API server, which has them signed", ErrUnsupported)
	default:
		return nil, fmt.Errorf("names nothing this version knows: %w", ErrUnsupported)
	}
}

// spellsOut reports whether the paths are the pod's own words.
func spellsOut(one *corev1.VolumeProjection) bool {
	return one.DownwardAPI != nil ||
		one.ConfigMap != nil && len(one.ConfigMap.Items) > 0 ||
		one.Secret != nil && len(one.Secret.Items) > 0
}

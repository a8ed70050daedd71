package podsource

import corev1 "k8s.io/api/core/v1"

// defaultVolume fills one volume; one without any source is an emptyDir.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		pointTo(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		pointTo(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		pointTo(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		pointTo(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Image != nil {
		orElse(&v.Image.PullPolicy, pullPolicyFor(v.Image.Reference))
	}
	defaultNetworkVolume(v)
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	pointTo(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, from := range p.Sources {
		if from.DownwardAPI != nil {
			defaultDownwardItems(from.DownwardAPI.Items)
		}
		if from.ServiceAccountToken != nil {
			pointTo(&from.ServiceAccountToken.ExpirationSeconds, 3600)
		}
	}
}

func defaultNetworkVolume(v *corev1.Volume) {
	if v.ISCSI != nil {
		orElse(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		orElse(&v.RBD.RBDPool, "rbd")
		orElse(&v.RBD.RadosUser, "admin")
		orElse(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		pointTo(&v.AzureDisk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		pointTo(&v.AzureDisk.Kind, corev1.AzureSharedBlobDisk)
		pointTo(&v.AzureDisk.FSType, "ext4")
		pointTo(&v.AzureDisk.ReadOnly, false)
	}
	if v.ScaleIO != nil {
		orElse(&v.ScaleIO.StorageMode, "ThinProvisioned")
		orElse(&v.ScaleIO.FSType, "xfs")
	}
}

package podsource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// makeStatic gives a decoded pod its place on this node.
func makeStatic(pod *corev1.Pod, from Origin, hash string) {
	clearServerFields(&pod.ObjectMeta)
	if pod.UID == "" {
		pod.UID = types.UID(hash)
	}
	if pod.Name != "" {
		// One manifest runs on many nodes; their mirrors share a namespace.
		pod.Name += "-" + strings.ToLower(from.Node)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = from.Node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationHash] = string(pod.UID)
	if from.Kind == SourceFile {
		// A node's own pods outlive its taints.
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Operator: corev1.TolerationOpExists,
			Effect:   corev1.TaintEffectNoExecute,
		})
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
}

// clearServerFields removes what a manifest saved from a running pod carries and
// the API server would not take from a client either. A deletionTimestamp, for
// one, would end the pod at once, and a mirror annotation would hide it.
func clearServerFields(m *metav1.ObjectMeta) {
	m.GenerateName, m.ResourceVersion, m.Generation = "", "", 0
	m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = metav1.Time{}, nil, nil
	m.ManagedFields = nil
	for _, key := range []string{AnnotationSource, AnnotationSeen, AnnotationMirror} {
		delete(m.Annotations, key)
	}
}

// forbiddenReferences finds what a static pod can't have because only the API
// server knows it. It must run where no API server can be asked. ConfigMaps and
// Secrets are fine where the node has a store of its own for them.
func forbiddenReferences(pod *corev1.Pod, hasObjects bool) field.ErrorList {
	var errs field.ErrorList
	forbid := func(is bool, path *field.Path, kind string) {
		if is {
			errs = append(errs, field.Forbidden(path, "static pods may not reference "+kind))
		}
	}
	spec := field.NewPath("spec")
	forbid(pod.Spec.ServiceAccountName != "", spec.Child("serviceAccountName"), "serviceaccounts")
	forbid(pod.Spec.DeprecatedServiceAccount != "", spec.Child("serviceAccount"), "serviceaccounts")
	forbid(len(pod.Spec.ResourceClaims) > 0, spec.Child("resourceClaims"), "resourceclaims")
	eachContainer(&pod.Spec, func(c *corev1.Container, path *field.Path) {
		forbid(len(c.Resources.Claims) > 0, path.Child("resources", "claims"), "resourceclaims")
	})
	for i := range pod.Spec.Volumes {
		forbiddenVolume(&pod.Spec.Volumes[i], spec.Child("volumes").Index(i), forbid)
	}
	if !hasObjects {
		objectReferences(&pod.Spec, spec, forbid)
	}
	return errs
}

// objectReferences calls found for each reference to a ConfigMap or Secret.
func objectReferences(pod *corev1.PodSpec, spec *field.Path, found func(bool, *field.Path, string)) {
	found(len(pod.ImagePullSecrets) > 0, spec.Child("imagePullSecrets"), "secrets")
	eachContainer(pod, func(c *corev1.Container, path *field.Path) {
		for i, from := range c.EnvFrom {
			at := path.Child("envFrom").Index(i)
			found(from.SecretRef != nil, at.Child("secretRef"), "secrets")
			found(from.ConfigMapRef != nil, at.Child("configMapRef"), "configmaps")
		}
		for i, env := range c.Env {
			if from := env.ValueFrom; from != nil {
				at := path.Child("env").Index(i).Child("valueFrom")
				found(from.SecretKeyRef != nil, at.Child("secretKeyRef"), "secrets")
				found(from.ConfigMapKeyRef != nil, at.Child("configMapKeyRef"), "configmaps")
			}
		}
	})
	for i, v := range pod.Volumes {
		at := spec.Child("volumes").Index(i)
		found(v.Secret != nil, at.Child("secret"), "secrets")
		found(v.ConfigMap != nil, at.Child("configMap"), "configmaps")
		if v.Projected == nil {
			continue
		}
		for j, from := range v.Projected.Sources {
			at := at.Child("projected", "sources").Index(j)
			found(from.Secret != nil, at.Child("secret"), "secrets")
			found(from.ConfigMap != nil, at.Child("configMap"), "configmaps")
		}
	}
}

func forbiddenVolume(v *corev1.Volume, path *field.Path, forbid func(bool, *field.Path, string)) {
	forbid(v.PersistentVolumeClaim != nil, path.Child("persistentVolumeClaim"), "persistentvolumeclaims")
	forbid(v.Ephemeral != nil, path.Child("ephemeral"), "persistentvolumeclaims")
	forbid(v.CSI != nil, path.Child("csi"), "csidrivers")
	forbid(v.Glusterfs != nil, path.Child("glusterfs"), "endpoints")
	forbid(v.AzureFile != nil, path.Child("azureFile"), "secrets")
	forbid(v.CephFS != nil && v.CephFS.SecretRef != nil, path.Child("cephfs", "secretRef"), "secrets")
	forbid(v.Cinder != nil && v.Cinder.SecretRef != nil, path.Child("cinder", "secretRef"), "secrets")
	forbid(v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, path.Child("flexVolume", "secretRef"), "secrets")
	forbid(v.ISCSI != nil && v.ISCSI.SecretRef != nil, path.Child("iscsi", "secretRef"), "secrets")
	forbid(v.RBD != nil && v.RBD.SecretRef != nil, path.Child("rbd", "secretRef"), "secrets")
	forbid(v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, path.Child("scaleIO", "secretRef"), "secrets")
	forbid(v.StorageOS != nil && v.StorageOS.SecretRef != nil, path.Child("storageos", "secretRef"), "secrets")
	if v.Projected == nil {
		return
	}
	for i, from := range v.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		forbid(from.ServiceAccountToken != nil, at.Child("serviceAccountToken"), "serviceaccounts")
		forbid(from.ClusterTrustBundle != nil, at.Child("clusterTrustBundle"), "clustertrustbundles")
		forbid(from.PodCertificate != nil, at.Child("podCertificate"), "podcertificaterequests")
	}
}

// eachContainer visits init containers and containers, in the order they start.
func eachContainer(spec *corev1.PodSpec, visit func(c *corev1.Container, path *field.Path)) {
	at := field.NewPath("spec")
	for i := range spec.InitContainers {
		visit(&spec.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		visit(&spec.Containers[i], at.Child("containers").Index(i))
	}
}

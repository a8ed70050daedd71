package volume

import (
	"fmt"
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// The names that the kubelet has for the kinds of volumes. Directories, metrics
// and the tools of others use them.
const (
	pluginEmptyDir    = "kubernetes.io/empty-dir"
	pluginHostPath    = "kubernetes.io/host-path"
	pluginConfigMap   = "kubernetes.io/configmap"
	pluginSecret      = "kubernetes.io/secret"
	pluginProjected   = "kubernetes.io/projected"
	pluginDownwardAPI = "kubernetes.io/downward-api"
	pluginImage       = "kubernetes.io/image"
)

// pluginOf names the kind of a volume; a kind that is not served goes by its
// field name in the API.
func pluginOf(vol *corev1.Volume) string {
	switch {
	case vol.HostPath != nil:
		return pluginHostPath
	case vol.ConfigMap != nil:
		return pluginConfigMap
	case vol.Secret != nil:
		return pluginSecret
	case vol.Projected != nil:
		return pluginProjected
	case vol.DownwardAPI != nil:
		return pluginDownwardAPI
	case vol.Image != nil:
		return pluginImage
	case vol.EmptyDir != nil || vol.VolumeSource == corev1.VolumeSource{}:
		return pluginEmptyDir
	default:
		return sourceName(vol)
	}
}

// sourceName is the field of the API that the volume uses, such as nfs.
func sourceName(vol *corev1.Volume) string {
	source := reflect.ValueOf(vol.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "emptyDir"
}

func unsupported(vol *corev1.Volume) error {
	need := "needs its volume plug-in"
	switch {
	case vol.PersistentVolumeClaim != nil, vol.Ephemeral != nil:
		need = "needs an API server, which knows claims"
	case vol.CSI != nil:
		need = "needs a CSI driver on the node"
	case vol.GitRepo != nil:
		need = "is disabled in Kubernetes; clone in an init container into an emptyDir"
	}
	return fmt.Errorf("%s: %w: it %s", sourceName(vol), ErrUnsupported, need)
}

// dirOf is where a volume lives below the pods directory, in slashes.
func dirOf(uid observed.UID, plugin, name string) string {
	return path.Join(string(uid), "volumes", escape(plugin), name)
}

// markerOf is the file that says a volume's directory is ready. Where the contents
// are not the pod's own, the kubelet has an emptyDir inside with a name like this.
func markerOf(uid observed.UID, plugin, name string) string {
	if plugin != pluginEmptyDir {
		name = "wrapped_" + name
	}
	return path.Join(string(uid), "plugins", escape(pluginEmptyDir), name, "ready")
}

func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

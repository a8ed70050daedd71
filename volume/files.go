package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// hasFiles reports whether the volume's contents are files that this room writes.
func hasFiles(vol *corev1.Volume) bool {
	return vol.ConfigMap != nil || vol.Secret != nil || vol.DownwardAPI != nil || vol.Projected != nil
}

// setUpFiles writes the files of the volume where they differ. usable is true with
// an error when the volume has contents of an earlier time, which stay.
func (v *Volumes) setUpFiles(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (host string, usable bool, err error) {
	dir := dirOf(observed.UID(pod.UID), pluginOf(vol), vol.Name)
	host = filepath.Join(v.pods, filepath.FromSlash(dir))
	on := v.memory(pod, nil)
	if vol.ConfigMap != nil {
		on = backing{} // config maps are no secrets, and may be larger
	}
	files, err := v.payload(ctx, pod, vol)
	if err == nil {
		err = v.place(ctx, pod, vol, on, files)
	}
	if err != nil {
		return host, v.placed(dir, on), err
	}
	return host, true, nil
}

func (v *Volumes) place(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, on backing, files payload) error {
	plugin := pluginOf(vol)
	host, err := v.makeDir(ctx, pod, plugin, vol.Name, forAll, on)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(host)
	if err != nil {
		return fmt.Errorf("open the volume: %w", err)
	}
	defer root.Close()
	w := writer{dir: root, owns: os.Geteuid() == 0, log: v.cfg.Log, dirMode: 0o755, gid: -1}
	w.mountedBelow = func(name string) (bool, error) { return v.mountedBelow(filepath.Join(host, name)) }
	if gid, ok := groupOf(pod); ok {
		files.forGroup(gid)
		w.gid, w.dirMode = gid, w.dirMode|groupFileRead|groupDir
	}
	wrote, err := w.write(files)
	if wrote {
		v.cfg.Hooks.Written(plugin)
	}
	if err != nil {
		return fmt.Errorf("write the volume's files: %w", err)
	}
	return nil
}

// placed reports whether the volume has contents.
func (v *Volumes) placed(dir string, on backing) bool {
	root, err := os.OpenRoot(v.pods)
	if err != nil {
		return false
	}
	defer root.Close()
	if on.fstype != "" {
		if is, err := v.kernel.mountedAt(filepath.Join(v.pods, filepath.FromSlash(dir))); err != nil || is != on.fstype {
			return false
		}
	}
	sub, err := root.OpenRoot(filepath.FromSlash(dir))
	if err != nil {
		return false
	}
	defer sub.Close()
	return (&writer{dir: sub}).current() != ""
}

func (v *Volumes) mountedBelow(path string) (bool, error) {
	path, err := filepath.EvalSymlinks(path) // as the kernel's table has it
	if err != nil {
		return false, err
	}
	mounts, err := v.kernel.mountsBelow(path)
	return len(mounts) > 0, err
}

// payload is what the volume is to contain now.
func (v *Volumes) payload(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (payload, error) {
	switch {
	case vol.ConfigMap != nil:
		s := vol.ConfigMap
		return v.fromConfigMap(ctx, pod, s.Name, s.Items, rights{s.DefaultMode, s.DefaultUser}, s.Optional)
	case vol.Secret != nil:
		s := vol.Secret
		return v.fromSecret(ctx, pod, s.SecretName, s.Items, rights{s.DefaultMode, s.DefaultUser}, s.Optional)
	case vol.DownwardAPI != nil:
		return v.fromDownwardAPI(pod, vol.DownwardAPI.Items, rights{vol.DownwardAPI.DefaultMode, vol.DownwardAPI.DefaultUser})
	default:
		return v.fromProjected(ctx, pod, vol.Projected)
	}
}

func (v *Volumes) fromConfigMap(ctx context.Context, pod *corev1.Pod, name string, items []corev1.KeyToPath, common rights, optional *bool) (payload, error) {
	what := fmt.Sprintf("config map %s/%s", pod.Namespace, name)
	if v.cfg.Objects == nil {
		return nil, fmt.Errorf("get %s: this node has no source of config maps", what)
	}
	obj, err := v.cfg.Objects.ConfigMap(ctx, pod.Namespace, name)
	if err != nil {
		if missing(err, optional) {
			return payload{}, nil
		}
		return nil, fmt.Errorf("get %s: %w", what, err)
	}
	data := make(map[string][]byte, len(obj.Data)+len(obj.BinaryData))
	for k, s := range obj.Data {
		data[k] = []byte(s)
	}
	for k, b := range obj.BinaryData {
		data[k] = b
	}
	return pick(what, "config", data, items, common, optional)
}

func (v *Volumes) fromSecret(ctx context.Context, pod *corev1.Pod, name string, items []corev1.KeyToPath, common rights, optional *bool) (payload, error) {
	what := fmt.Sprintf("secret %s/%s", pod.Namespace, name)
	if v.cfg.Objects == nil {
		return nil, fmt.Errorf("get %s: this node has no source of secrets", what)
	}
	obj, err := v.cfg.Objects.Secret(ctx, pod.Namespace, name)
	if err != nil {
		if missing(err, optional) {
			return payload{}, nil
		}
		return nil, fmt.Errorf("get %s: %w", what, err)
	}
	return pick(what, "secret", obj.Data, items, common, optional)
}

// missing reports whether what is not there need not be there.
func missing(err error, optional *bool) bool {
	return optional != nil && *optional && apierrors.IsNotFound(err)
}

// pick makes files of all keys, or of the listed ones under the listed paths.
func pick(what, kind string, data map[string][]byte, items []corev1.KeyToPath, common rights, optional *bool) (payload, error) {
	if err := common.check(); err != nil {
		return nil, err
	}
	files := make(payload, len(data))
	if len(items) == 0 {
		for key, value := range data {
			p, err := cleanPath(key)
			if err != nil {
				return nil, fmt.Errorf("%s: key %q: %w", what, key, err)
			}
			if files[p], err = common.file(value, nil, nil); err != nil {
				return nil, err
			}
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return nil, fmt.Errorf("%s: references non-existent %s key: %s", what, kind, item.Key)
		}
		p, err := cleanPath(item.Path)
		if err != nil {
			return nil, fmt.Errorf("%s: key %q: %w", what, item.Key, err)
		}
		if files[p], err = common.file(value, item.Mode, item.User); err != nil {
			return nil, fmt.Errorf("%s: key %q: %w", what, item.Key, err)
		}
	}
	return files, nil
}

// fromDownwardAPI knows the fields that a volume may have. Addresses and the node's
// name are not among them: they may be known only after the volume is needed.
func (v *Volumes) fromDownwardAPI(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, common rights) (payload, error) {
	if err := common.check(); err != nil {
		return nil, err
	}
	files := make(payload, len(items))
	for _, item := range items {
		p, err := cleanPath(item.Path)
		if err != nil {
			return nil, fmt.Errorf("downward API: %w", err)
		}
		value, err := v.field(pod, &item)
		if err != nil {
			return nil, fmt.Errorf("downward API file %s: %w", p, err)
		}
		if files[p], err = common.file([]byte(value), item.Mode, item.User); err != nil {
			return nil, fmt.Errorf("downward API file %s: %w", p, err)
		}
	}
	return files, nil
}

func (v *Volumes) field(pod *corev1.Pod, item *corev1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		if !strings.HasPrefix(item.FieldRef.FieldPath, "metadata.") {
			return "", fmt.Errorf("%w in a volume: %q: use an environment variable", podspec.ErrNoField, item.FieldRef.FieldPath)
		}
		return podspec.Field(pod, podspec.Addresses{}, item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		if item.ResourceFieldRef.ContainerName == "" {
			return "", fmt.Errorf("resourceFieldRef %s: containerName is required in a volume", item.ResourceFieldRef.Resource)
		}
		return podspec.ResourceField(pod, "", item.ResourceFieldRef, v.cfg.Allocatable)
	default:
		return "", fmt.Errorf("one of fieldRef and resourceFieldRef is required")
	}
}

package podenv

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// envFrom takes all keys of an object. Keys of config maps and secrets are names
// that the API lets a variable have; binaryData is not used.
func (b *builder) envFrom(from *corev1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil:
		m, err := b.configMap(from.ConfigMapRef.Name)
		if isOptional(from.ConfigMapRef.Optional) && apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		return setAll(b, from.Prefix, m.Data)
	case from.SecretRef != nil:
		s, err := b.secret(from.SecretRef.Name)
		if isOptional(from.SecretRef.Optional) && apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		return setAll(b, from.Prefix, s.Data)
	}
	return nil
}

func setAll[T string | []byte](b *builder, prefix string, data map[string]T) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if err := b.set(prefix+key, string(data[key])); err != nil {
			return err
		}
	}
	return nil
}

// env sets one entry of the container's env.
func (b *builder) env(v *corev1.EnvVar) error {
	if v.Value != "" || v.ValueFrom == nil {
		return b.set(v.Name, podspec.Expand(v.Value, b.values))
	}
	value, ok, err := b.valueFrom(v.ValueFrom)
	switch {
	case errors.Is(err, podspec.ErrNoField):
		return fmt.Errorf("environment variable %q of container %s: %w", v.Name, b.in.Container.Name, err)
	case err != nil || !ok:
		return err
	}
	return b.set(v.Name, value)
}

// valueFrom reads the one source that is given. ok is false for an optional one
// that is not there: the variable stays as it was.
func (b *builder) valueFrom(from *corev1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = podspec.Field(b.in.Pod, b.in.Addresses, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = podspec.ResourceField(b.in.Pod, b.in.Container.Name, from.ResourceFieldRef, b.in.Allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		m, err := b.configMap(r.Name)
		var data map[string]string
		if err == nil {
			data = m.Data
		}
		return key(b, "ConfigMap", r.Name, r.Key, isOptional(r.Optional), data, err)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		s, err := b.secret(r.Name)
		var data map[string][]byte
		if err == nil {
			data = s.Data
		}
		return key(b, "Secret", r.Name, r.Key, isOptional(r.Optional), data, err)
	case from.FileKeyRef != nil:
		return b.fileKey(from.FileKeyRef)
	}
	return "", true, nil
}

func key[T string | []byte](b *builder, kind, name, key string, optional bool, data map[string]T, err error) (string, bool, error) {
	if err != nil {
		if optional && apierrors.IsNotFound(err) {
			err = nil
		}
		return "", false, err
	}
	value, ok := data[key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, b.in.Pod.Namespace, name)
	}
	return string(value), ok, nil
}

// fileKey looks into an env file (KEP-3721). Optional is meant for the file as for
// the key, as the API has it; the kubelet takes it for the key only. An empty value
// counts as none, as there.
func (b *builder) fileKey(r *corev1.FileKeySelector) (string, bool, error) {
	if b.in.ReadFile == nil {
		return "", false, fmt.Errorf("read env file %q of volume %q: this node reads no env files", r.Path, r.VolumeName)
	}
	file, err := b.file(fileName{r.VolumeName, r.Path})
	if errors.Is(err, fs.ErrNotExist) && isOptional(r.Optional) {
		return "", false, nil
	}
	var value string
	if err == nil {
		value, err = file.lookUp(r.Key)
	}
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q of volume %q: %w", r.Path, r.VolumeName, err)
	}
	if value == "" && !isOptional(r.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q, or empty there", r.Key, r.Path, r.VolumeName)
	}
	return value, value != "", nil
}

func (b *builder) file(name fileName) (*envFile, error) {
	if f, ok := b.files[name]; ok {
		return f, nil
	}
	content, err := b.in.ReadFile(name.volume, name.path)
	if err != nil {
		return nil, err
	}
	b.files[name] = newEnvFile(string(content))
	return b.files[name], nil
}

func (b *builder) configMap(name string) (*corev1.ConfigMap, error) {
	if m, ok := b.configMaps[name]; ok {
		return m, nil
	}
	if b.in.Objects == nil {
		return nil, fmt.Errorf("couldn't get configMap %s/%s: this node has no source of config maps", b.in.Pod.Namespace, name)
	}
	m, err := b.in.Objects.ConfigMap(b.ctx, b.in.Pod.Namespace, name)
	if err != nil {
		return nil, err // it names the object
	}
	b.configMaps[name] = m
	return m, nil
}

func (b *builder) secret(name string) (*corev1.Secret, error) {
	if s, ok := b.secrets[name]; ok {
		return s, nil
	}
	if b.in.Objects == nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s: this node has no source of secrets", b.in.Pod.Namespace, name)
	}
	s, err := b.in.Objects.Secret(b.ctx, b.in.Pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	b.secrets[name] = s
	return s, nil
}

func isOptional(b *bool) bool { return b != nil && *b }

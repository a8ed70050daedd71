package podsource

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxObject is the most that the values of one object may have together, as in
// the API.
const maxObject = corev1.MaxSecretSize

func (d *decoder) configMap(raw json.RawMessage) []error {
	c := &corev1.ConfigMap{}
	if errs := strictly(raw, c); len(errs) > 0 {
		return errs
	}
	errs := d.settle(KindConfigMap, &c.TypeMeta, &c.ObjectMeta)
	errs = append(errs, validateConfigMap(c)...)
	d.out.ConfigMaps = append(d.out.ConfigMaps, c)
	return plain(errs)
}

func (d *decoder) secret(raw json.RawMessage) []error {
	s := &corev1.Secret{}
	if errs := strictly(raw, s); len(errs) > 0 {
		return errs
	}
	// What the API server does on write.
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	orElse(&s.Type, corev1.SecretTypeOpaque)
	errs := d.settle(KindSecret, &s.TypeMeta, &s.ObjectMeta)
	errs = append(errs, validateSecret(s)...)
	d.out.Secrets = append(d.out.Secrets, s)
	return plain(errs)
}

func plain(list field.ErrorList) []error {
	errs := make([]error, len(list))
	for i, err := range list {
		errs[i] = err
	}
	return errs
}

// settle completes and checks what all objects have.
func (d *decoder) settle(kind string, t *metav1.TypeMeta, m *metav1.ObjectMeta) field.ErrorList {
	*t = metav1.TypeMeta{APIVersion: "v1", Kind: kind}
	clearServerFields(m)
	m.UID = ""
	orElse(&m.Namespace, metav1.NamespaceDefault)
	at := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(m, true, apivalidation.NameIsDNSSubdomain, at)
	key := ObjectKey{kind, m.Namespace, m.Name}
	if d.keys[key] {
		errs = append(errs, field.Duplicate(at.Child("name"), key.String()))
	}
	d.keys[key] = true
	return errs
}

func validateConfigMap(c *corev1.ConfigMap) (errs field.ErrorList) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		at := field.NewPath("data").Key(key)
		errs = append(errs, dataKey(key, at)...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, dataKey(key, field.NewPath("binaryData").Key(key))...)
		size += len(c.BinaryData[key])
	}
	if size > maxObject {
		errs = append(errs, field.TooLong(field.NewPath("data"), "", maxObject))
	}
	return errs
}

func dataKey(key string, at *field.Path) (errs field.ErrorList) {
	for _, why := range validation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(at, key, why))
	}
	return errs
}

// validateSecret tells keys, never values.
func validateSecret(s *corev1.Secret) (errs field.ErrorList) {
	size := 0
	data := field.NewPath("data")
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, dataKey(key, data.Key(key))...)
		size += len(s.Data[key])
	}
	if size > maxObject {
		errs = append(errs, field.TooLong(data, "", maxObject))
	}
	return append(errs, requiredKeys(s, data)...)
}

// requiredKeys checks what the built-in types of Secrets need; the documentation
// of the types' constants in k8s.io/api/core/v1 says it.
func requiredKeys(s *corev1.Secret, data *field.Path) (errs field.ErrorList) {
	need := func(key string) {
		if _, ok := s.Data[key]; !ok {
			errs = append(errs, field.Required(data.Key(key), "a Secret of type "+string(s.Type)+" has it"))
		}
	}
	needJSON := func(key string) {
		need(key)
		if value, ok := s.Data[key]; ok && !json.Valid(value) {
			errs = append(errs, field.Invalid(data.Key(key), field.OmitValueType{}, "must be valid JSON"))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		needJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		needJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		if _, ok := s.Data[corev1.BasicAuthUsernameKey]; !ok {
			need(corev1.BasicAuthPasswordKey) // one of the two will do
		}
	case corev1.SecretTypeSSHAuth:
		need(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey)
		need(corev1.TLSPrivateKeyKey)
	}
	return errs
}

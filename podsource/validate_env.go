package podsource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) env(ctr *corev1.Container, at *field.Path) {
	for i, e := range ctr.Env {
		at := at.Child("env").Index(i)
		if c.required(at.Child("name"), e.Name) {
			c.matches(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		}
		if e.ValueFrom == nil {
			continue
		}
		at = at.Child("valueFrom")
		c.invalid(e.Value != "", at, "", "may not be specified when `value` is not empty")
		c.oneSource(at, *e.ValueFrom)
		c.fieldRef(e.ValueFrom.FieldRef, at.Child("fieldRef"), "spec.nodeName", "spec.serviceAccountName",
			"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
		c.resourceRef(e.ValueFrom.ResourceFieldRef, at.Child("resourceFieldRef"))
		if key := e.ValueFrom.ConfigMapKeyRef; key != nil {
			c.objectKey(key.Name, key.Key, at.Child("configMapKeyRef"))
		}
		if key := e.ValueFrom.SecretKeyRef; key != nil {
			c.objectKey(key.Name, key.Key, at.Child("secretKeyRef"))
		}
		if key := e.ValueFrom.FileKeyRef; key != nil {
			c.fileKey(key, at.Child("fileKeyRef"))
		}
	}
	for i, from := range ctr.EnvFrom {
		at := at.Child("envFrom").Index(i)
		c.optional(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
		c.oneSource(at, from)
		if from.ConfigMapRef != nil {
			c.objectName(from.ConfigMapRef.Name, at.Child("configMapRef", "name"))
		}
		if from.SecretRef != nil {
			c.objectName(from.SecretRef.Name, at.Child("secretRef", "name"))
		}
	}
}

// oneSource checks the union of places that a value can come from.
func (c *checker) oneSource(at *field.Path, source any) {
	set := membersOf(source)
	c.invalid(len(set) == 0, at, "", "must specify one of the fields that name a source")
	c.invalid(len(set) > 1, at, "", "may not have more than one field specified at a time")
}

// objectName is the name of a ConfigMap or Secret.
func (c *checker) objectName(name string, at *field.Path) {
	if c.required(at, name) {
		c.matches(at, name, validation.IsDNS1123Subdomain)
	}
}

func (c *checker) objectKey(name, key string, at *field.Path) {
	c.objectName(name, at.Child("name"))
	if c.required(at.Child("key"), key) {
		c.matches(at.Child("key"), key, validation.IsConfigMapKey)
	}
}

// fileKey checks a reference to a variable in a file (KEP-3721). The volume has to
// be there before the container is made, and written by the pod itself.
func (c *checker) fileKey(ref *corev1.FileKeySelector, at *field.Path) {
	if c.required(at.Child("key"), ref.Key) {
		c.matches(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
		if len(ref.Key) > 128 {
			c.add(field.TooLong(at.Child("key"), "", 128))
		}
	}
	c.newFile(at.Child("path"), ref.Path)
	if !c.required(at.Child("volumeName"), ref.VolumeName) {
		return
	}
	v, ok := c.volumes[ref.VolumeName]
	if !ok {
		c.add(field.NotFound(at.Child("volumeName"), ref.VolumeName))
		return
	}
	c.invalid(v.EmptyDir == nil, at.Child("volumeName"), ref.VolumeName, "must be the name of an emptyDir volume")
}

// fieldRef checks a downward reference to a field of the pod; more are the
// fields that are allowed here beside those of metadata.
func (c *checker) fieldRef(ref *corev1.ObjectFieldSelector, at *field.Path, more ...string) {
	if ref == nil {
		return
	}
	oneOf(c, at.Child("apiVersion"), &ref.APIVersion, "v1")
	at = at.Child("fieldPath")
	if !c.required(at, ref.FieldPath) {
		return
	}
	if whole, key, ok := subscript(ref.FieldPath); ok {
		switch whole {
		case "metadata.labels":
			c.matches(at, key, validation.IsQualifiedName)
		case "metadata.annotations":
			c.matches(at, strings.ToLower(key), validation.IsQualifiedName)
		default:
			c.add(field.Invalid(at, ref.FieldPath, "only metadata.labels and metadata.annotations have keys"))
		}
		return
	}
	allowed := append([]string{"metadata.name", "metadata.namespace", "metadata.uid"}, more...)
	oneOf(c, at, &ref.FieldPath, allowed...)
}

// subscript splits name['key'].
func subscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "['")
}

func (c *checker) resourceRef(ref *corev1.ResourceFieldSelector, at *field.Path) {
	if ref == nil || !c.required(at.Child("resource"), ref.Resource) {
		return
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	if _, isPages := pageSize(corev1.ResourceName(name)); !isPages || kind != "limits" && kind != "requests" {
		oneOf(c, at.Child("resource"), &ref.Resource, "limits.cpu", "limits.memory", "limits.ephemeral-storage",
			"requests.cpu", "requests.memory", "requests.ephemeral-storage")
	}
	if ref.ContainerName != "" && !c.containers.Has(ref.ContainerName) {
		c.add(field.NotFound(at.Child("containerName"), ref.ContainerName))
	}
	if ref.Divisor.IsZero() {
		return // the unit itself
	}
	divisor := ref.Divisor.String()
	if name == string(corev1.ResourceCPU) {
		oneOf(c, at.Child("divisor"), &divisor, "1m", "1")
	} else {
		oneOf(c, at.Child("divisor"), &divisor, "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
	}
}

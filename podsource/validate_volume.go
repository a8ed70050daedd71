package podsource

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) volumes(volumes []corev1.Volume, at *field.Path) {
	c.volumeNames = sets.New[string]()
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		if c.required(at.Child("name"), v.Name) {
			c.matches(at.Child("name"), v.Name, validation.IsDNS1123Label)
			twice(c, c.volumeNames, at.Child("name"), v.Name)
		}
		c.forbid(sourcesOf(v) > 1, at, "may not have more than one volume source")
		c.volume(v, at)
	}
}

// sourcesOf counts the members of the union that are set. All are pointers.
func sourcesOf(v *corev1.Volume) int {
	n, union := 0, reflect.ValueOf(v.VolumeSource)
	for i := range union.NumField() {
		if !union.Field(i).IsNil() {
			n++
		}
	}
	return n
}

// volume checks the kinds that a static pod can have and this node can mount.
func (c *checker) volume(v *corev1.Volume, at *field.Path) {
	if p := v.HostPath; p != nil {
		at := at.Child("hostPath")
		if c.required(at.Child("path"), p.Path) {
			c.noUpwards(at.Child("path"), p.Path)
		}
		oneOf(c, at.Child("type"), p.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	}
	if e := v.EmptyDir; e != nil {
		at := at.Child("emptyDir")
		if !strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix)) {
			oneOf(c, at.Child("medium"), &e.Medium, corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages)
		}
		c.invalid(e.SizeLimit != nil && e.SizeLimit.Sign() < 0, at.Child("sizeLimit"), e.SizeLimit, "must not be negative")
		if e.Mode != nil {
			c.number(at.Child("mode"), int64(*e.Mode), 0, 0o1777)
		}
	}
	if d := v.DownwardAPI; d != nil {
		at := at.Child("downwardAPI")
		c.mode(d.DefaultMode, at.Child("defaultMode"))
		c.downwardItems(d.Items, at.Child("items"))
	}
	if p := v.Projected; p != nil {
		c.mode(p.DefaultMode, at.Child("projected", "defaultMode"))
		for i, from := range p.Sources {
			at := at.Child("projected", "sources").Index(i)
			c.exactlyOne(at, from.Secret != nil, from.DownwardAPI != nil, from.ConfigMap != nil,
				from.ServiceAccountToken != nil, from.ClusterTrustBundle != nil, from.PodCertificate != nil)
			if from.DownwardAPI != nil {
				c.downwardItems(from.DownwardAPI.Items, at.Child("downwardAPI", "items"))
			}
		}
	}
	if i := v.Image; i != nil {
		c.required(at.Child("image", "reference"), i.Reference)
		oneOf(c, at.Child("image", "pullPolicy"), &i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	if n := v.NFS; n != nil {
		c.required(at.Child("nfs", "server"), n.Server)
		if c.required(at.Child("nfs", "path"), n.Path) {
			c.invalid(!strings.HasPrefix(n.Path, "/"), at.Child("nfs", "path"), n.Path, "must be an absolute path")
		}
	}
}

func (c *checker) mode(mode *int32, at *field.Path) {
	if mode != nil {
		c.number(at, int64(*mode), 0, 0o777)
	}
}

func (c *checker) downwardItems(items []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i, item := range items {
		at := at.Index(i)
		c.relative(at.Child("path"), item.Path)
		c.mode(item.Mode, at.Child("mode"))
		c.exactlyOne(at, item.FieldRef != nil, item.ResourceFieldRef != nil)
		c.fieldRef(item.FieldRef, at.Child("fieldRef"), "metadata.labels", "metadata.annotations")
		if ref := item.ResourceFieldRef; ref != nil {
			c.required(at.Child("resourceFieldRef", "containerName"), ref.ContainerName)
			c.resourceRef(ref, at.Child("resourceFieldRef"))
		}
	}
}

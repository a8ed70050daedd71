package podsource

import (
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podVolumes(volumes []corev1.Volume, at *field.Path) {
	names := sets.New[string]()
	for i := range volumes {
		v, at := &volumes[i], at.Index(i)
		if c.required(at.Child("name"), v.Name) {
			c.matches(at.Child("name"), v.Name, validation.IsDNS1123Label)
			twice(c, names, at.Child("name"), v.Name)
		}
		c.onlyFirst(at, v.VolumeSource, "may not specify more than 1 volume type") // none is an emptyDir
		c.volume(v, at)
	}
}

// membersOf are the JSON names of the members of a union that are set. All are
// pointers; the few fields beside them, such as a prefix, are not.
func membersOf(union any) (names []string) {
	v := reflect.ValueOf(union)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// onlyFirst faults the members of a union after the first that is set, and
// reports whether there is one.
func (c *checker) onlyFirst(at *field.Path, union any, why string) bool {
	set := membersOf(union)
	for _, name := range set[min(1, len(set)):] {
		c.add(field.Forbidden(at.Child(name), why))
	}
	return len(set) > 0
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
	if v.EmptyDir != nil {
		c.emptyDir(v.EmptyDir, at.Child("emptyDir"))
	}
	if m := v.ConfigMap; m != nil {
		at := at.Child("configMap")
		c.objectName(m.Name, at.Child("name"))
		c.files(m.DefaultMode, m.DefaultUser, m.Items, at)
	}
	if s := v.Secret; s != nil {
		at := at.Child("secret")
		c.objectName(s.SecretName, at.Child("secretName"))
		c.files(s.DefaultMode, s.DefaultUser, s.Items, at)
	}
	if d := v.DownwardAPI; d != nil {
		at := at.Child("downwardAPI")
		c.files(d.DefaultMode, d.DefaultUser, nil, at)
		c.downwardItems(d.Items, at.Child("items"))
	}
	if v.Projected != nil {
		c.projected(v.Projected, at.Child("projected"))
	}
	if i := v.Image; i != nil {
		if at := at.Child("image", "reference"); c.required(at, i.Reference) {
			c.invalid(strings.TrimSpace(i.Reference) != i.Reference, at, i.Reference, "must not have leading or trailing whitespace")
		}
		oneOf(c, at.Child("image", "pullPolicy"), &i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	if n := v.NFS; n != nil {
		c.required(at.Child("nfs", "server"), n.Server)
		if c.required(at.Child("nfs", "path"), n.Path) {
			c.invalid(!strings.HasPrefix(n.Path, "/"), at.Child("nfs", "path"), n.Path, "must be an absolute path")
		}
	}
}

func (c *checker) emptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) {
	size, isPages := strings.CutPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix))
	if isPages {
		_, ok := pageSize(corev1.ResourceName(corev1.ResourceHugePagesPrefix + size))
		c.invalid(!ok, at.Child("medium"), e.Medium, "must name a page size, such as HugePages-2Mi")
	} else {
		oneOf(c, at.Child("medium"), &e.Medium, corev1.StorageMediumDefault, corev1.StorageMediumMemory, corev1.StorageMediumHugePages)
	}
	c.invalid(e.SizeLimit != nil && e.SizeLimit.Sign() < 0, at.Child("sizeLimit"), e.SizeLimit, "must be greater than or equal to 0")
	if e.Mode != nil {
		c.number(at.Child("mode"), int64(*e.Mode), 0, 0o1777)
	}
}

// files checks what the volumes have in common that show data as files.
func (c *checker) files(mode *int32, user *int64, items []corev1.KeyToPath, at *field.Path) {
	c.mode(mode, at.Child("defaultMode"))
	c.userID(user, at.Child("defaultUser"))
	for i, item := range items {
		at := at.Child("items").Index(i)
		c.required(at.Child("key"), item.Key)
		c.newFile(at.Child("path"), item.Path)
		c.mode(item.Mode, at.Child("mode"))
		c.userID(item.User, at.Child("user"))
	}
}

func (c *checker) projected(p *corev1.ProjectedVolumeSource, at *field.Path) {
	c.files(p.DefaultMode, p.DefaultUser, nil, at)
	paths := sets.New[string]()
	once := func(at *field.Path, file string) {
		file = path.Clean(file)
		c.invalid(paths.Has(file), at.Child("path"), file, "conflicting duplicate paths")
		paths.Insert(file)
	}
	for i, from := range p.Sources {
		at := at.Child("sources").Index(i)
		if !c.onlyFirst(at, from, "may not specify more than 1 volume type per source") {
			c.add(field.Required(at, "must specify a volume type"))
		}
		keys := func(name string, items []corev1.KeyToPath, at *field.Path) {
			c.objectName(name, at.Child("name"))
			c.files(nil, nil, items, at)
			for j, item := range items {
				once(at.Child("items").Index(j), item.Path)
			}
		}
		if s := from.Secret; s != nil {
			keys(s.Name, s.Items, at.Child("secret"))
		}
		if m := from.ConfigMap; m != nil {
			keys(m.Name, m.Items, at.Child("configMap"))
		}
		if d := from.DownwardAPI; d != nil {
			at := at.Child("downwardAPI", "items")
			c.downwardItems(d.Items, at)
			for j, item := range d.Items {
				once(at.Index(j), item.Path)
			}
		}
	}
}

// mode is of a file, which has none of the bits beyond those for reading,
// writing and executing.
func (c *checker) mode(mode *int32, at *field.Path) {
	if mode != nil {
		c.invalid(*mode < 0 || *mode > 0o777, at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (c *checker) downwardItems(items []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i, item := range items {
		at := at.Index(i)
		c.newFile(at.Child("path"), item.Path)
		c.mode(item.Mode, at.Child("mode"))
		c.userID(item.User, at.Child("user"))
		if item.FieldRef == nil && item.ResourceFieldRef == nil {
			c.add(field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
		c.invalid(item.FieldRef != nil && item.ResourceFieldRef != nil, at, "resource", "can not specify both fieldRef & resourceFieldRef")
		c.fieldRef(item.FieldRef, at.Child("fieldRef"), "metadata.labels", "metadata.annotations")
		if ref := item.ResourceFieldRef; ref != nil {
			c.required(at.Child("resourceFieldRef", "containerName"), ref.ContainerName)
			c.resourceRef(ref, at.Child("resourceFieldRef"))
		}
	}
}

package podruntime

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unmapped names every field of the pod spec that is set and that this version
// would have to ignore. A pod for which it is not empty must not run: half of
// what a pod asks for is not what it asks for.
//
// The spec is walked by reflection and every field has to be in a table, so one
// that a later API adds is refused until somebody maps it.
func Unmapped(pod *corev1.Pod) field.ErrorList {
	var w walker
	w.inside(reflect.ValueOf(pod.Spec), field.NewPath("spec"), "spec")
	return w.errs
}

const unsupported = "not supported by this version"

type walker struct{ errs field.ErrorList }

// lookup finds the verdict for a key such as spec.containers[].env[].name.
func lookup(key string) (verdict, bool) {
	key = strings.TrimPrefix(key, "spec.")
	table := podFields
	for _, list := range []string{"containers[].", "initContainers[].", "ephemeralContainers[]."} {
		if rest, ok := strings.CutPrefix(key, list); ok {
			key, table = rest, containerFields
		}
	}
	if at := strings.Index(key, "["+corev1.ResourceHugePagesPrefix); at >= 0 {
		key = key[:at] + "[hugepages-*]" // one name per page size of the machine
	}
	v, ok := table[key]
	return v, ok
}

// set judges one value that is set.
func (w *walker) set(v, in reflect.Value, path *field.Path, key string) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	judge, ok := lookup(key)
	switch {
	case !ok:
		w.errs = append(w.errs, field.Forbidden(path, unsupported))
	case judge.inside:
		w.inside(v, path, key)
	case judge.judge != nil:
		if wrong := judge.judge(v, in); wrong != "" {
			w.errs = append(w.errs, field.Forbidden(path, wrong))
		}
	}
}

// inside goes through the parts of a struct, list or map.
func (w *walker) inside(v reflect.Value, path *field.Path, key string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if unset(v.Field(i)) {
				continue
			}
			if f.Anonymous {
				w.inside(v.Field(i), path, key) // inline in JSON
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			w.set(v.Field(i), v, path.Child(name), key+"."+name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.inside(v.Index(i), path.Index(i), key+"[]")
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			w.set(v.MapIndex(k), v, path.Key(k.String()), key+"["+k.String()+"]")
		}
	default: // the table says to look into something that has no parts
		w.errs = append(w.errs, field.Forbidden(path, unsupported))
	}
}

// unset is also an empty list that was written out.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

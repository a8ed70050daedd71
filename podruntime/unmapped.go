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

// verdict looks at the value of a field that is set. It says what is wrong with
// it; nothing, when it is honoured or may be left alone.
type verdict func(v reflect.Value) string

// honoured fields are mapped for every value.
func honoured(reflect.Value) string { return "" }

// harmless fields speak to the control plane: they are done with when the pod
// has reached a node, or ask for nothing that a node would do.
func harmless(reflect.Value) string { return "" }

// only accepts the given values, those that ask for nothing special.
func only[T bool | string](values ...T) verdict {
	return func(v reflect.Value) string {
		for _, ok := range values {
			if v.Equal(reflect.ValueOf(ok).Convert(v.Type())) {
				return ""
			}
		}
		return unsupported
	}
}

// podFields and containerFields are the whole of what is mapped. [] stands for
// each element of a list. What has no entry is refused. An entry with a nil
// verdict is looked into; its own parts need entries.
var podFields = map[string]verdict{
	// Where the pod runs was decided before it came here. What a node has to
	// check itself, nodeSelector and required node affinity, has no entry.
	"nodeName":                 harmless,
	"schedulerName":            harmless,
	"tolerations":              harmless, // the taints they tolerate are an API server's
	"affinity":                 nil,
	"affinity.podAffinity":     harmless,
	"affinity.podAntiAffinity": harmless,
	"affinity.nodeAffinity":    nil,
	"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": harmless,
	"topologySpreadConstraints": harmless,
	"preemptionPolicy":          harmless,
	"priority":                  honoured, // with the class, the OOM score of a node-critical pod
	"priorityClassName":         honoured,

	// Without an API server there are no services to link to, and a service
	// account shows itself only through a token volume.
	"enableServiceLinks":           harmless,
	"serviceAccountName":           harmless,
	"serviceAccount":               harmless,
	"automountServiceAccountToken": only(false),

	"restartPolicy":                 honoured,
	"terminationGracePeriodSeconds": honoured,
	"activeDeadlineSeconds":         honoured,
	"hostNetwork":                   honoured,
	"hostPID":                       honoured,
	"hostIPC":                       honoured,
	"hostUsers":                     only(true),
	"shareProcessNamespace":         honoured,
	"hostname":                      honoured,
	"setHostnameAsFQDN":             only(false),
	"dnsPolicy":                     only("ClusterFirst", "Default"),
	"os":                            nil,
	"os.name":                       only("linux"),
	"securityContext":               nil, // API defaulting makes an empty one

	"volumes":                 nil,
	"volumes[].name":          honoured,
	"volumes[].hostPath":      nil,
	"volumes[].hostPath.path": honoured,
	"volumes[].hostPath.type": honoured,
	"volumes[].emptyDir":      nil,

	"containers":     nil,
	"initContainers": nil,
}

var containerFields = map[string]verdict{
	"name":            honoured,
	"image":           honoured,
	"imagePullPolicy": honoured,
	"command":         honoured,
	"args":            honoured,
	"workingDir":      honoured,
	"env":             nil,
	"env[].name":      honoured,
	"env[].value":     honoured,

	"ports":                 nil,
	"ports[].name":          honoured,
	"ports[].hostPort":      honoured,
	"ports[].containerPort": honoured,
	"ports[].protocol":      honoured,
	"ports[].hostIP":        honoured,

	"resources":                  nil,
	"resources.requests":         nil,
	"resources.requests[cpu]":    honoured,
	"resources.requests[memory]": honoured,
	"resources.limits":           nil,
	"resources.limits[cpu]":      honoured,
	"resources.limits[memory]":   honoured,
	"resizePolicy":               harmless, // says how to resize; nothing resizes yet

	"volumeMounts":                     nil,
	"volumeMounts[].name":              honoured,
	"volumeMounts[].readOnly":          honoured,
	"volumeMounts[].mountPath":         honoured,
	"volumeMounts[].recursiveReadOnly": only("Disabled"),
	"volumeMounts[].mountPropagation":  only("None"),

	"restartPolicy":                           honoured,
	"restartPolicyRules":                      nil,
	"restartPolicyRules[].action":             only("Restart"),
	"restartPolicyRules[].exitCodes":          nil,
	"restartPolicyRules[].exitCodes.operator": honoured,
	"restartPolicyRules[].exitCodes.values":   honoured,

	"terminationMessagePath":   honoured,
	"terminationMessagePolicy": honoured,
	"securityContext":          nil,
	"stdin":                    honoured,
	"stdinOnce":                honoured,
	"tty":                      honoured,
}

type walker struct{ errs field.ErrorList }

// lookup finds the verdict for a key such as spec.containers[].env[].name.
func lookup(key string) (verdict, bool) {
	key = strings.TrimPrefix(key, "spec.")
	table := podFields
	for _, list := range []string{"containers[].", "initContainers[]."} {
		if rest, ok := strings.CutPrefix(key, list); ok {
			key, table = rest, containerFields
		}
	}
	v, ok := table[key]
	return v, ok
}

// set judges one value that is set.
func (w *walker) set(v reflect.Value, path *field.Path, key string) {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	judge, ok := lookup(key)
	switch {
	case !ok:
		w.errs = append(w.errs, field.Forbidden(path, unsupported))
	case judge == nil:
		w.inside(v, path, key)
	default:
		if wrong := judge(v); wrong != "" {
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
			w.set(v.Field(i), path.Child(name), key+"."+name)
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.inside(v.Index(i), path.Index(i), key+"[]")
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			w.set(v.MapIndex(k), path.Key(k.String()), key+"["+k.String()+"]")
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

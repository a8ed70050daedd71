package podsource_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/kubeletkit/kubeletkit/podsource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	oddStrings = []string{"", "a", "b", "v", "..", "../..", "/a", "a/b", "A_b", "a:b", " a ", "$(A)", "SIGTERM", "Localhost", "Unmasked",
		"linux", "windows", "Always", "Never", "Exists", "In", "metadata.labels['", "metadata.labels['a']", "limits.cpu", "limits.hugepages-", "::1",
		"example.com/a", "\x00", "日本", "HugePages-", "Bidirectional", "Enabled", "None"}
	oddNames      = []string{"cpu", "memory", "hugepages-2Mi", "hugepages-", "hugepages-0", "hugepages--1", "ephemeral-storage", "example.com/gpu", "", "x"}
	oddQuantities = []string{"0", "1", "-1", "1m", "100m", "3", "2Mi", "1e30", "9223372036854775807", "0.0000000001", "-9E"}
	oddNumbers    = []int64{0, 1, -1, 2, 80, 511, 512, 65535, 65536, 1<<31 - 1, -1 << 31}
)

// odd fills a value of the API with nothing, little or nonsense.
type odd struct{ *rand.Rand }

func pick[T any](o odd, from []T) T { return from[o.IntN(len(from))] }

func (o odd) fill(v reflect.Value) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(pick(o, oddQuantities))))
		return
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(pick(o, []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(80), intstr.FromString(""), intstr.FromString("web")})))
		return
	case metav1.Time:
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			// Few fields, or no pod would get far.
			if v.Type().Field(i).Anonymous || o.IntN(3) == 0 {
				o.fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		o.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), o.IntN(3), 2))
		for i := range v.Len() {
			o.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range o.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(pick(o, oddNames))
			o.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(pick(o, oddStrings))
	case reflect.Bool:
		v.SetBool(o.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(pick(o, oddNumbers))
	case reflect.Uint8:
		v.SetUint(uint64(o.IntN(256)))
	}
}

// FuzzOddPods checks that no combination of fields, however odd, is more than a
// fault: many are pointers, and many rules look at two fields.
func FuzzOddPods(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		o := odd{rand.New(rand.NewPCG(seed, 1))}
		pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		pod.Name = "odd"
		o.fill(reflect.ValueOf(&pod.Spec).Elem())
		if len(pod.Spec.Containers) == 0 {
			pod.Spec.Containers = make([]corev1.Container, 1)
			o.fill(reflect.ValueOf(&pod.Spec.Containers[0]).Elem())
		}
		data, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		m, err := podsource.DecodeManifest(data, from)
		if (m == nil) == (err == nil) {
			t.Fatalf("%v and %v", m, err)
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error that says nothing")
		}
	})
}

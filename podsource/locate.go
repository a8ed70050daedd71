package podsource

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// locate finds the field of a decoding error that names none (a quantity, a
// time), or only a field without the index of its container. It follows, from
// the root, the first member that alone makes the decoding into v's type fail.
func locate(object json.RawMessage, v any, err error) error {
	var doc any
	if json.Unmarshal(object, &doc) != nil {
		return err
	}
	at := fault{into: reflect.TypeOf(v).Elem(), value: doc, err: err}
	at.follow(func(v any) any { return v })
	name := at.path.String()
	var wrong *json.UnmarshalTypeError
	if at.path == nil {
		if !errors.As(err, &wrong) {
			return err
		}
		name = strings.TrimPrefix(wrong.Field, ".")
	}
	bad := brief(at.value)
	if _, secret := v.(*corev1.Secret); secret {
		bad = field.OmitValueType{}
	}
	return &field.Error{Type: field.ErrorTypeTypeInvalid, Field: name, BadValue: bad, Detail: wanted(at.err)}
}

// fault is a value that does not decode.
type fault struct {
	into  reflect.Type // of the whole object
	path  *field.Path
	value any
	err   error
}

// follow moves to the deepest value below that does not decode by itself. Within
// puts a value back into an object that holds nothing else.
func (f *fault) follow(within func(any) any) {
	try := func(path *field.Path, value any, around func(any) any) bool {
		err := f.alone(around(value))
		if err != nil {
			*f = fault{f.into, path, value, err}
			f.follow(around)
		}
		return err != nil
	}
	path := f.path
	switch value := f.value.(type) {
	case map[string]any:
		if f.alone(within(map[string]any{})) != nil {
			return // no object belongs here, whatever is in it
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if try(path.Child(key), value[key], func(v any) any { return within(map[string]any{key: v}) }) {
				return
			}
		}
	case []any:
		if f.alone(within([]any{})) != nil {
			return
		}
		for i := range value {
			if try(path.Index(i), value[i], func(v any) any { return within([]any{v}) }) {
				return
			}
		}
	}
}

// alone decodes an object of the type.
func (f *fault) alone(object any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(data, reflect.New(f.into).Interface())
}

// wanted says what belongs there, without the names of Go types where possible.
func wanted(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	is, _, _ := strings.Cut(wrong.Value, " ")
	switch kind := wrong.Type.Kind().String(); kind {
	case "string":
		return "want a string, have " + is + "; put it in quotes"
	case "slice":
		return "want a list, have " + is
	case "struct", "map":
		return "want an object, have " + is
	default:
		return "want " + kind + ", have " + is
	}
}

// brief keeps an error on one line when the value is a whole object.
func brief(value any) any {
	switch value.(type) {
	case map[string]any:
		return "{...}"
	case []any:
		return "[...]"
	}
	return value
}

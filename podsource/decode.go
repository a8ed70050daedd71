package podsource

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Origin says where a manifest was found. It is part of the pods' identity: the
// same manifest under another name, or on another node, gives other UIDs.
type Origin struct {
	Kind string // SourceFile or SourceHTTP
	Name string // the file's path, or the URL
	Node string
}

// ErrNoPod is in the error of a manifest without any document. An explicit
// empty PodList is the way to say "none".
var ErrNoPod = errors.New("no pod in it; remove it to remove its pods")

// DecodeError is one fault of a manifest.
type DecodeError struct {
	Name     string // of the [Origin]
	Document int    // from 1; 0 when the fault is the whole manifest's
	Item     int    // from 1 within a list; 0 when it is no list
	// Err names the field where it can; a [field.Error] can be taken from it.
	Err error
}

func (e *DecodeError) Error() string {
	where := e.Name
	if e.Document > 0 {
		where += " document " + strconv.Itoa(e.Document)
	}
	if e.Item > 0 {
		where += " item " + strconv.Itoa(e.Item)
	}
	return where + ": " + e.Err.Error()
}

func (e *DecodeError) Unwrap() error { return e.Err }

// DecodeErrors are all faults of a manifest, in its order.
type DecodeErrors []*DecodeError

func (all DecodeErrors) Error() string {
	const most = 10
	var texts []string
	for _, e := range all[:min(len(all), most)] {
		texts = append(texts, e.Error())
	}
	if more := len(all) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more faults", more))
	}
	return strings.Join(texts, "; ")
}

func (all DecodeErrors) Unwrap() []error {
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e
	}
	return errs
}

// mostFaults is after how many faults the documents that follow are left unread.
const mostFaults = 100

// Manifest is what one manifest holds.
type Manifest struct {
	Pods       []*corev1.Pod
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
}

// Decode reads a manifest: v1 Pod, PodList or List of Pods, YAML or JSON, one or
// several documents. The pods are defaulted and checked as the API server does
// on create, and carry what the kubelet gives to static pods: name suffix, UID,
// hash, node name, toleration. What only the API server may set is cleared.
//
// It is strict: an unknown or repeated field is a fault. Any fault refuses the
// whole manifest with [DecodeErrors], because half of what belongs together
// can be worse than the last good version of it.
func Decode(data []byte, from Origin) ([]*corev1.Pod, error) {
	m, err := decode(data, from, false)
	if err != nil {
		return nil, err
	}
	return m.Pods, nil
}

// DecodeManifest is [Decode] for a node that has [Objects]: the manifest may
// hold ConfigMaps, Secrets and lists of them beside the pods, and the pods may
// refer to such objects. An object gets no name suffix: pods name it as it is
// written. No error ever holds a value of a Secret's data.
func DecodeManifest(data []byte, from Origin) (*Manifest, error) {
	return decode(data, from, true)
}

func decode(data []byte, from Origin, objects bool) (*Manifest, error) {
	d := decoder{from: from, objects: objects, keys: make(map[ObjectKey]bool)}
	docs := split(data)
	for _, doc := range docs {
		// A file of something else can have a million faults.
		if len(d.faults) >= mostFaults {
			break
		}
		d.document(doc)
	}
	if len(docs) == 0 {
		d.fault(document{}, 0, ErrNoPod)
	}
	if len(d.faults) > 0 {
		return nil, d.faults
	}
	return &d.out, nil
}

type decoder struct {
	from    Origin
	objects bool // ConfigMaps and Secrets are taken too
	out     Manifest
	keys    map[ObjectKey]bool // of the objects in out
	faults  DecodeErrors
}

func (d *decoder) fault(doc document, item int, err error) {
	d.faults = append(d.faults, &DecodeError{d.from.Name, doc.number, item, err})
}

func (d *decoder) document(doc document) {
	objects, err := doc.objects()
	if err != nil {
		d.fault(doc, 0, err)
		return
	}
	for _, object := range objects {
		kind, err := kindOf(object)
		if err != nil {
			d.fault(doc, 0, err)
			continue
		}
		of, isList := strings.CutSuffix(kind.Kind, "List")
		if isList && kind.APIVersion == "v1" && (of == "" || d.takes(of)) {
			d.list(doc, of, object)
		} else {
			d.object(doc, 0, kind, object)
		}
	}
}

// kindOf tells what an object says it is. The error for what is no object does
// not repeat it, for it may be what is left of a Secret.
func kindOf(object json.RawMessage) (metav1.TypeMeta, error) {
	var kind metav1.TypeMeta
	err := kjson.UnmarshalCaseSensitivePreserveInts(object, &kind)
	if err == nil {
		return kind, nil
	}
	what := "a number or a truth value"
	switch object[0] {
	case '{':
		return kind, field.TypeInvalid(field.NewPath("kind"), field.OmitValueType{}, "apiVersion and kind are strings")
	case '[':
		what = "a list"
	case '"':
		what = "a text"
	}
	return kind, fmt.Errorf("not an object but %s; apiVersion and kind are missing", what)
}

// list takes a list. Only one that names what it holds may leave out the kind
// of its items.
func (d *decoder) list(doc document, of string, object json.RawMessage) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	for _, err := range strictly(object, &list) {
		d.fault(doc, 0, err)
	}
	for i, item := range list.Items {
		kind, err := kindOf(item)
		if err != nil {
			d.fault(doc, i+1, err)
			continue
		}
		if of != "" && kind == (metav1.TypeMeta{}) {
			kind = metav1.TypeMeta{APIVersion: "v1", Kind: of}
		}
		if of != "" && kind.Kind != of {
			d.fault(doc, i+1, field.NotSupported(field.NewPath("kind"), kind.Kind, []string{of}))
			continue
		}
		d.object(doc, i+1, kind, item)
	}
}

// takes reports whether a kind of this room's may stand in the manifest.
func (d *decoder) takes(kind string) bool {
	return kind == "Pod" || d.objects && (kind == KindConfigMap || kind == KindSecret)
}

func (d *decoder) object(doc document, item int, kind metav1.TypeMeta, object json.RawMessage) {
	var errs []error
	switch {
	case kind.APIVersion != "v1" || !d.takes(kind.Kind):
		errs = []error{d.kindError(kind)}
	case kind.Kind == KindConfigMap:
		errs = d.configMap(object)
	case kind.Kind == KindSecret:
		errs = d.secret(object)
	default:
		errs = d.pod(object)
	}
	for _, err := range errs {
		d.fault(doc, item, err)
	}
}

func (d *decoder) kindError(kind metav1.TypeMeta) error {
	kinds, words := []string{"v1/Pod", "v1/PodList", "v1/List"}, "Pod, PodList or List"
	if d.objects {
		kinds = append(kinds, "v1/ConfigMap", "v1/ConfigMapList", "v1/Secret", "v1/SecretList")
		words = "Pod, ConfigMap, Secret or a list of them"
	}
	if kind.Kind == "" {
		return field.Required(field.NewPath("kind"), "a manifest holds apiVersion v1 and kind "+words)
	}
	return field.NotSupported(field.NewPath("kind"), kind.APIVersion+"/"+kind.Kind, kinds)
}

func (d *decoder) pod(object json.RawMessage) (errs []error) {
	pod := &corev1.Pod{}
	if errs := strictly(object, pod); len(errs) > 0 {
		return errs
	}
	hash, err := hashOf(object, d.from)
	if err != nil {
		errs = append(errs, err)
	}
	makeStatic(pod, d.from, hash)
	setDefaults(pod)
	for _, err := range slices.Concat(forbiddenReferences(pod, d.objects), validate(pod)) {
		errs = append(errs, err)
	}
	d.out.Pods = append(d.out.Pods, pod)
	return errs
}

// strictly decodes into v and tells all unknown and repeated fields, or the
// first value of a wrong type.
func strictly(object json.RawMessage, v any) []error {
	unknown, err := kjson.UnmarshalStrict(object, v)
	if err != nil {
		return []error{locate(object, v, err)}
	}
	for i, e := range unknown {
		unknown[i] = readable(e)
	}
	return unknown
}

// readable puts the field first, as all other faults do.
func readable(err error) error {
	for _, what := range []string{"unknown field", "duplicate field"} {
		if quoted, ok := strings.CutPrefix(err.Error(), what+" "); ok {
			if path, unquoteErr := strconv.Unquote(quoted); unquoteErr == nil {
				return fmt.Errorf("%s: %s", path, what)
			}
		}
	}
	return err
}

// hashOf is the identity of a pod without a UID of its own: 32 hex digits over
// what the manifest says and where. It is taken from the document as written,
// in one canonical form, so that neither comments and layout, nor time, nor a
// new version of this library with more fields or defaults changes it and
// restarts every static pod (kubernetes/kubernetes#67537).
func hashOf(object json.RawMessage, from Origin) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	dec.UseNumber()
	var generic any
	if err := dec.Decode(&generic); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(generic) // sorts the keys
	if err != nil {
		return "", err
	}
	place := "file:"
	if from.Kind == SourceHTTP {
		place = "url:"
	}
	h := fnv.New128a()
	h.Write(canonical)
	io.WriteString(h, "host:"+from.Node)
	io.WriteString(h, place+from.Name)
	return hex.EncodeToString(h.Sum(nil)), nil
}

package podsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds of [ObjectKey].
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
)

// ObjectKey names one object.
type ObjectKey struct {
	Kind, Namespace, Name string
}

func (k ObjectKey) String() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// ErrObjectsUnread is in the error for an object that is not there while a
// source has not yet told what it has: nobody knows that it is missing.
var ErrObjectsUnread = errors.New("podsource: not all manifests have been read yet")

// ObjectsConfig says who wants to know of changes.
type ObjectsConfig struct {
	// Changed is told the keys of the objects that were added, edited or
	// removed, sorted, once per change of a source. The store has the change by
	// then, and the pods of the same change have not been delivered yet. Calls
	// do not overlap; they hold up the source, so they must not wait for pods.
	Changed func(keys []ObjectKey)
	Log     logr.Logger // default discards
}

// Objects are the ConfigMaps and Secrets that stand in manifests, for pods on a
// node without an API server to ask. [Files] and [HTTP] fill it.
//
// A manifest's objects and pods change together, and a manifest with a fault
// keeps its last good objects as it keeps its pods. The file is the truth: an
// object with immutable true changes when its file does.
//
// When two manifests hold the same object, the first in the order of sources (as
// they were made) and then of names counts, and [Objects.Errors] names both.
type Objects struct {
	cfg ObjectsConfig
	// turn is held while one source's change is taken and told.
	turn sync.Mutex
	mu   struct {
		sync.RWMutex
		sources []*objectSource
		inForce map[ObjectKey]object
		clashes []FileError
	}
}

// object is one ConfigMap or Secret. What value points to never changes.
type object struct {
	key   ObjectKey
	value any    // *corev1.ConfigMap or *corev1.Secret
	from  string // the file or URL
}

// objectSource is one source's part of the store. The store's locks guard it.
type objectSource struct {
	store  *Objects
	spoken bool
	all    []object // in the order of precedence
}

// NewObjects returns an empty store.
func NewObjects(cfg ObjectsConfig) *Objects {
	if cfg.Changed == nil {
		cfg.Changed = func([]ObjectKey) {}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	return &Objects{cfg: cfg}
}

// ConfigMap returns an object that is shared: the caller must not change it. The
// error for one that is missing is the API's NotFound; while some source has
// not spoken yet it is [ErrObjectsUnread] instead, so that an optional object
// is not taken for missing before it was looked for.
func (o *Objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return find[corev1.ConfigMap](o, ObjectKey{KindConfigMap, namespace, name}, "configmaps")
}

// Secret is like [Objects.ConfigMap]. The values of its stringData are in data.
func (o *Objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return find[corev1.Secret](o, ObjectKey{KindSecret, namespace, name}, "secrets")
}

// Errors names the objects that stand in two manifests. An entry's File is the
// one whose object does not count. It stays until one of the two is gone.
func (o *Objects) Errors() []FileError {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return slices.Clone(o.mu.clashes)
}

func find[T any](o *Objects, key ObjectKey, resource string) (*T, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if found, ok := o.mu.inForce[key]; ok {
		return found.value.(*T), nil
	}
	if slices.ContainsFunc(o.mu.sources, func(s *objectSource) bool { return !s.spoken }) {
		return nil, fmt.Errorf("get %s: %w", key, ErrObjectsUnread)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, key.Name)
}

// join adds a source. A nil store has none, and takes nothing.
func (o *Objects) join() *objectSource {
	if o == nil {
		return nil
	}
	s := &objectSource{store: o}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.sources = append(o.mu.sources, s)
	return s
}

// set takes the complete set of a source.
func (s *objectSource) set(all []object) {
	if s == nil {
		return
	}
	o := s.store
	o.turn.Lock()
	defer o.turn.Unlock()
	o.mu.Lock()
	s.all, s.spoken = all, true
	next, clashes := o.merged()
	changed := differences(o.mu.inForce, next)
	known := o.mu.clashes
	o.mu.inForce, o.mu.clashes = next, clashes
	o.mu.Unlock()

	for _, clash := range clashes {
		if !slices.ContainsFunc(known, func(old FileError) bool { return old.Error() == clash.Error() }) {
			o.cfg.Log.Error(clash.Err, "object ignored; remove one of the two", "path", clash.File)
		}
	}
	if len(changed) > 0 {
		o.cfg.Log.V(1).Info("objects changed", "objects", changed)
		o.cfg.Changed(changed)
	}
}

// merged is what the sources say together. An object that did not change stays
// the very same, so that who holds it can tell by its address.
func (o *Objects) merged() (map[ObjectKey]object, []FileError) {
	next := make(map[ObjectKey]object)
	var clashes []FileError
	for _, s := range o.mu.sources {
		for _, obj := range s.all {
			if first, taken := next[obj.key]; taken {
				clashes = append(clashes, FileError{obj.from,
					fmt.Errorf("%s: %s is also in %s, which counts", obj.from, obj.key, first.from)})
				continue
			}
			if old, ok := o.mu.inForce[obj.key]; ok && reflect.DeepEqual(old.value, obj.value) {
				obj.value = old.value
			}
			next[obj.key] = obj
		}
	}
	return next, clashes
}

// differences are the keys that are new, gone or other, sorted.
func differences(old, next map[ObjectKey]object) []ObjectKey {
	var keys []ObjectKey
	for key, obj := range next {
		if old[key].value != obj.value {
			keys = append(keys, key)
		}
	}
	for key := range maps.Keys(old) {
		if _, ok := next[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b ObjectKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// objectsOf lists the objects of a manifest.
func (m *Manifest) objectsOf(from string) []object {
	var all []object
	for _, c := range m.ConfigMaps {
		all = append(all, object{ObjectKey{KindConfigMap, c.Namespace, c.Name}, c, from})
	}
	for _, s := range m.Secrets {
		all = append(all, object{ObjectKey{KindSecret, s.Namespace, s.Name}, s, from})
	}
	return all
}

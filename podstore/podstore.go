package podstore

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/podsource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store holds the desired pods. It is safe for concurrent use.
type Store struct {
	mu struct {
		sync.RWMutex
		pods    index
		mirrors index
		sorted  []*corev1.Pod // of pods; nil when it has to be made again
	}
}

// index finds pods by UID, and by name the last that was written: a pod of the
// API server and a static pod can share a name, and so can two generations.
type index struct {
	byUID  map[types.UID]*corev1.Pod
	byName map[string][]*corev1.Pod // by full name, last written last
}

func newIndex() index {
	return index{byUID: make(map[types.UID]*corev1.Pod), byName: make(map[string][]*corev1.Pod)}
}

func (x index) put(pod *corev1.Pod) {
	x.remove(pod.UID)
	x.byUID[pod.UID] = pod
	name := podsource.FullName(pod)
	x.byName[name] = append(x.byName[name], pod)
}

func (x index) remove(uid types.UID) {
	pod, ok := x.byUID[uid]
	if !ok {
		return
	}
	delete(x.byUID, uid)
	name := podsource.FullName(pod)
	rest := slices.DeleteFunc(x.byName[name], func(p *corev1.Pod) bool { return p.UID == uid })
	if len(rest) == 0 {
		delete(x.byName, name)
		return
	}
	x.byName[name] = rest
}

// last returns the pod of that full name which was written last among those
// that fit.
func (x index) last(name string, fits func(*corev1.Pod) bool) (*corev1.Pod, bool) {
	for _, pod := range slices.Backward(x.byName[name]) {
		if fits(pod) {
			return pod, true
		}
	}
	return nil, false
}

func every(*corev1.Pod) bool { return true }

// New returns an empty Store.
func New() *Store {
	s := &Store{}
	s.mu.pods, s.mu.mirrors = newIndex(), newIndex()
	return s
}

// Set replaces all pods and mirrors.
func (s *Store) Set(pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.pods, s.mu.mirrors = newIndex(), newIndex()
	s.update(pods)
}

// Update writes down pods and mirrors, new ones and new versions alike. The
// Store keeps them; the caller must not change them any more.
func (s *Store) Update(pods ...*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update(pods)
}

func (s *Store) update(pods []*corev1.Pod) {
	s.mu.sorted = nil
	for _, pod := range pods {
		if podsource.IsMirror(pod) {
			s.mu.pods.remove(pod.UID)
			s.mu.mirrors.put(pod)
		} else {
			s.mu.mirrors.remove(pod.UID)
			s.mu.pods.put(pod)
		}
	}
}

// Remove forgets pods and mirrors. Unknown UIDs are no mistake.
func (s *Store) Remove(uids ...types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sorted = nil
	for _, uid := range uids {
		s.mu.pods.remove(uid)
		s.mu.mirrors.remove(uid)
	}
}

// Pods returns all pods but the mirrors, oldest first: by the time the API
// server created them, else by the time the node first saw them, then by name.
func (s *Store) Pods() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.sorted == nil {
		s.mu.sorted = oldestFirst(s.mu.pods)
	}
	return slices.Clone(s.mu.sorted)
}

func oldestFirst(x index) []*corev1.Pod {
	born := make(map[types.UID]time.Time, len(x.byUID))
	sorted := make([]*corev1.Pod, 0, len(x.byUID))
	for uid, pod := range x.byUID {
		sorted = append(sorted, pod)
		born[uid] = bornAt(pod)
	}
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		return cmp.Or(born[a.UID].Compare(born[b.UID]),
			cmp.Compare(podsource.FullName(a), podsource.FullName(b)), cmp.Compare(a.UID, b.UID))
	})
	return sorted
}

// bornAt is zero, and so the oldest, for a pod that tells no time.
func bornAt(pod *corev1.Pod) time.Time {
	if !pod.CreationTimestamp.IsZero() {
		return pod.CreationTimestamp.Time
	}
	seen, err := time.Parse(podsource.SeenLayout, pod.Annotations[podsource.AnnotationSeen])
	if err != nil {
		return time.Time{}
	}
	return seen
}

// ByUID finds a pod that is no mirror.
func (s *Store) ByUID(uid types.UID) (*corev1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	pod, ok := s.mu.pods.byUID[uid]
	return pod, ok
}

// ByName finds a pod that is no mirror. Of several with the name it is the one
// that was written last.
func (s *Store) ByName(namespace, name string) (*corev1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.pods.last(name+"_"+namespace, every)
}

// MirrorOf finds the mirror that has the name of a static pod. It may show an
// older version of it; [Shows] tells.
func (s *Store) MirrorOf(pod *corev1.Pod) (*corev1.Pod, bool) {
	if !podsource.IsStatic(pod) {
		return nil, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.mirrors.last(podsource.FullName(pod), every)
}

// StaticOf finds the static pod that has the name of a mirror.
func (s *Store) StaticOf(mirror *corev1.Pod) (*corev1.Pod, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.staticOf(mirror)
}

func (s *Store) staticOf(mirror *corev1.Pod) (*corev1.Pod, bool) {
	if !podsource.IsMirror(mirror) {
		return nil, false
	}
	return s.mu.pods.last(podsource.FullName(mirror), podsource.IsStatic)
}

// OrphanMirrors returns the mirrors without a static pod of their name, sorted
// by it. A mirror that arrives before its static pod is one until then, so they
// mean nothing before every source was heard.
func (s *Store) OrphanMirrors() []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var orphans []*corev1.Pod
	for _, mirror := range s.mu.mirrors.byUID {
		if _, ok := s.staticOf(mirror); !ok {
			orphans = append(orphans, mirror)
		}
	}
	slices.SortFunc(orphans, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(podsource.FullName(a), podsource.FullName(b)), cmp.Compare(a.UID, b.UID))
	})
	return orphans
}

// TranslateUID turns a mirror's UID, which is the only one that the API server
// knows, into that of its static pod. Any other UID stays as it is.
func (s *Store) TranslateUID(uid types.UID) types.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if mirror, ok := s.mu.mirrors.byUID[uid]; ok {
		if static, ok := s.staticOf(mirror); ok {
			return static.UID
		}
	}
	return uid
}

// Shows reports whether a mirror shows this version of a static pod. They are
// compared by the manifest's hash alone: the API server may have filled fields
// of the mirror, which must not make it outdated for ever.
func Shows(mirror, static *corev1.Pod) bool {
	hash, ok := mirror.Annotations[podsource.AnnotationMirror]
	return ok && hash == static.Annotations[podsource.AnnotationHash] &&
		podsource.FullName(mirror) == podsource.FullName(static)
}

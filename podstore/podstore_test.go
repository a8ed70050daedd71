package podstore_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podstore"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func pod(uid, name string, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: name, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func static(uid, name string) *corev1.Pod {
	return pod(uid, name, podsource.AnnotationSource, "file", podsource.AnnotationHash, uid)
}

func mirror(uid, name, hash string) *corev1.Pod {
	return pod(uid, name, podsource.AnnotationSource, "api", podsource.AnnotationHash, hash, podsource.AnnotationMirror, hash)
}

func uids(pods []*corev1.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, string(p.UID))
	}
	return all
}

// uid is the UID of a lookup's answer, or "" when there is none.
func uid(p *corev1.Pod, ok bool) string {
	if !ok {
		return ""
	}
	return string(p.UID)
}

func TestPodsComeOldestFirst(t *testing.T) {
	created := func(p *corev1.Pod, at time.Time) *corev1.Pod {
		p.CreationTimestamp = metav1.NewTime(at)
		return p
	}
	seen := func(at time.Time) []string {
		return []string{podsource.AnnotationSeen, at.Format(podsource.SeenLayout)}
	}
	s := podstore.New()
	s.Update(
		pod("d", "seen-last", seen(noon.Add(3*time.Second))...),
		created(pod("c", "created-later", seen(noon.Add(-time.Hour))...), noon.Add(2*time.Second)),
		pod("b", "seen", seen(noon.Add(time.Second))...),
		created(pod("a", "created"), noon),
		pod("0", "no-time", podsource.AnnotationSeen, "yesterday"),
		created(pod("a2", "createe"), noon),
	)
	require.Equal(t, []string{"0", "a", "a2", "b", "c", "d"}, uids(s.Pods()))
	s.Pods()[0] = nil
	require.Equal(t, []string{"0", "a", "a2", "b", "c", "d"}, uids(s.Pods()), "the slice is the caller's own")
	s.Remove("b", "unknown")
	require.Equal(t, []string{"0", "a", "a2", "c", "d"}, uids(s.Pods()))
	s.Set([]*corev1.Pod{pod("x", "x")})
	require.Equal(t, []string{"x"}, uids(s.Pods()))
}

func TestLookupsFindWhatWasWrittenLast(t *testing.T) {
	s := podstore.New()
	s.Update(pod("old", "web"), pod("new", "web"))
	require.Equal(t, "new", uid(s.ByName("default", "web")))
	require.Equal(t, "old", uid(s.ByUID("old")), "the older one is still there")
	s.Update(pod("old", "web"))
	require.Equal(t, "old", uid(s.ByName("default", "web")))
	s.Remove("old")
	require.Equal(t, "new", uid(s.ByName("default", "web")))
	s.Remove("new")
	require.Empty(t, uid(s.ByName("default", "web")))
	require.Empty(t, uid(s.ByName("other", "web")))

	next := pod("p", "web")
	s.Update(pod("p", "web"), next)
	got, _ := s.ByUID("p")
	require.Same(t, next, got, "a new version replaces the old one")
	require.Len(t, s.Pods(), 1)
}

func TestMirrorsArePairedByName(t *testing.T) {
	s := podstore.New()
	m := mirror("m", "etcd-n1", "s1")
	s.Update(m)
	require.Equal(t, []string{"m"}, uids(s.OrphanMirrors()), "it came before its static pod")
	require.EqualValues(t, "m", s.TranslateUID("m"))
	require.Empty(t, s.Pods(), "a mirror is no pod to run")
	require.Empty(t, uid(s.ByUID("m")))
	require.Empty(t, uid(s.ByName("default", "etcd-n1")))

	st := static("s1", "etcd-n1")
	s.Update(st, pod("api", "etcd-n1", podsource.AnnotationSource, "api"))
	require.Empty(t, s.OrphanMirrors())
	require.Equal(t, "m", uid(s.MirrorOf(st)))
	require.Equal(t, "s1", uid(s.StaticOf(m)), "a pod of the API server with the name is not meant")
	require.EqualValues(t, "s1", s.TranslateUID("m"))
	require.EqualValues(t, "s1", s.TranslateUID("s1"))
	require.EqualValues(t, "unknown", s.TranslateUID("unknown"))
	apiPod, _ := s.ByUID("api")
	require.Empty(t, uid(s.MirrorOf(apiPod)))
	require.Empty(t, uid(s.StaticOf(apiPod)))

	// The manifest changes: the mirror is paired, but shows the old version.
	s.Remove("s1")
	next := static("s2", "etcd-n1")
	s.Update(next)
	require.EqualValues(t, "s2", s.TranslateUID("m"))
	require.True(t, podstore.Shows(m, st))
	require.False(t, podstore.Shows(m, next))

	s.Remove("m")
	require.Empty(t, uid(s.MirrorOf(next)))
}

func TestShowsComparesHashAndName(t *testing.T) {
	st := static("s", "etcd")
	require.False(t, podstore.Shows(mirror("m", "other", "s"), st))
	require.False(t, podstore.Shows(pod("p", "etcd"), pod("q", "etcd")), "without a hash there is nothing to show")
}

func TestConcurrentUse(t *testing.T) {
	s := podstore.New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 100 {
				st := static(fmt.Sprint(i, "-", j), fmt.Sprint("p", i))
				s.Update(st, mirror(fmt.Sprint("m", i), st.Name, string(st.UID)))
				_ = s.Pods()
				if got := s.TranslateUID(types.UID(fmt.Sprint("m", i))); got != st.UID {
					t.Errorf("translated to %s, want %s", got, st.UID)
				}
				s.Remove(st.UID)
				_ = s.OrphanMirrors()
			}
		})
	}
	wg.Wait()
	require.Empty(t, s.Pods())
	require.Len(t, s.OrphanMirrors(), 4)
}

func BenchmarkPods(b *testing.B) {
	for _, n := range []int{100, 1000} {
		s := podstore.New()
		for i := range n {
			s.Update(pod(fmt.Sprint(i), fmt.Sprint("p", i), podsource.AnnotationSeen, noon.Add(time.Duration(i)).Format(podsource.SeenLayout)))
		}
		b.Run(fmt.Sprint(n, "/unchanged"), func(b *testing.B) {
			for b.Loop() {
				s.Pods()
			}
		})
		b.Run(fmt.Sprint(n, "/after a change"), func(b *testing.B) {
			next := pod("0", "p0")
			for b.Loop() {
				s.Update(next)
				s.Pods()
			}
		})
	}
}

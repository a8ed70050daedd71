package podsource_test

import (
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 7, 1, 12, 0, 0, 5000, time.UTC)

// pod is a pod whose name is its UID, after the changes.
func pod(uid string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func deleting(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
func labeled(p *corev1.Pod)  { p.Labels = map[string]string{"a": "b"} }
func running(p *corev1.Pod)  { p.Status.Phase = corev1.PodRunning }

// told is what a source holds after it told the pods.
func told(pods ...*corev1.Pod) map[types.UID]*corev1.Pod {
	return podsource.Merge("api", nil, pods, now).Pods
}

type change struct {
	Op   podsource.Op
	UIDs []types.UID
}

func changes(updates []podsource.Update) []change {
	var all []change
	for _, u := range updates {
		c := change{Op: u.Op}
		for _, p := range u.Pods {
			c.UIDs = append(c.UIDs, p.UID)
		}
		all = append(all, c)
	}
	return all
}

func TestMergeTurnsSetsIntoChanges(t *testing.T) {
	for name, c := range map[string]struct {
		old  map[types.UID]*corev1.Pod
		set  []*corev1.Pod
		want []change
	}{
		"a first empty set is an empty Add":          {nil, nil, []change{{podsource.OpAdd, nil}}},
		"a later empty set says nothing":             {told(), nil, nil},
		"new pods come in the set's order":           {nil, []*corev1.Pod{pod("b"), pod("a")}, []change{{podsource.OpAdd, []types.UID{"b", "a"}}}},
		"a pod that ends already is still an Add":    {told(), []*corev1.Pod{pod("a", deleting)}, []change{{podsource.OpAdd, []types.UID{"a"}}}},
		"a missing pod is removed":                   {told(pod("a"), pod("b")), []*corev1.Pod{pod("b")}, []change{{podsource.OpRemove, []types.UID{"a"}}}},
		"an unchanged pod is nothing":                {told(pod("a")), []*corev1.Pod{pod("a")}, nil},
		"another label is an update":                 {told(pod("a")), []*corev1.Pod{pod("a", labeled)}, []change{{podsource.OpUpdate, []types.UID{"a"}}}},
		"another annotation is an update":            {told(pod("a")), []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Annotations = map[string]string{"x": "y"} })}, []change{{podsource.OpUpdate, []types.UID{"a"}}}},
		"another spec is an update":                  {told(pod("a")), []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Spec.HostPID = true })}, []change{{podsource.OpUpdate, []types.UID{"a"}}}},
		"a deletion is a delete":                     {told(pod("a")), []*corev1.Pod{pod("a", deleting)}, []change{{podsource.OpDelete, []types.UID{"a"}}}},
		"a change of an ending pod is a delete":      {told(pod("a", deleting)), []*corev1.Pod{pod("a", deleting, labeled)}, []change{{podsource.OpDelete, []types.UID{"a"}}}},
		"a shorter grace is a delete":                {told(pod("a", deleting)), []*corev1.Pod{pod("a", deleting, func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64) })}, []change{{podsource.OpDelete, []types.UID{"a"}}}},
		"an ending pod that stays as it is: nothing": {told(pod("a", deleting)), []*corev1.Pod{pod("a", deleting)}, nil},
		"another status alone is a reconcile":        {told(pod("a")), []*corev1.Pod{pod("a", running)}, []change{{podsource.OpReconcile, []types.UID{"a"}}}},
		"status and spec together are an update":     {told(pod("a")), []*corev1.Pod{pod("a", running, labeled)}, []change{{podsource.OpUpdate, []types.UID{"a"}}}},
		"what the server books is nothing": {told(pod("a")), []*corev1.Pod{pod("a", func(p *corev1.Pod) {
			p.ResourceVersion, p.Finalizers = "9", []string{"x"}
			p.OwnerReferences, p.ManagedFields = []metav1.OwnerReference{{Name: "x"}}, []metav1.ManagedFieldsEntry{{}}
		})}, nil},
		"an empty label map is no change": {told(pod("a")), []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Labels = map[string]string{} })}, nil},
		"nil pods are passed over":        {told(), []*corev1.Pod{nil, pod("a")}, []change{{podsource.OpAdd, []types.UID{"a"}}}},
		"what is gone leaves first, the status comes last": {
			told(pod("gone"), pod("changed"), pod("ending"), pod("moved")),
			[]*corev1.Pod{pod("moved", running), pod("ending", deleting), pod("changed", labeled), pod("new")},
			[]change{{podsource.OpRemove, []types.UID{"gone"}}, {podsource.OpAdd, []types.UID{"new"}}, {podsource.OpUpdate, []types.UID{"changed"}},
				{podsource.OpDelete, []types.UID{"ending"}}, {podsource.OpReconcile, []types.UID{"moved"}}},
		},
		"the same name under a new UID leaves and comes": {
			told(pod("a", named("web"))), []*corev1.Pod{pod("b", named("web"))},
			[]change{{podsource.OpRemove, []types.UID{"a"}}, {podsource.OpAdd, []types.UID{"b"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := podsource.Merge("api", c.old, c.set, now)
			require.Equal(t, c.want, changes(m.Updates))
			require.NotNil(t, m.Pods)
			require.Empty(t, m.Dropped)
			require.Empty(t, podsource.Merge("api", m.Pods, c.set, now).Updates, "the same set again changes nothing")
		})
	}
}

func named(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }

func TestMergeDropsWhatHasNoIdentityOfItsOwn(t *testing.T) {
	m := podsource.Merge("file", nil, []*corev1.Pod{
		pod("a", named("web")), pod("b", named("web")), pod("a", named("other")), pod("", named("none")),
		pod("c", named("web"), func(p *corev1.Pod) { p.Namespace = "elsewhere" }),
	}, now)
	require.Equal(t, []change{{podsource.OpAdd, []types.UID{"a", "c"}}}, changes(m.Updates))
	var why []string
	for _, d := range m.Dropped {
		why = append(why, d.Pod.Name+": "+d.Reason)
	}
	require.Equal(t, []string{
		"web: an earlier pod of the same source has its name",
		"other: an earlier pod of the same source has its UID",
		"none: it has no UID",
	}, why)
}

func TestMergeKeepsTheNodesAnnotations(t *testing.T) {
	lies := func(p *corev1.Pod) {
		p.Annotations = map[string]string{podsource.AnnotationSource: "file", podsource.AnnotationSeen: "never", podsource.AnnotationMirror: "hash", "mine": "1"}
	}
	first := podsource.Merge("api", nil, []*corev1.Pod{pod("a", lies)}, now)
	want := map[string]string{podsource.AnnotationSource: "api", podsource.AnnotationSeen: "2026-07-01T12:00:00.000005000Z", podsource.AnnotationMirror: "hash", "mine": "1"}
	require.Equal(t, want, first.Updates[0].Pods[0].Annotations)

	second := podsource.Merge("api", first.Pods, []*corev1.Pod{pod("a", func(p *corev1.Pod) { p.Annotations = map[string]string{"mine": "2"} })}, now.Add(time.Hour))
	want["mine"] = "2"
	require.Equal(t, podsource.OpUpdate, second.Updates[0].Op)
	require.Equal(t, want, second.Updates[0].Pods[0].Annotations)
}

func TestMergeSharesNothing(t *testing.T) {
	given := pod("a", labeled)
	first := podsource.Merge("api", nil, []*corev1.Pod{given}, now)
	given.Labels["a"] = "spoilt by the source"
	first.Updates[0].Pods[0].Labels["a"] = "spoilt by the reader"
	require.Equal(t, "b", first.Pods["a"].Labels["a"])
	require.NotContains(t, given.Annotations, podsource.AnnotationSource, "the source's pod is left alone")

	update := pod("a", labeled, running)
	second := podsource.Merge("api", first.Pods, []*corev1.Pod{update}, now)
	second.Updates[0].Pods[0].Labels["a"] = "spoilt by the reader"
	update.Labels["a"] = "spoilt by the source"
	require.Equal(t, "b", second.Pods["a"].Labels["a"])
	require.Empty(t, first.Pods["a"].Status.Phase, "the old set is left alone")
}

func TestWordsOfUpdates(t *testing.T) {
	var ops []string
	for op := range podsource.OpReconcile + 2 {
		ops = append(ops, op.String())
	}
	require.Equal(t, []string{"Op(0)", "Add", "Update", "Delete", "Remove", "Reconcile", "Op(6)"}, ops)
}

func TestWhoIsStaticMirrorAndCritical(t *testing.T) {
	annotated := func(key, value string) *corev1.Pod {
		return pod("a", func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} })
	}
	priority := func(n int32) *corev1.Pod { return pod("a", func(p *corev1.Pod) { p.Spec.Priority = &n }) }
	for name, c := range map[string]struct {
		pod                      *corev1.Pod
		static, mirror, critical bool
	}{
		"no source":        {pod("a"), false, false, false},
		"from the API":     {annotated(podsource.AnnotationSource, "api"), false, false, false},
		"from a file":      {annotated(podsource.AnnotationSource, "file"), true, false, true},
		"from elsewhere":   {annotated(podsource.AnnotationSource, "mine"), true, false, true},
		"a mirror":         {annotated(podsource.AnnotationMirror, ""), false, true, true},
		"high priority":    {priority(2000000000), false, false, true},
		"not high enough":  {priority(1999999999), false, false, false},
		"node-critical":    {priority(2000001000), false, false, true},
		"negative and low": {priority(-1), false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.static, podsource.IsStatic(c.pod), "static")
			require.Equal(t, c.mirror, podsource.IsMirror(c.pod), "mirror")
			require.Equal(t, c.critical, podsource.IsCritical(c.pod), "critical")
		})
	}
	require.Equal(t, "a_default", podsource.FullName(pod("a")))
}

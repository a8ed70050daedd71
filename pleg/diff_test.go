package pleg_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestDiffOfOneContainer(t *testing.T) {
	const none = observed.State(99)
	const started, died, removed, changed = pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved, pleg.ContainerChanged
	for _, tt := range []struct {
		name     string
		old, new observed.State
		want     []pleg.EventType
	}{
		{"nothing and still nothing", none, none, nil},
		{"still created", observed.Created, observed.Created, nil},
		{"still running", observed.Running, observed.Running, nil},
		{"still exited", observed.Exited, observed.Exited, nil},
		{"created and unknown are one state", observed.Created, observed.Unknown, nil},
		{"new and created", none, observed.Created, []pleg.EventType{changed}},
		{"new and running", none, observed.Running, []pleg.EventType{started}},
		{"new and already exited", none, observed.Exited, []pleg.EventType{died}},
		{"created, then running", observed.Created, observed.Running, []pleg.EventType{started}},
		{"created, then exited between two looks", observed.Created, observed.Exited, []pleg.EventType{died}},
		{"running, then exited", observed.Running, observed.Exited, []pleg.EventType{died}},
		{"running, then unclear", observed.Running, observed.Unknown, []pleg.EventType{changed}},
		{"exited, then started by someone else", observed.Exited, observed.Running, []pleg.EventType{started}},
		{"exited, then removed", observed.Exited, none, []pleg.EventType{removed}},
		{"running, then removed between two looks", observed.Running, none, []pleg.EventType{died, removed}},
		{"created, then removed", observed.Created, none, []pleg.EventType{died, removed}},
		{"unknown, then removed", observed.Unknown, none, []pleg.EventType{died, removed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := func(s observed.State) observed.Pod {
				p := observed.Pod{UID: "u"}
				if s != none {
					p.Containers = []observed.Container{{ID: "c", State: s}}
				}
				return p
			}
			var want []pleg.PodLifecycleEvent
			for _, w := range tt.want {
				want = append(want, event("u", w, "c"))
			}
			equal(t, "Diff", pleg.Diff(pod(tt.old), pod(tt.new)), want)
		})
	}
}

func TestDiffOfPods(t *testing.T) {
	for _, tt := range []struct {
		name     string
		old, new observed.Pod
		want     []pleg.PodLifecycleEvent
	}{
		{"two empty pods", observed.Pod{}, observed.Pod{UID: "u"}, nil},
		{
			"sandboxes are reported like containers",
			podOf("u", true), podOf("u", false),
			[]pleg.PodLifecycleEvent{event("u", pleg.ContainerDied, "u-sb")},
		},
		{
			"a restart tells the end before the start",
			podOf("u", true, container("c1", observed.Running)),
			podOf("u", true, container("c2", observed.Running), container("c1", observed.Exited)),
			[]pleg.PodLifecycleEvent{event("u", pleg.ContainerDied, "c1"), event("u", pleg.ContainerStarted, "c2")},
		},
		{
			"a new pod is told from the oldest to the newest",
			observed.Pod{},
			podOf("u", true, container("c2", observed.Running), container("c1", observed.Exited)),
			[]pleg.PodLifecycleEvent{
				event("u", pleg.ContainerDied, "c1"), event("u", pleg.ContainerStarted, "c2"), event("u", pleg.ContainerStarted, "u-sb"),
			},
		},
		{
			"a pod that is gone",
			podOf("u", true, container("c1", observed.Exited)),
			observed.Pod{},
			[]pleg.PodLifecycleEvent{
				event("u", pleg.ContainerRemoved, "c1"),
				event("u", pleg.ContainerDied, "u-sb"), event("u", pleg.ContainerRemoved, "u-sb"),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { equal(t, "Diff", pleg.Diff(tt.old, tt.new), tt.want) })
	}
}

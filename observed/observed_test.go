package observed_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

func TestQuestionsOfAPod(t *testing.T) {
	pod := observed.Pod{
		UID: "u",
		Sandboxes: []observed.Sandbox{
			{ID: "s2", Attempt: 1, CreatedAt: at(20), Ready: true, IPs: []string{"10.0.0.2"}},
			{ID: "s1", CreatedAt: at(10), IPs: []string{"10.0.0.1"}},
		},
		Containers: []observed.Container{
			{ID: "c2", Name: "app", CreatedAt: at(21), State: observed.Running},
			{ID: "c1", Name: "app", CreatedAt: at(11), State: observed.Exited},
		},
	}
	if s, ok := pod.Sandbox(); !ok || s.ID != "s2" {
		t.Errorf("Sandbox = %v, %v, want the newest", s.ID, ok)
	}
	if c, ok := pod.Container("app"); !ok || c.ID != "c2" {
		t.Errorf("Container = %v, %v, want the newest", c.ID, ok)
	}
	if _, ok := pod.Container("other"); ok {
		t.Error("a container that is not there was found")
	}
	if all := pod.Instances("app"); len(all) != 2 || all[0].ID != "c2" {
		t.Errorf("Instances = %v", all)
	}
	if ips := pod.IPs(); !reflect.DeepEqual(ips, []string{"10.0.0.2"}) {
		t.Errorf("IPs = %v, want those of the ready sandbox", ips)
	}
	if !pod.Exists() || !pod.HasRunning() || !pod.HasReadySandbox() {
		t.Error("the pod exists, runs and is ready")
	}
	if empty := (observed.Pod{UID: "u"}); empty.Exists() || empty.HasRunning() || empty.HasReadySandbox() || empty.IPs() != nil {
		t.Error("an empty pod has something")
	}
}

func TestAnUnknownContainerMayRun(t *testing.T) {
	for state, want := range map[observed.State]bool{observed.Unknown: true, observed.Created: false, observed.Running: true, observed.Exited: false} {
		if got := (observed.Pod{Containers: []observed.Container{{State: state}}}).HasRunning(); got != want {
			t.Errorf("HasRunning with a container that is %v = %v, want %v", state, got, want)
		}
	}
}

func TestSortDoesNotDependOnTheOrderOfTheAnswer(t *testing.T) {
	want := observed.Pod{
		Sandboxes: []observed.Sandbox{{ID: "d", CreatedAt: at(9)}, {ID: "c", Attempt: 2, CreatedAt: at(5)}, {ID: "a", Attempt: 1, CreatedAt: at(5)}, {ID: "b", Attempt: 1, CreatedAt: at(5)}},
		Containers: []observed.Container{
			{ID: "z", CreatedAt: at(9)}, {ID: "y", RestartCount: 3, CreatedAt: at(5)}, {ID: "w", RestartCount: 1, CreatedAt: at(5)}, {ID: "x", RestartCount: 1, CreatedAt: at(5)},
		},
	}
	for range 50 {
		got := observed.Pod{Sandboxes: append([]observed.Sandbox(nil), want.Sandboxes...), Containers: append([]observed.Container(nil), want.Containers...)}
		rand.Shuffle(len(got.Sandboxes), func(i, j int) { got.Sandboxes[i], got.Sandboxes[j] = got.Sandboxes[j], got.Sandboxes[i] })
		rand.Shuffle(len(got.Containers), func(i, j int) { got.Containers[i], got.Containers[j] = got.Containers[j], got.Containers[i] })
		got.Sort()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("Sort = %+v, want %+v", got, want)
		}
	}
}

func TestAContainerThatWasMadeTooLateIsNotTheNewest(t *testing.T) {
	for name, c := range map[string]struct {
		pod  []observed.Container
		want string
	}{
		"beside its successor": {[]observed.Container{
			{ID: "late", Name: "app", State: observed.Created, RestartCount: 3, CreatedAt: at(9)},
			{ID: "runs", Name: "app", State: observed.Running, RestartCount: 4, CreatedAt: at(5)},
		}, "runs late"},
		"among others": {[]observed.Container{
			{ID: "late", Name: "app", State: observed.Created, RestartCount: 3, CreatedAt: at(9)},
			{ID: "side", Name: "side", State: observed.Running, CreatedAt: at(7)},
			{ID: "ended", Name: "app", State: observed.Exited, RestartCount: 4, CreatedAt: at(5)},
		}, "side ended late"},
		"the next one in its turn": {[]observed.Container{
			{ID: "old", Name: "app", State: observed.Exited, RestartCount: 3, CreatedAt: at(5)},
			{ID: "next", Name: "app", State: observed.Created, RestartCount: 4, CreatedAt: at(9)},
		}, "next old"},
		"another name's count says nothing": {[]observed.Container{
			{ID: "next", Name: "app", State: observed.Created, CreatedAt: at(9)},
			{ID: "side", Name: "side", State: observed.Running, RestartCount: 4, CreatedAt: at(5)},
		}, "next side"},
	} {
		pod := observed.Pod{Containers: c.pod}
		pod.Sort()
		var got []string
		for _, c := range pod.Containers {
			got = append(got, string(c.ID))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

func ExamplePod_Container() {
	pod := observed.Pod{Containers: []observed.Container{
		{ID: "c1", Name: "app", State: observed.Exited, ExitCode: 1, CreatedAt: time.Unix(100, 0)},
		{ID: "c2", Name: "app", State: observed.Running, CreatedAt: time.Unix(200, 0)},
	}}
	pod.Sort()
	c, ok := pod.Container("app")
	fmt.Println(c.ID, c.State, ok)
	// Output: c2 running true
}

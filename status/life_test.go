package status_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

// life drives one pod through whatever observations choose makes up: of a runtime
// that loses records and cannot tell states, and of an agent that is restarted.
type life struct {
	t      *testing.T
	choose func(n int) int // 0 to n-1
	pod    *corev1.Pod
	store  *status.Store
	reopen func() *status.Store // nil: the agent is never restarted
	ending bool
}

func newLife(t *testing.T, choose func(int) int) *life {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	pod := newPod(policies[choose(3)], "init:i", "side:s", "app", "b")
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	if choose(2) == 0 {
		withRule(pod, "app", 2)
	}
	return &life{t: t, choose: choose, pod: pod, store: newStore(t, status.StoreConfig{})}
}

// step makes one observation and reports it as podsync does.
func (l *life) step(n int) {
	l.t.Helper()
	now := t0.Add(time.Duration(n) * time.Second)
	last, _ := l.store.Get("u1")
	if l.reopen != nil && l.choose(5) == 0 {
		l.store = l.reopen()
		_, saved, err := l.store.Load("u1")
		if err != nil {
			l.t.Fatal(err)
		}
		if !saved { // there was nothing worth it yet, and the pod may begin anew
			last.StartTime = nil
		}
	}
	base, _ := l.store.Get("u1")
	if l.choose(25) == 0 {
		l.pod.DeletionTimestamp = &metav1.Time{Time: now}
	}
	l.ending = l.ending || l.choose(25) == 0
	in := input(l.pod, status.Recall(l.pod, l.look(n), base))
	in.Last, in.Now, in.Terminal = base, now, l.ending
	if l.choose(3) == 0 {
		in.Failures = map[string]status.Failure{"app": {Reason: "CrashLoopBackOff"}, "i": {Reason: "ErrImagePull"}, "e": {Reason: "ErrImagePull"}}
	}
	if l.choose(30) == 0 {
		in.Verdict = &status.Failure{Reason: "Evicted"}
	}
	made := status.Generate(in)
	if status.IsTerminal(made.Phase) && !status.IsTerminal(last.Phase) && in.Seen.HasRunning() {
		l.t.Fatalf("%s while %+v may run", made.Phase, in.Seen.Containers)
	}
	if _, err := l.store.Set(l.pod, made); err != nil && !errors.Is(err, status.ErrRejected) {
		l.t.Fatal(err)
	}
	st, _ := l.store.Get("u1")
	if again := status.Normalize(l.pod, st); !equality.Semantic.DeepEqual(st, again) {
		l.t.Fatalf("not in the normal form:\n%s", cmp.Diff(st, again))
	}
	l.check(last, st)
}

func (l *life) look(step int) observed.Pod {
	var list []observed.Container
	for _, name := range []string{"i", "s", "app", "b", "e"} {
		for n := range l.choose(3) {
			c := observed.Container{Name: name, ID: observed.ContainerID(fmt.Sprint(name, step/5, n)), State: observed.State(l.choose(4)),
				RestartCount: l.choose(3), ExitCode: int32(l.choose(3)), StartedAt: t0}
			if l.choose(4) > 0 {
				c.Hash = "1"
			}
			if l.choose(4) == 0 {
				c.Message = strings.Repeat("long", 1000)
			}
			list = append(list, c)
		}
	}
	p := seen(list...)
	p.Sandboxes[0].Ready = l.choose(3) > 0
	return p
}

// check holds one reported status against the one before.
func (l *life) check(last, st corev1.PodStatus) {
	l.t.Helper()
	if status.IsTerminal(last.Phase) && st.Phase != last.Phase {
		l.t.Fatalf("phase %s became %s", last.Phase, st.Phase)
	}
	if last.StartTime != nil && !last.StartTime.Equal(st.StartTime) {
		l.t.Fatalf("start time %v became %v", last.StartTime, st.StartTime)
	}
	reset := strings.HasPrefix(conditionOf(l.t, last, corev1.AllContainersRestarting), "True")
	messages := 0
	for c, kind := range podspec.All(l.pod) {
		is := statusOf(l.t, st, c.Name)
		for _, s := range []corev1.ContainerState{is.State, is.LastTerminationState} {
			if s.Terminated != nil {
				messages = max(messages, len(s.Terminated.Message))
			}
		}
		if is.Ready && is.State.Running == nil && is.State.Terminated == nil {
			l.t.Fatalf("%s is ready and waits", c.Name)
		}
		if len(last.ContainerStatuses) == 0 {
			continue
		}
		was := statusOf(l.t, last, c.Name)
		if is.RestartCount < was.RestartCount {
			l.t.Fatalf("restarts of %s fell from %d to %d", c.Name, was.RestartCount, is.RestartCount)
		}
		if end := was.State.Terminated; end != nil && is.State.Terminated == nil && !reset && !comesBack(l.pod, c, kind, end.ExitCode) {
			l.t.Fatalf("%s ended with %d and is %s", c.Name, end.ExitCode, short(is))
		}
	}
	if messages > 12288/5 {
		l.t.Fatalf("a message of %d bytes", messages)
	}
	types := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, is := range st.Conditions {
		if _, twice := types[is.Type]; twice {
			l.t.Fatalf("condition %s is there twice", is.Type)
		}
		types[is.Type] = is
	}
	for _, was := range last.Conditions {
		is, ok := types[was.Type]
		if ok && l.reopen == nil && (is.Status == was.Status) != is.LastTransitionTime.Equal(&was.LastTransitionTime) {
			l.t.Fatalf("%s: %s at %v became %s at %v", is.Type, was.Status, was.LastTransitionTime, is.Status, is.LastTransitionTime)
		}
	}
}

// comesBack reports whether a container with this exit may ever run again.
func comesBack(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind, code int32) bool {
	switch kind {
	case podspec.Ephemeral:
		return false
	case podspec.Init:
		return code == 0 || podspec.MayRestart(pod, c, code) // in a new sandbox they all do
	}
	return podspec.MayRestart(pod, c, code)
}

func TestWhateverIsSeenNothingFinalIsTakenBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		l := newLife(t, rnd.IntN)
		for n := range 30 {
			l.step(n)
		}
		last, _ := l.store.Get("u1")
		st := status.Terminate(l.pod, last, t0.Add(time.Hour))
		if !status.IsTerminal(st.Phase) {
			t.Fatalf("terminated in phase %s", st.Phase)
		}
		l.check(last, st)
	}
}

func TestNorIfTheAgentIsRestartedInBetween(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 8 {
		l := newLife(t, rnd.IntN)
		cfg := status.StoreConfig{Dir: t.TempDir()}
		l.reopen = func() *status.Store { return newStore(t, cfg) }
		l.store = l.reopen()
		for n := range 30 {
			l.step(n)
		}
	}
}

func FuzzLife(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x02\x00\x01\x03\x05", 40)))
	f.Add([]byte(strings.Repeat("\x01\x02\x07\x03\x02\x02\x09", 40)))
	f.Fuzz(func(t *testing.T, data []byte) {
		choose := func(n int) int {
			if len(data) == 0 {
				return n - 1
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		l := newLife(t, choose)
		for n := 0; len(data) > 0 && n < 20; n++ {
			l.step(n)
		}
	})
}

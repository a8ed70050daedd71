package status_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/status"
)

func newStore(t testing.TB, cfg status.StoreConfig) *status.Store {
	t.Helper()
	s, err := status.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func set(t testing.TB, s *status.Store, pod *corev1.Pod, st corev1.PodStatus) bool {
	t.Helper()
	changed, err := s.Set(pod, st)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestStoreAcceptsNewsOnly(t *testing.T) {
	pod := newPod(corev1.RestartPolicyAlways, "app")
	var news []corev1.PodPhase
	var ends []string
	s := newStore(t, status.StoreConfig{Hooks: status.Hooks{
		Changed: func(_ *corev1.Pod, st corev1.PodStatus) { news = append(news, st.Phase) },
		Terminated: func(_ *corev1.Pod, name string, kind podspec.Kind, end corev1.ContainerStateTerminated) {
			ends = append(ends, fmt.Sprint(kind, " ", name, " ", end.ExitCode, " ", end.Reason))
		},
	}})
	if _, ok := s.Get("u1"); ok {
		t.Error("an empty store knows the pod")
	}
	steps := []struct {
		seen observed.Pod
		want bool
	}{
		{seen(), true},
		{seen(), false},
		{seen(runs("app", "a")), true},
		{seen(runs("app", "a")), false},
		{seen(ended("app", "a", 1)), true},
		{seen(runs("app", "b"), ended("app", "a", 1)), true},
	}
	for i, step := range steps {
		in := input(pod, step.seen)
		in.Last, _ = s.Get("u1")
		in.Now = t0.Add(time.Duration(i) * time.Minute)
		if got := set(t, s, pod, status.Generate(in)); got != step.want {
			t.Errorf("step %d: changed = %v, want %v", i, got, step.want)
		}
	}
	if diff := cmp.Diff([]corev1.PodPhase{"Pending", "Running", "Running", "Running"}, news); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"container app 1 Error"}, ends); diff != "" {
		t.Errorf("each end is told once (-want +got):\n%s", diff)
	}
	if st, _ := s.Get("u1"); !st.StartTime.Time.Equal(t0) {
		t.Errorf("start time = %v, want the first one", st.StartTime)
	}
	if err := s.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Get("u1"); ok || len(s.All()) != 0 {
		t.Error("removed, and still there")
	}
}

func TestStoreRejectsContradictions(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	neverC := corev1.ContainerRestartPolicyNever
	special := newPod(always, "app")
	special.Spec.Containers[0].RestartPolicy = &neverC
	end := func(name string, code int32) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}}
	}
	run := func(name string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: name,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	}
	asInit := func(st corev1.PodStatus) corev1.PodStatus {
		st.InitContainerStatuses, st.ContainerStatuses = st.ContainerStatuses, nil
		return st
	}
	phase := func(p corev1.PodPhase) corev1.PodStatus { return corev1.PodStatus{Phase: p} }
	cases := []struct {
		name     string
		pod      *corev1.Pod
		old, new corev1.PodStatus
		ok       bool
	}{
		{"Always restarts", newPod(always, "app"), end("app", 0), run("app"), true},
		{"OnFailure restarts a failure", newPod(onFailure, "app"), end("app", 1), run("app"), true},
		{"OnFailure does not restart a success", newPod(onFailure, "app"), end("app", 0), run("app"), false},
		{"Never does not restart", newPod(never, "app"), end("app", 1), run("app"), false},
		{"a container's own Never counts", special, end("app", 1), run("app"), false},
		{"a sidecar restarts under Never", newPod(never, "side:s", "app"), asInit(end("s", 0)), asInit(run("s")), true},
		{"a finished init container runs again in a new sandbox", newPod(onFailure, "init:i", "app"), asInit(end("i", 0)), asInit(run("i")), true},
		{"a failed one does not under Never", newPod(never, "init:i", "app"), asInit(end("i", 1)), asInit(run("i")), false},
		{"a container that left the spec is nobody's business", newPod(never, "app"), end("old", 1), run("old"), true},
		{"Succeeded is final", newPod(never, "app"), phase(corev1.PodSucceeded), phase(corev1.PodFailed), false},
		{"Failed is final", newPod(never, "app"), phase(corev1.PodFailed), phase(corev1.PodRunning), false},
		{"Running may fail", newPod(never, "app"), phase(corev1.PodRunning), phase(corev1.PodFailed), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, status.StoreConfig{})
			set(t, s, c.pod, c.old)
			changed, err := s.Set(c.pod, c.new)
			if c.ok && (err != nil || !changed) {
				t.Errorf("Set = %v, %v; want it accepted", changed, err)
			}
			if !c.ok {
				if !errors.Is(err, status.ErrRejected) || changed || !strings.Contains(err.Error(), "default/web") {
					t.Errorf("Set = %v, %v; want ErrRejected for default/web", changed, err)
				}
				if st, _ := s.Get("u1"); !cmp.Equal(st, status.Normalize(c.pod, c.old)) {
					t.Error("the old status is gone")
				}
			}
		})
	}
}

func TestStoreSurvivesARestart(t *testing.T) {
	never, always := corev1.RestartPolicyNever, corev1.RestartPolicyAlways
	deadline := newPod(always, "app")
	deadline.Spec.ActiveDeadlineSeconds = new(int64(60))
	cases := []struct {
		name  string
		pod   *corev1.Pod
		seen  observed.Pod
		saved bool
	}{
		{"a plain pod that runs can be seen again", newPod(always, "app"), seen(runs("app", "a")), false},
		{"a restart count can not", newPod(always, "app"), seen(counted(runs("app", "a"), 1)), true},
		{"nor that a run-once container has run", newPod(never, "app"), seen(runs("app", "a")), true},
		{"nor its result", newPod(never, "app", "b"), seen(ended("app", "a", 3)), true},
		{"a run-once pod that waits has nothing to lose", newPod(never, "app"), seen(), false},
		{"an end under Always may be rebuilt", newPod(always, "app"), seen(ended("app", "a", 1)), false},
		{"a sidecar does not make its pod run-once", newPod(always, "side:s", "app"), seen(runs("s", "a")), false},
		{"a deadline counts from when the pod began", deadline, noSandbox(), true},
		{"a final phase is kept", newPod(never, "app"), seen(ended("app", "a", 0)), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := newStore(t, status.StoreConfig{Dir: dir})
			set(t, s, c.pod, status.Generate(input(c.pod, c.seen)))
			before, _ := s.Get("u1")

			s = newStore(t, status.StoreConfig{Dir: dir})
			st, ok, err := s.Load("u1")
			if err != nil || ok != c.saved {
				t.Fatalf("Load = %v, %v; want %v", ok, err, c.saved)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(before, st, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
			if got, ok := s.Get("u1"); !ok || !cmp.Equal(got, st) {
				t.Error("Load does not count as reported")
			}
			if changed := set(t, s, c.pod, st); changed {
				t.Error("the same status is news after a restart")
			}
		})
	}
}

// A container that seemed to wait for its next start and turns out to have ended for
// good has the same end before and after.
func TestAnEndForGoodIsSaved(t *testing.T) {
	cfg := status.StoreConfig{Dir: t.TempDir()}
	s, pod := newStore(t, cfg), newPod(corev1.RestartPolicyOnFailure, "app")
	st := status.Generate(input(pod, seen(ended("app", "a", 0))))
	waits := *st.DeepCopy()
	cs := &waits.ContainerStatuses[0]
	cs.LastTerminationState = cs.State
	cs.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	set(t, s, pod, waits)
	set(t, s, pod, st)
	got, ok, err := newStore(t, cfg).Load("u1")
	if err != nil || !ok || got.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("Load = %+v, %v, %v; want the end", got.ContainerStatuses, ok, err)
	}
}

func TestStoreWritesOnlyWhatMatters(t *testing.T) {
	dir := t.TempDir()
	pod := newPod(corev1.RestartPolicyNever, "app", "b")
	s := newStore(t, status.StoreConfig{Dir: dir})
	path := filepath.Join(dir, "pods/u1/kubeletkit-status.json")
	stamp := func() time.Time {
		fi, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return fi.ModTime()
	}
	age := func() { // so that a write shows
		if err := os.Chtimes(path, t0, t0); err != nil {
			t.Fatal(err)
		}
	}
	step := func(what string, s0 observed.Pod, failures map[string]status.Failure, want bool) {
		t.Helper()
		before := stamp()
		in := input(pod, s0)
		in.Failures = failures
		in.Last, _ = s.Get("u1")
		set(t, s, pod, status.Generate(in))
		if got := !stamp().Equal(before); got != want {
			t.Errorf("%s: written = %v, want %v", what, got, want)
		}
		if want {
			age()
		}
	}
	step("waiting", seen(), nil, false)
	step("one runs", seen(runs("app", "a")), nil, true)
	step("another reason to wait", seen(runs("app", "a")), map[string]status.Failure{"b": {Reason: "ErrImagePull"}}, false)
	step("one ended", seen(ended("app", "a", 0)), nil, true)
	step("its record is gone", seen(), nil, false)
	step("the other runs", seen(runs("b", "b")), nil, true)
	step("all ended", seen(ended("b", "b", 1)), nil, true)
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left in the pod's directory: %v", entries)
	}
	if err := s.Remove("u1"); err != nil {
		t.Fatal(err)
	}
	if !stamp().IsZero() {
		t.Error("Remove left the file")
	}
}

func TestDamagedFilesAreSetAside(t *testing.T) {
	pod := newPod(corev1.RestartPolicyNever, "app")
	dir := t.TempDir()
	s := newStore(t, status.StoreConfig{Dir: dir})
	set(t, s, pod, status.Generate(input(pod, seen(ended("app", "a", 3)))))
	path := filepath.Join(dir, "pods/u1/kubeletkit-status.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string][]byte{
		"empty":          {},
		"half":           good[:len(good)/2],
		"junk behind":    append(bytes.Clone(good), "junk"...),
		"wrong version":  bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1),
		"another pod's":  bytes.Replace(good, []byte(`"uid":"u1"`), []byte(`"uid":"u2"`), 1),
		"a changed byte": bytes.Replace(good, []byte(`"exitCode":3`), []byte(`"exitCode":0`), 1),
		"not JSON":       []byte("\x00\x01"),
		"too long":       bytes.Repeat([]byte(" "), 5<<20),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			aside := ""
			s := newStore(t, status.StoreConfig{Dir: dir, Hooks: status.Hooks{SetAside: func(uid observed.UID, path string, reason error) {
				if uid != "u1" || reason == nil {
					t.Errorf("SetAside(%s, %v)", uid, reason)
				}
				aside = path
			}}})
			if _, ok, err := s.Load("u1"); ok || err != nil {
				t.Fatalf("Load = %v, %v; want nothing, and no error", ok, err)
			}
			kept, err := os.ReadFile(aside)
			if err != nil || !bytes.Equal(kept, data) {
				t.Errorf("the damaged file is not kept at %q: %v", aside, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the damaged file is still in place: %v", err)
			}
		})
	}
}

func TestStoreWithoutADisk(t *testing.T) {
	root := t.TempDir()
	// A file where the pods directory should be stands for any disk trouble.
	if err := os.WriteFile(filepath.Join(root, "pods"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := newPod(corev1.RestartPolicyNever, "app")
	s := newStore(t, status.StoreConfig{Dir: root})
	st := status.Generate(input(pod, seen(ended("app", "a", 0))))
	changed, err := s.Set(pod, st)
	if !changed || err == nil || errors.Is(err, status.ErrRejected) {
		t.Errorf("Set = %v, %v; want the status to count and the disk's error", changed, err)
	}
	if got, ok := s.Get("u1"); !ok || got.Phase != corev1.PodSucceeded {
		t.Errorf("Get = %v, %v", got.Phase, ok)
	}
	if _, err := s.Set(pod, st); err == nil {
		t.Error("the second Set does not try again")
	}
	if err := os.Remove(filepath.Join(root, "pods")); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.Set(pod, st); changed || err != nil {
		t.Errorf("Set on a mended disk = %v, %v; want no news and no error", changed, err)
	}
	if _, err := os.Stat(filepath.Join(root, "pods/u1/kubeletkit-status.json")); err != nil {
		t.Error(err)
	}
}

func TestHostileUID(t *testing.T) {
	s := newStore(t, status.StoreConfig{Dir: t.TempDir()})
	for _, uid := range []string{"", "..", "../../x", "a/b"} {
		pod := newPod(corev1.RestartPolicyNever, "app")
		pod.UID = types.UID(uid)
		if _, err := s.Set(pod, status.Generate(input(pod, seen(ended("app", "a", 0))))); err == nil {
			t.Errorf("Set with UID %q: no error", uid)
		}
		if err := s.Remove(observed.UID(uid)); err == nil {
			t.Errorf("Remove of UID %q: no error", uid)
		}
	}
	if _, err := status.New(status.StoreConfig{Dir: "relative"}); err == nil {
		t.Error("New took a relative directory")
	}
}

func TestWaitMergesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, status.StoreConfig{})
		got := make(chan []string)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			var seen uint64
			for {
				if _, err := s.Wait(ctx, seen); err != nil {
					close(got)
					return
				}
				var list []string
				for _, r := range s.Since(seen) {
					list = append(list, string(r.UID)+" "+string(r.Status.Phase))
					seen = r.Version
				}
				got <- list
			}
		}()
		for _, uid := range []types.UID{"a", "b", "a"} {
			pod := newPod(corev1.RestartPolicyAlways, "app")
			pod.UID = uid
			old, known := s.Get(observed.UID(uid))
			phase := corev1.PodPending
			if known && old.Phase == corev1.PodPending {
				phase = corev1.PodRunning
			}
			set(t, s, pod, corev1.PodStatus{Phase: phase})
			synctest.Wait() // the reader is stuck with its first list
		}
		if diff := cmp.Diff([]string{"a Pending"}, <-got); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"b Pending", "a Running"}, <-got); diff != "" {
			t.Errorf("then the last of each (-want +got):\n%s", diff)
		}
		cancel()
		if _, more := <-got; more {
			t.Error("news without a change")
		}
	})
}

func TestStoreManyAtOnce(t *testing.T) {
	s := newStore(t, status.StoreConfig{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				pod := newPod(corev1.RestartPolicyNever, "app")
				pod.UID = types.UID(fmt.Sprint("u", i%4))
				st := status.Generate(input(pod, seen(runs("app", fmt.Sprint(g, i)))))
				if _, err := s.Set(pod, st); err != nil {
					t.Error(err)
				}
				s.All()
				if i%5 == 4 {
					if err := s.Remove(observed.UID(pod.UID)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func FuzzLoad(f *testing.F) {
	pod := newPod(corev1.RestartPolicyNever, "app")
	dir := f.TempDir()
	s := newStore(f, status.StoreConfig{Dir: dir})
	set(f, s, pod, status.Generate(input(pod, seen(ended("app", "a", 3)))))
	path := filepath.Join(dir, "pods/u1/kubeletkit-status.json")
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:100])
	f.Add([]byte(`{"version":1,"uid":"u1","checksum":"","status":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, status.StoreConfig{Dir: dir})
		st, ok, err := s.Load("u1")
		if err != nil {
			t.Fatalf("Load = %v: a damaged file is no reason to stop", err)
		}
		if !ok {
			return
		}
		// Whatever is accepted has to be usable.
		in := input(pod, seen(runs("app", "a")))
		in.Last = st
		if _, err := json.Marshal(status.Generate(in)); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkGenerate(b *testing.B) {
	pod := newPod(corev1.RestartPolicyAlways, "init:i", "side:s", "app")
	in := input(pod, seen(ended("i", "1", 0), runs("s", "2"), counted(runs("app", "4"), 1), ended("app", "3", 1)))
	in.Last = status.Generate(in)
	b.ReportAllocs()
	for b.Loop() {
		status.Generate(in)
	}
}

func BenchmarkSetUnchanged(b *testing.B) {
	pod := newPod(corev1.RestartPolicyNever, "app")
	s := newStore(b, status.StoreConfig{Dir: b.TempDir()})
	st := status.Generate(input(pod, seen(runs("app", "a"))))
	set(b, s, pod, st)
	b.ReportAllocs()
	for b.Loop() {
		set(b, s, pod, st)
	}
}

func Example() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "0a1b"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	store, err := status.New(status.StoreConfig{})
	if err != nil {
		panic(err)
	}
	report := func(containers ...observed.Container) {
		last, _ := store.Get("0a1b")
		st := status.Generate(status.Input{
			Pod:         pod,
			Seen:        observed.Pod{UID: "0a1b", Containers: containers},
			Last:        last,
			Now:         time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			RuntimeName: "containerd",
		})
		changed, err := store.Set(pod, st)
		fmt.Println(st.Phase, changed, err)
	}
	report(observed.Container{ID: "c1", Name: "app", State: observed.Running})
	report(observed.Container{ID: "c1", Name: "app", State: observed.Exited, ExitCode: 0})
	// The runtime's record of the container is gone. The result stays.
	report()
	// Output:
	// Running true <nil>
	// Succeeded true <nil>
	// Succeeded false <nil>
}

package podsync_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a syncer on real rooms and the fake runtime.
type world struct {
	t        *testing.T
	rt       *critest.Runtime
	observer *criclient.Observer
	statuses *status.Store
	syncer   *podsync.Syncer
	root     string
	network  error
	syncAt   time.Time
	events   []string
	ground   *ground // nil: the pods have none
	alloc    *allocation.Allocations
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, rt: newRuntime(), root: t.TempDir()}
	w.rebuild()
	return w
}

func newRuntime() *critest.Runtime { return critest.New(critest.Config{Registry: critest.AnyImage}) }

// rebuild makes everything new but the runtime and the disk, as a restart does.
func (w *world) rebuild() {
	w.t.Helper()
	puller, err := imagepull.New(imagepull.Config{Images: w.rt})
	w.must(err)
	rooms, err := podruntime.New(podruntime.Config{CRI: w.rt, Images: puller, LogDir: filepath.Join(w.root, "logs")})
	w.must(err)
	volumes, err := volume.New(volume.Config{RootDir: w.root})
	w.must(err)
	w.statuses, err = status.New(status.StoreConfig{Dir: w.root})
	w.must(err)
	w.observer, err = criclient.NewObserver(criclient.ObserverConfig{Runtime: w.rt})
	w.must(err)
	cfg := podsync.Config{
		Runtime: rooms, Volumes: volumes, Statuses: w.statuses, RootDir: w.root, HostIPs: []string{"192.0.2.1"},
		NetworkReady: func() error { return w.network },
		SyncAt:       func(_ observed.UID, at time.Time) { w.syncAt = at },
		Hooks: podsync.Hooks{Event: func(_ *corev1.Pod, _, reason, message string) {
			w.events = append(w.events, reason+": "+message)
		}},
	}
	if w.alloc != nil {
		cfg.Allocations = w.alloc
	}
	if w.ground != nil {
		cfg.Names, cfg.Cgroups, cfg.UserNamespaces, cfg.Objects = w.ground, w.ground, w.ground, w.ground
		cfg.Handler = func(*corev1.Pod) (string, observed.HandlerFeatures, error) {
			return "", observed.HandlerFeatures{UserNamespaces: true}, nil
		}
	}
	w.syncer, err = podsync.New(cfg)
	w.must(err)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) look(pod *corev1.Pod) observed.Pod {
	w.t.Helper()
	seen, err := w.observer.InspectPod(w.t.Context(), observed.Pod{UID: observed.UID(pod.UID)})
	w.must(err)
	return seen
}

// pass looks and syncs once.
func (w *world) pass(pod *corev1.Pod) (bool, error) {
	w.t.Helper()
	return w.syncer.SyncPod(w.t.Context(), pod, w.look(pod))
}

// passes syncs n times and wants no error and no end.
func (w *world) passes(pod *corev1.Pod, n int) {
	w.t.Helper()
	for range n {
		if done, err := w.pass(pod); done || err != nil {
			w.t.Fatalf("SyncPod = %v, %v", done, err)
		}
	}
}

func (w *world) reported(pod *corev1.Pod) corev1.PodStatus {
	w.t.Helper()
	st, ok := w.statuses.Get(observed.UID(pod.UID))
	if !ok {
		w.t.Fatal("nothing is reported of the pod")
	}
	return st
}

// starts counts the containers that were ever started.
func (w *world) starts() int {
	n := 0
	for _, c := range w.rt.Calls() {
		if c.Method == "StartContainer" {
			n++
		}
	}
	return n
}

func newPod(policy corev1.RestartPolicy) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
		Spec: corev1.PodSpec{
			RestartPolicy: policy,
			Volumes:       []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{
				Name: "app", Image: "app:1", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: "/work"}},
			}},
		},
	}
}

func TestAPodComesUpStopsAndIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.passes(pod, 1)
		if st := w.reported(pod); st.Phase != corev1.PodPending || len(st.PodIPs) != 1 {
			t.Errorf("after the first pass = %s, IPs %v, want Pending with the sandbox's address", st.Phase, st.PodIPs)
		}
		w.passes(pod, 2)
		if st := w.reported(pod); st.Phase != corev1.PodRunning || !st.ContainerStatuses[0].Ready || st.HostIP != "192.0.2.1" {
			t.Errorf("status = %+v", st)
		}
		if n := w.starts(); n != 1 {
			t.Errorf("%d starts in three passes, want 1", n)
		}

		w.must(w.syncer.StopPod(t.Context(), pod, w.look(pod), nil))
		if seen := w.look(pod); seen.HasRunning() || seen.HasReadySandbox() {
			t.Errorf("after the stop: %+v", seen)
		}
		w.must(w.syncer.ReleasePod(t.Context(), pod, w.look(pod)))
		if st := w.reported(pod); st.Phase != corev1.PodFailed || st.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("after the release = %+v", st)
		}
		uids, err := w.syncer.Dirs()
		w.must(err)
		if len(uids) != 1 || uids[0] != "u1" {
			t.Errorf("Dirs = %v, want the pod's", uids)
		}
		w.must(os.WriteFile(filepath.Join(w.root, "pods", "u1", "etc-hosts"), nil, 0o644)) // a kubelet's
		w.must(w.syncer.Forget(t.Context(), "u1"))
		w.must(w.syncer.Forget(t.Context(), "u1")) // again, and of nothing
		if uids, err := w.syncer.Dirs(); err != nil || len(uids) != 0 {
			t.Errorf("Dirs after Forget = %v, %v", uids, err)
		}
		if _, ok := w.statuses.Get("u1"); ok {
			t.Error("the status is still there")
		}
	})
}

func TestForgetStaysInsideThePodsDirectory(t *testing.T) {
	w := newWorld(t)
	for _, uid := range []observed.UID{"", ".", "..", "../pki", "a/b", "/etc"} {
		if err := w.syncer.Forget(t.Context(), uid); err == nil {
			t.Errorf("Forget(%q) succeeded", uid)
		}
	}
}

func TestACallThatIsTakenBackIsNoFailureOfThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.syncer.SyncPod(over, pod, w.look(pod)); !errors.Is(err, context.Canceled) {
			t.Errorf("SyncPod = %v, want the context's error", err)
		}
		w.passes(pod, 2)
		if err := w.syncer.StopPod(over, pod, w.look(pod), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("StopPod = %v, want the context's error", err)
		}
		if len(w.events) > 0 {
			t.Errorf("events: %v", w.events)
		}
	})
}

func TestAHostileUIDMakesNoDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		pod.UID = "../escaped"
		if done, err := w.pass(pod); done || err == nil {
			t.Errorf("SyncPod = %v, %v, want an error", done, err)
		}
		if _, err := os.Stat(filepath.Join(w.root, "escaped")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory outside of pods was made: %v", err)
		}
	})
}

func TestTheTerminationMessageOfTheContainerIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyNever)
		w.rt.AddImage("app:1", critest.Behavior{Exits: true, After: time.Second, ExitCode: 3, TerminationMessage: "out of luck"})
		w.passes(pod, 1)
		time.Sleep(2 * time.Second)
		done, err := w.pass(pod)
		if !done || err != nil {
			t.Fatalf("SyncPod = %v, %v, want done", done, err)
		}
		st := w.reported(pod)
		end := st.ContainerStatuses[0].State.Terminated
		if st.Phase != corev1.PodFailed || end == nil || end.ExitCode != 3 || end.Message != "out of luck" {
			t.Errorf("status = %s %+v", st.Phase, end)
		}
	})
}

// A container that fails for weeks must not fill the disk.
func TestTerminationMessagesDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.rt.AddImage("app:1", critest.Behavior{Exits: true, After: time.Second, ExitCode: 3, TerminationMessage: "out of luck"})
		files := func() int {
			entries, err := os.ReadDir(filepath.Join(w.root, "pods", "u1", "containers", "app"))
			w.must(err)
			return len(entries)
		}
		for range 5 {
			w.passes(pod, 1)
			time.Sleep(time.Hour)
			for _, old := range w.look(pod).Instances("app")[1:] {
				w.must(w.rt.Vanish(string(old.ID)))
			}
		}
		if n := files(); n > 2 {
			t.Errorf("%d files after five starts, want those of the last two", n)
		}
		if got := w.look(pod).Instances("app")[0].Message; got != "out of luck" {
			t.Errorf("last words = %q", got)
		}
		before := files()
		for range 5 {
			w.rt.FailNext("CreateContainer", errors.New("no"))
			if _, err := w.pass(pod); err == nil {
				t.Fatal("a failed start is no error")
			}
			time.Sleep(time.Hour)
		}
		if n := files(); n > before+1 {
			t.Errorf("%d files after five starts that failed, want at most %d", n, before+1)
		}
	})
}

func TestWhatRunsOnceIsNotRunTwice(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy corev1.RestartPolicy
		code   int32
		forget func(w *world) // what is lost before the agent comes back
		done   bool
	}{
		{"Never, only the container's record is lost", corev1.RestartPolicyNever, 1, vanishContainer, true},
		{"Never, all records are lost", corev1.RestartPolicyNever, 1, vanishAll, true},
		{"OnFailure after a success, the record is lost", corev1.RestartPolicyOnFailure, 0, vanishContainer, true},
		{"OnFailure after a success, all records are lost", corev1.RestartPolicyOnFailure, 0, vanishAll, true},
		{"OnFailure after a failure runs again", corev1.RestartPolicyOnFailure, 1, vanishContainer, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, pod := newWorld(t), newPod(c.policy)
				w.rt.AddImage("app:1", critest.Behavior{Exits: true, After: time.Second, ExitCode: c.code})
				w.passes(pod, 1)
				time.Sleep(2 * time.Second)
				if _, err := w.pass(pod); err != nil { // reports the end, which is on disk then
					t.Fatal(err)
				}
				starts := w.starts()
				c.forget(w)
				w.rebuild()
				saved, ok, err := w.statuses.Load("u1")
				if err != nil || !ok {
					t.Fatalf("Load = %v, %v", ok, err)
				}
				pod = pod.DeepCopy()
				pod.Status = saved
				done, err := w.pass(pod)
				if err != nil || done != c.done {
					t.Errorf("SyncPod = %v, %v, want done %v", done, err, c.done)
				}
				if again := w.starts() > starts; again == c.done {
					t.Errorf("started again: %v", again)
				}
			})
		})
	}
}

func vanishContainer(w *world) {
	id, ok := w.rt.FindContainer("u1", "app")
	if !ok {
		w.t.Fatal("no container")
	}
	w.must(w.rt.Vanish(id))
}

func vanishAll(w *world) {
	id, ok := w.rt.FindSandbox("u1")
	if !ok {
		w.t.Fatal("no sandbox")
	}
	w.must(w.rt.Vanish(id))
}

func TestOnlyPodsOnTheHostNetworkStartWithoutANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.network = errors.New("no CNI configuration")
		_, err := w.pass(pod)
		var retry interface{ RetryAt() time.Time }
		if err == nil || !strings.Contains(err.Error(), "network is not ready") || !errors.As(err, &retry) || !retry.RetryAt().Equal(time.Now().Add(time.Second)) {
			t.Errorf("SyncPod = %v, want a wait of a second for the network", err)
		}
		if st := w.reported(pod); st.Phase != corev1.PodPending {
			t.Errorf("phase = %s, want it reported all the same", st.Phase)
		}
		host := newPod(corev1.RestartPolicyAlways)
		host.UID, host.Spec.HostNetwork = "u2", true
		w.passes(host, 2)
		if st := w.reported(host); st.Phase != corev1.PodRunning {
			t.Errorf("host network pod = %s", st.Phase)
		}
		w.network = nil
		w.passes(pod, 2)
		w.network = errors.New("gone again")
		w.passes(pod, 1) // it has its network; nobody takes it away
	})
}

func TestWhyAContainerDoesNotStartIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.rt.FailNext("PullImage", errors.New("registry says no"))
		if _, err := w.pass(pod); err == nil {
			t.Fatal("SyncPod succeeded")
		}
		waiting := w.reported(pod).ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != "ErrImagePull" || !strings.Contains(waiting.Message, "registry says no") {
			t.Errorf("waiting = %+v", waiting)
		}
		time.Sleep(time.Minute)
		w.passes(pod, 2)
		if st := w.reported(pod).ContainerStatuses[0].State; st.Running == nil {
			t.Errorf("state = %+v, want the failure forgotten", st)
		}
	})
}

func TestAPodPastItsDeadlineEndsAndIsFailedOnlyWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(10))
		start := time.Now()
		w.passes(pod, 2)
		if left := w.syncAt.Sub(start); left < 9*time.Second || left > 10*time.Second {
			t.Errorf("next sync asked for in %v, want at the deadline", left)
		}
		time.Sleep(time.Until(w.syncAt))
		if done, err := w.pass(pod); !done || err != nil {
			t.Fatalf("SyncPod at the deadline = %v, %v, want done", done, err)
		}
		if st := w.reported(pod); st.Phase != corev1.PodRunning {
			t.Errorf("phase = %s while the container runs, want Running", st.Phase)
		}
		w.must(w.syncer.StopPod(t.Context(), pod, w.look(pod), nil))
		w.must(w.syncer.ReleasePod(t.Context(), pod, w.look(pod)))
		if st := w.reported(pod); st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" {
			t.Errorf("at the end = %s %s", st.Phase, st.Reason)
		}
	})
}

func TestADiskThatCanNotBeWrittenStopsNoContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.passes(pod, 2)
		other := newPod(corev1.RestartPolicyAlways)
		other.UID = "u2"
		w.must(os.WriteFile(filepath.Join(w.root, "pods", "u2"), nil, 0o600)) // where its directory should be
		if _, err := w.pass(other); err == nil {
			t.Error("SyncPod of the pod without a directory succeeded")
		}
		if len(w.events) == 0 || !strings.Contains(w.events[len(w.events)-1], "making pod data directories") {
			t.Errorf("events = %q", w.events)
		}
		w.passes(pod, 1)
		if seen := w.look(pod); !seen.HasRunning() {
			t.Error("the running pod was touched")
		}
	})
}

// The disk may be full of what the pod has written into its volumes.
func TestAPodEndsAndItsVolumesGoAlthoughTheDiskCanNotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(10))
		w.passes(pod, 2)
		volume := filepath.Join(w.root, "pods", "u1", "volumes", "kubernetes.io~empty-dir", "work")
		w.must(os.WriteFile(filepath.Join(volume, "much"), make([]byte, 1<<20), 0o600))
		inTheWay := filepath.Join(w.root, "pods", "u1", "kubeletkit-status.json.tmp", "x")
		w.must(os.MkdirAll(inTheWay, 0o750))

		time.Sleep(11 * time.Second)
		if done, err := w.pass(pod); !done || err != nil {
			t.Fatalf("SyncPod past the deadline = %v, %v, want done", done, err)
		}
		w.must(w.syncer.StopPod(t.Context(), pod, w.look(pod), nil))
		if err := w.syncer.ReleasePod(t.Context(), pod, w.look(pod)); err == nil {
			t.Error("ReleasePod succeeded, and the result is not on disk")
		}
		if _, err := os.Stat(volume); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the volume is still there: %v", err)
		}

		w.must(os.RemoveAll(filepath.Dir(inTheWay)))
		w.must(w.syncer.ReleasePod(t.Context(), pod, w.look(pod)))
		w.rebuild()
		if st, ok, err := w.statuses.Load("u1"); !ok || err != nil || st.Phase != corev1.PodFailed || st.Reason != "DeadlineExceeded" {
			t.Errorf("on disk: %s %s, %v, %v", st.Phase, st.Reason, ok, err)
		}
	})
}

func TestAStopOfAPodThatOnlyTheRuntimeKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pod := newWorld(t), newPod(corev1.RestartPolicyAlways)
		w.passes(pod, 1)
		w.rebuild() // knows nothing of it
		w.must(w.syncer.StopPod(t.Context(), nil, w.look(pod), ptr.To(int64(1))))
		if seen := w.look(pod); seen.HasRunning() || seen.HasReadySandbox() {
			t.Errorf("still there: %+v", seen)
		}
	})
}

func Example() {
	dir, err := os.MkdirTemp("", "podsync")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	rt := critest.New(critest.Config{Registry: critest.AnyImage})
	images, _ := imagepull.New(imagepull.Config{Images: rt})
	runtime, _ := podruntime.New(podruntime.Config{CRI: rt, Images: images, LogDir: filepath.Join(dir, "logs")})
	volumes, _ := volume.New(volume.Config{RootDir: dir})
	statuses, _ := status.New(status.StoreConfig{Dir: dir})
	observer, _ := criclient.NewObserver(criclient.ObserverConfig{Runtime: rt})
	syncer, err := podsync.New(podsync.Config{
		Runtime: runtime, Volumes: volumes, Statuses: statuses, RootDir: dir,
		Hooks: podsync.Hooks{
			Planned: func(_ *corev1.Pod, plan podruntime.Plan) { fmt.Println("plan:", plan) },
			Step:    func(_ *corev1.Pod, step string) { fmt.Println("step:", step) },
		},
	})
	if err != nil {
		panic(err)
	}

	pod := newPod(corev1.RestartPolicyAlways)
	ctx := context.Background()
	for range 2 {
		seen, _ := observer.InspectPod(ctx, observed.Pod{UID: observed.UID(pod.UID)})
		if _, err := syncer.SyncPod(ctx, pod, seen); err != nil {
			fmt.Println(err)
		}
	}
	st, _ := statuses.Get(observed.UID(pod.UID))
	fmt.Println("phase:", st.Phase)
	// Output:
	// plan: create sandbox, start [app]
	// step: volumes ready
	// step: sandbox ready
	// phase: Running
}

func TestAPodThatCannotGoOnHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, static := range []bool{false, true} {
			w, pod := newWorld(t), newPod(corev1.RestartPolicyNever)
			if static {
				pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
			}
			w.rt.AddImage("init:1", critest.Exit(0, 0))
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
			w.passes(pod, 1)
			time.Sleep(time.Second)
			// The sandbox ends while the pod is between two containers.
			sandbox, ok := w.rt.FindSandbox("u1")
			if !ok {
				t.Fatal("no sandbox")
			}
			w.must(w.rt.FailSandbox(sandbox))
			if done, err := w.pass(pod); !done || err != nil {
				t.Fatalf("SyncPod = %v, %v, want the end of the pod", done, err)
			}
			w.must(w.syncer.StopPod(t.Context(), pod, w.look(pod), nil))
			w.must(w.syncer.ReleasePod(t.Context(), pod, w.look(pod)))
			if st := w.reported(pod); st.Phase != corev1.PodFailed || st.Reason != "SandboxLost" {
				t.Errorf("static %v: reported %s, %s, want Failed and why", static, st.Phase, st.Reason)
			}
			if n := w.starts(); n != 1 {
				t.Errorf("%d containers were started, want init only", n)
			}
		}
	})
}

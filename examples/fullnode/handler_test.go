package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// story runs a test in a bubble with a world of its own. At the end the agent
// that still runs is stopped; a goroutine that it left would fail the bubble.
func story(t *testing.T, cfg critest.Config, tell func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.end()
		tell(t, w)
	})
}

func TestSameUIDComesBackWhileItEnds(t *testing.T) {
	for _, source := range []string{podsource.SourceFile, podsource.SourceAPI} {
		t.Run(source, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				shelf := map[string]*shelf{podsource.SourceFile: w.static, podsource.SourceAPI: w.api}[source]
				w.start()
				pod := makePod("web", "fixed", containers(container("app", "stubborn")))
				for round := range 5 {
					shelf.put(pod)
					w.within(25*time.Second, fmt.Sprintf("running in round %d", round), func() bool { return w.phase(pod.UID) == corev1.PodRunning && w.runs(pod.UID, "app") })
					first, _ := w.running(pod.UID, "app")
					shelf.drop(pod.UID)
					w.within(time.Second, "asked to end", func() bool { return w.agent.workers.Phase("fixed") >= podworkers.Stopping })
					shelf.put(pod)
					w.within(25*time.Second, "a new life", func() bool {
						second, ok := w.running(pod.UID, "app")
						return ok && second != first && w.phase(pod.UID) == corev1.PodRunning
					})
					if n := w.status(pod.UID).ContainerStatuses[0].RestartCount; n != 0 {
						t.Errorf("restartCount = %d in a new life, want 0", n)
					}
					shelf.drop(pod.UID)
					if round%2 == 0 { // and once to the end
						w.within(40*time.Second, "gone", func() bool { return w.gone(pod.UID) })
					}
				}
				w.within(40*time.Second, "gone", func() bool { return w.gone(pod.UID) })
			})
		})
	}
}

func TestAnEndedPodThatIsTakenAwayAndPutBackRunsAgain(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		pod := makePod("once", "once", policy(corev1.RestartPolicyNever), containers(container("app", "exit", "0", "1s")))
		for range 3 {
			starts := 0
			w.starts = func(*runtimeapi.ContainerConfig) { starts++ }
			w.api.put(pod)
			w.within(10*time.Second, "Succeeded", func() bool { return w.phase("once") == corev1.PodSucceeded })
			w.sleep(2 * time.Minute)
			if starts != 1 {
				t.Fatalf("the container started %d times, want once", starts)
			}
			w.api.drop("once")
			w.sleep(50 * time.Millisecond)
		}
		w.within(40*time.Second, "gone", func() bool { return w.gone("once") })
	})
}

// Without events nothing but a look tells that exited containers were removed.
func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	for _, noEvents := range []bool{false, true} {
		t.Run(fmt.Sprintf("without events %v", noEvents), func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.noEvents = noEvents
				w.start()
				for i := range 5 {
					uid := types.UID(fmt.Sprint("uid-", i))
					w.static.put(makePod(fmt.Sprint("web-", i), uid))
					w.within(10*time.Second, "running", func() bool { return w.runs(uid, "app") })
					w.static.drop(uid)
					w.within(3*time.Minute, "gone", func() bool { return w.gone(uid) })
				}
				w.within(time.Minute, "forgotten", func() bool { return len(w.agent.pleg.Cache().Pods()) == 0 })
			})
		})
	}
}

func TestRefusedStaticPodStartsWhenItFits(t *testing.T) {
	t.Run("a place becomes free", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.options.config.MaxPods = 1
			w.start()
			w.static.put(makePod("first", "first"))
			w.within(5*time.Second, "running", func() bool { return w.runs("first", "app") })
			w.static.put(makePod("second", "second"))
			w.within(5*time.Second, "refused", func() bool { return w.phase("second") == corev1.PodFailed })
			w.always(5*time.Minute, time.Minute, "kept out", func() bool { return !w.runs("second", "app") && w.runs("first", "app") })
			w.static.drop("first")
			w.within(time.Minute, "running", func() bool { return w.runs("second", "app") && w.phase("second") == corev1.PodRunning })
		})
	})
	t.Run("what the other pod has ended holds no place", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.options.config.MaxPods = 1
			w.start()
			w.static.put(makePod("first", "first", policy(corev1.RestartPolicyNever), containers(container("app", "exit", "0", "30s"))))
			w.within(5*time.Second, "running", func() bool { return w.runs("first", "app") })
			w.static.put(makePod("second", "second"))
			w.within(5*time.Second, "refused", func() bool { return w.phase("second") == corev1.PodFailed })
			w.within(90*time.Second, "running", func() bool { return w.runs("second", "app") })
		})
	})
	t.Run("the refusal survives no restart when there is room", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.options.config.MaxPods = 1
			w.start()
			w.static.put(makePod("first", "first"))
			w.within(5*time.Second, "running", func() bool { return w.runs("first", "app") })
			w.static.put(makePod("second", "second"))
			w.within(5*time.Second, "refused", func() bool { return w.phase("second") == corev1.PodFailed })
			w.sleep(10 * time.Second)
			w.end()
			w.options.config.MaxPods = 2
			w.start()
			w.within(20*time.Second, "running", func() bool { return w.runs("second", "app") && w.phase("second") == corev1.PodRunning })
		})
	})
	t.Run("a field that is not supported stays refused and the corrected manifest runs", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			bad := makePod("web", "v1")
			bad.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
			w.static.put(bad)
			w.within(5*time.Second, "refused", func() bool { return w.phase("v1") == corev1.PodFailed })
			if m := w.status("v1").Message; !strings.Contains(m, "spec.resourceClaims") {
				t.Errorf("message = %q, want the field's path", m)
			}
			w.always(2*time.Minute, 10*time.Second, "kept out", func() bool { return len(w.containers("v1")) == 0 })
			w.static.change(func(pods map[types.UID]*corev1.Pod) {
				delete(pods, "v1")
				pods["v2"] = makePod("web", "v2")
			})
			w.within(10*time.Second, "running", func() bool { return w.runs("v2", "app") })
			w.within(time.Minute, "gone", func() bool { return w.gone("v1") })
			if st, ok := w.agent.handler.statuses.Get("v1"); ok {
				t.Errorf("status of the removed pod stays: %v", st)
			}
		})
	})
}

func TestRunningPodsAreNotRefusedAfterARestart(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.options.config.MaxPods = 3
		w.start()
		ids := map[types.UID]string{}
		for _, uid := range []types.UID{"z", "y", "x"} {
			w.static.put(makePod(string(uid), uid))
			w.within(5*time.Second, "running", func() bool { return w.runs(uid, "app") })
			ids[uid], _ = w.running(uid, "app")
		}
		// These are first by every order that does not know who runs.
		w.static.put(makePod("a", "a"), makePod("b", "b"))
		w.sleep(10 * time.Second)
		for range 10 {
			w.end()
			w.start()
			w.sleep(40 * time.Second)
			for uid, id := range ids {
				if now, _ := w.running(uid, "app"); now != id {
					t.Fatalf("pod %s: container %.8s became %.8s\n%s", uid, id, now, w.picture())
				}
			}
		}
	})
}

func TestOrphanWhoseManifestWentWhileNoAgentRan(t *testing.T) {
	for _, exited := range []bool{false, true} {
		t.Run(fmt.Sprintf("exited %v", exited), func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.start()
				pod := makePod("web", "web", policy(corev1.RestartPolicyOnFailure))
				pod.Spec.Volumes = []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "work", MountPath: "/work"}}
				w.static.put(pod)
				w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") })
				if left := strings.Join(w.left("web"), ", "); !strings.Contains(left, "pod directory") || !strings.Contains(left, "log directory") {
					t.Fatalf("a running pod has %s, want both directories", left)
				}
				if exited {
					id, _ := w.running("web", "app")
					if err := w.rt.Kill(id, 0); err != nil {
						t.Fatal(err)
					}
					w.within(5*time.Second, "ended", func() bool { return w.phase("web") == corev1.PodSucceeded })
				}
				w.end()
				w.static.drop("web")
				w.sleep(time.Minute)
				w.start()
				w.within(time.Minute, "gone", func() bool { return w.gone("web") })
				if all := w.agent.handler.statuses.All(); len(all) > 0 {
					t.Errorf("statuses stay: %v", all)
				}
			})
		})
	}
}

func TestStaticPodEditedWhileNoAgentRan(t *testing.T) {
	for _, words := range [][]string{nil, {"stubborn"}, {"slow", "20s"}} {
		t.Run(fmt.Sprint(words), func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.start()
				w.static.put(makePod("web", "v1", grace(30), containers(container("app", words...))))
				w.within(5*time.Second, "running", func() bool { return w.runs("v1", "app") })
				w.end()
				w.static.change(func(pods map[types.UID]*corev1.Pod) {
					delete(pods, "v1")
					pods["v2"] = makePod("web", "v2")
				})
				w.api.speaks(false) // the new version does not wait for other sources
				w.start()
				w.within(time.Minute, "replaced", func() bool {
					if w.runs("v1", "app") && w.runs("v2", "app") {
						t.Fatal("both versions run at the same time")
					}
					return w.runs("v2", "app")
				})
				w.api.speaks(true)
				w.within(time.Minute, "gone", func() bool { return w.gone("v1") })
			})
		})
	}
}

func TestStaticPodEditedWhileItRuns(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("web", "v0", containers(container("app", "stubborn"))))
		w.within(5*time.Second, "running", func() bool { return w.runs("v0", "app") })
		for i := range 5 {
			old, next := types.UID(fmt.Sprint("v", i)), types.UID(fmt.Sprint("v", i+1))
			w.static.change(func(pods map[types.UID]*corev1.Pod) {
				delete(pods, old)
				pods[next] = makePod("web", next, containers(container("app", "stubborn")))
			})
			w.within(20*time.Second, "replaced", func() bool {
				if w.runs(old, "app") && w.runs(next, "app") {
					t.Fatal("both versions run at the same time")
				}
				return w.runs(next, "app")
			})
		}
		w.within(time.Minute, "gone", func() bool { return w.gone("v4") })
	})
}

func TestSourceThatNeverSpeaks(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.api.put(makePod("api", "api"))
		w.static.put(makePod("static", "static"), makePod("other", "other"))
		w.within(5*time.Second, "running", func() bool { return w.runs("api", "app") && w.runs("static", "app") && w.runs("other", "app") })
		api, _ := w.running("api", "app")
		w.end()
		w.api.speaks(false)
		w.start()
		w.sleep(time.Minute)
		w.static.drop("static")
		w.within(40*time.Second, "ended", func() bool { return !w.runs("static", "app") })
		w.always(10*time.Minute, 10*time.Second, "left alone", func() bool {
			now, _ := w.running("api", "app")
			return now == api && w.runs("other", "app")
		})
		w.static.put(makePod("static", "static-2"))
		w.within(20*time.Second, "a new manifest running", func() bool { return w.runs("static-2", "app") })
		// The same UID comes back while that source is silent.
		w.static.put(makePod("again", "static"))
		w.within(40*time.Second, "a manifest that was there before running", func() bool { return w.runs("static", "app") })
		w.api.speaks(true)
		w.always(time.Minute, time.Second, "left alone", func() bool {
			now, _ := w.running("api", "app")
			return now == api
		})
	})
}

func TestOneHungPodDelaysNobody(t *testing.T) {
	for _, method := range []string{"ContainerStatus", "PodSandboxStatus", "StopContainer", "StartContainer", "RunPodSandbox", "CreateContainer"} {
		t.Run(method, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.start()
				w.static.put(makePod("stuck", "stuck"), makePod("other", "other"))
				w.within(5*time.Second, "running", func() bool { return w.runs("stuck", "app") && w.runs("other", "app") })
				clear := w.inject(critest.Fault{Method: method, PodUID: "stuck", Hang: true})
				id, _ := w.running("stuck", "app")
				if err := w.rt.Kill(id, 1); err != nil {
					t.Fatal(err)
				}
				w.sleep(time.Second)
				if method == "StopContainer" || method == "RunPodSandbox" || method == "CreateContainer" {
					sandbox, _ := w.rt.FindSandbox("stuck")
					if err := w.rt.FailSandbox(sandbox); err != nil {
						t.Fatal(err)
					}
				}
				id, _ = w.running("other", "app")
				if err := w.rt.Kill(id, 1); err != nil {
					t.Fatal(err)
				}
				w.within(time.Second, "the other one restarted", func() bool { return w.runs("other", "app") })
				w.static.put(makePod("new", "new"))
				w.within(2*time.Second, "the new one running", func() bool { return w.runs("new", "app") })
				w.static.drop("new")
				w.within(30*time.Second, "the new one gone", func() bool { return w.gone("new") })
				if err := w.agent.pleg.Healthy(); err != nil {
					t.Error(err)
				}
				w.sleep(10 * time.Minute)
				if err := w.agent.pleg.Healthy(); err != nil {
					t.Error(err)
				}
				clear()
				w.within(10*time.Minute, "the stuck one running again", func() bool {
					return w.runs("stuck", "app") && w.phase("stuck") == corev1.PodRunning
				})
			})
		})
	}
}

func TestRuntimeThatIsAwayAtTheStart(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.away(true)
		w.static.put(makePod("web", "web"))
		w.start()
		w.sleep(2 * time.Minute)
		select {
		case err := <-w.done:
			t.Fatalf("Run ended: %v", err)
		default:
		}
		w.away(false)
		w.within(15*time.Second, "running", func() bool { return w.runs("web", "app") })
	})
}

func TestRuntimeThatRestarts(t *testing.T) {
	for _, noEvents := range []bool{false, true} {
		t.Run(fmt.Sprintf("without events %v", noEvents), func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.noEvents = noEvents
				w.start()
				ids := map[types.UID]string{}
				for i := range 20 {
					uid := types.UID(fmt.Sprint("pod-", i))
					w.static.put(makePod(string(uid), uid))
				}
				w.sleep(10 * time.Second)
				for _, pod := range w.static.all() {
					ids[pod.UID], _ = w.running(pod.UID, "app")
				}
				for round := range 10 {
					w.away(true)
					w.sleep(time.Duration(round) * 5 * time.Second)
					w.inject(critest.Fault{Method: "ListPodSandbox", Empty: true, Times: 1})
					w.inject(critest.Fault{Method: "ListContainers", Empty: true, Times: 1})
					w.away(false)
					w.sleep(40 * time.Second)
					for uid, id := range ids {
						if now, _ := w.running(uid, "app"); now != id || id == "" {
							t.Fatalf("round %d: pod %s: container %.8s became %.8s\n%s", round, uid, id, now, w.picture())
						}
					}
				}
				// An end while it was away is seen.
				w.away(true)
				if err := w.rt.Kill(ids["pod-3"], 1); err != nil {
					t.Fatal(err)
				}
				w.sleep(20 * time.Second)
				w.away(false)
				w.within(15*time.Second, "restarted", func() bool { return w.runs("pod-3", "app") })
				// And a removal.
				w.away(true)
				w.static.drop("pod-4")
				w.sleep(20 * time.Second)
				w.away(false)
				w.within(40*time.Second, "gone", func() bool { return w.gone("pod-4") })
			})
		})
	}
}

func TestDamagedStatusFile(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"half":              func(b []byte) []byte { return b[:len(b)/2] },
		"junk at its end":   func(b []byte) []byte { return append(b, "junk"...) },
		"another version":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":9`), 1) },
		"another pod's":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"uid":"web"`), []byte(`"uid":"bew"`), 1) },
		"not even JSON":     func(b []byte) []byte { return []byte("\x00\x00") },
		"a flipped letter":  func(b []byte) []byte { return bytes.Replace(b, []byte("Running"), []byte("running"), 1) },
		"all zeros":         func(b []byte) []byte { return make([]byte, len(b)) },
		"far beyond limits": func(b []byte) []byte { return bytes.Repeat([]byte("x"), 5<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.start()
				w.static.put(makePod("web", "web", policy(corev1.RestartPolicyOnFailure)))
				w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") && w.phase("web") == corev1.PodRunning })
				w.sleep(time.Second)
				id, _ := w.running("web", "app")
				w.end()
				file := filepath.Join(w.options.rootDir, "pods", "web", "kubeletkit-status.json")
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, damage(data), 0o600); err != nil {
					t.Fatal(err)
				}
				w.start()
				w.within(15*time.Second, "reported again", func() bool { return w.phase("web") == corev1.PodRunning })
				if now, _ := w.running("web", "app"); now != id {
					t.Errorf("container %.8s became %.8s", id, now)
				}
				if _, err := os.Stat(file + ".damaged"); err != nil {
					t.Errorf("the damaged file is not set aside: %v", err)
				}
				w.static.drop("web")
				w.within(time.Minute, "gone", func() bool { return w.gone("web") })
			})
		})
	}
}

// blockStatusFile makes every write of the pod's status fail, also for root, and
// returns the way back.
func (w *world) blockStatusFile(uid types.UID) (free func()) {
	w.Helper()
	temp := filepath.Join(w.options.rootDir, "pods", string(uid), "kubeletkit-status.json.tmp")
	if err := os.MkdirAll(filepath.Join(temp, "in the way"), 0o700); err != nil {
		w.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(temp); err != nil {
			w.Fatal(err)
		}
	}
}

func TestStatusThatCannotBeWrittenKillsNothing(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("web", "web", policy(corev1.RestartPolicyOnFailure), containers(container("app"), container("side"))))
		w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") && w.runs("web", "side") })
		w.sleep(time.Second)
		free := w.blockStatusFile("web")
		side, _ := w.running("web", "side")
		app, _ := w.running("web", "app")
		if err := w.rt.Kill(app, 1); err != nil {
			t.Fatal(err)
		}
		w.always(5*time.Minute, 10*time.Second, "left alone", func() bool {
			now, _ := w.running("web", "side")
			return now == side
		})
		w.end()
		w.start()
		w.always(5*time.Minute, 10*time.Second, "left alone", func() bool {
			now, _ := w.running("web", "side")
			return now == side
		})
		free()
		w.within(2*time.Minute, "both running", func() bool { return w.runs("web", "app") && w.runs("web", "side") })
		w.blockStatusFile("web")
		w.static.drop("web")
		w.within(time.Minute, "stopped although nothing can be written", func() bool { return !w.runs("web", "app") && !w.runs("web", "side") })
	})
}

func TestFullDiskOfTheRuntime(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("old", "old"))
		w.within(5*time.Second, "running", func() bool { return w.runs("old", "app") })
		id, _ := w.running("old", "app")
		w.rt.FillDisk(true)
		w.static.put(makePod("new", "new"))
		w.always(5*time.Minute, 10*time.Second, "left alone", func() bool {
			now, _ := w.running("old", "app")
			return now == id
		})
		w.rt.FillDisk(false)
		w.within(30*time.Second, "running", func() bool { return w.runs("new", "app") })
	})
}

func TestManyExitedContainersOfUnknownPods(t *testing.T) {
	story(t, critest.Config{KeepCalls: -1}, func(t *testing.T, w *world) {
		const pods, each = 200, 10
		for i := range pods {
			w.litter(fmt.Sprint("unknown-", i), each)
		}
		w.static.put(makePod("web", "web"))
		w.start()
		w.within(time.Second, "running at once", func() bool { return w.runs("web", "app") })
		w.within(10*time.Minute, "all cleared away", func() bool {
			w.sleep(10 * time.Second)
			all, sandboxes := w.everything()
			return len(all) == 1 && len(sandboxes) == 1
		})
	})
}

// litter leaves exited containers of a pod that no agent knows.
func (w *world) litter(uid string, n int) {
	w.Helper()
	ctx := w.Context()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
		Labels:   map[string]string{observed.LabelPodUID: uid, observed.LabelPodName: uid, observed.LabelPodNamespace: "default"},
	}
	id, err := w.rt.RunPodSandbox(ctx, sandbox, "")
	if err != nil {
		w.Fatal(err)
	}
	image := &runtimeapi.ImageSpec{Image: "registry.example/app:1"}
	if _, err := w.rt.PullImage(ctx, image, nil, nil); err != nil {
		w.Fatal(err)
	}
	for i := range n {
		c, err := w.rt.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: uint32(i)}, Image: image, Command: []string{"app", "exit", "0", "0s"},
			Labels: map[string]string{
				observed.LabelPodUID: uid, observed.LabelPodName: uid, observed.LabelPodNamespace: "default", observed.LabelContainerName: "app",
			},
		}, sandbox)
		if err == nil {
			err = w.rt.StartContainer(ctx, c)
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	if err := w.rt.StopPodSandbox(ctx, id); err != nil {
		w.Fatal(err)
	}
}

func TestContainersOfOthersAreLeftAlone(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "mine", Namespace: "default", Uid: "mine"}}
		if _, err := w.rt.RunPodSandbox(w.Context(), sandbox, ""); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.sleep(10 * time.Minute)
		if _, sandboxes := w.everything(); len(sandboxes) != 1 {
			t.Errorf("a sandbox without the kubelet's labels is gone")
		}
	})
}

func TestLostRecordsOfFinishedContainers(t *testing.T) {
	for _, p := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		for _, lost := range []string{"container", "sandbox"} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s restart %v", p, lost, restart), func(t *testing.T) {
					story(t, critest.Config{}, func(t *testing.T, w *world) {
						starts := 0
						w.starts = func(c *runtimeapi.ContainerConfig) {
							if c.GetMetadata().GetName() == "once" {
								starts++
							}
						}
						w.start()
						w.api.put(makePod("job", "job", policy(p), containers(container("once", "exit", "0", "5s"), container("app"))))
						w.within(20*time.Second, "ended once", func() bool {
							for _, cs := range w.status("job").ContainerStatuses {
								if cs.Name == "once" && cs.State.Terminated != nil {
									return true
								}
							}
							return false
						})
						w.sleep(time.Second)
						if restart {
							w.end()
						}
						id, _ := w.rt.FindContainer("job", "once")
						if lost == "sandbox" {
							id, _ = w.rt.FindSandbox("job")
						}
						if err := w.rt.Vanish(id); err != nil {
							t.Fatal(err)
						}
						if restart {
							w.start()
						}
						w.sleep(10 * time.Minute)
						if starts != 1 {
							t.Errorf("the finished container started %d times, want once\n%s", starts, w.picture())
						}
						if code := w.exitCode("job", "once"); code != 0 {
							t.Errorf("exit code became %d", code)
						}
					})
				})
			}
		}
	}
}

// exitCode is what is reported of a container that has ended.
func (w *world) exitCode(uid types.UID, name string) int32 {
	w.Helper()
	for _, cs := range w.status(uid).ContainerStatuses {
		if cs.Name == name && cs.State.Terminated != nil {
			return cs.State.Terminated.ExitCode
		}
	}
	w.Errorf("no end of container %s of pod %s is reported\n%s", name, uid, w.picture())
	return -1
}

func TestTerminalPhaseIsFinal(t *testing.T) {
	for _, code := range []string{"0", "1"} {
		t.Run("exit "+code, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				want := map[string]corev1.PodPhase{"0": corev1.PodSucceeded, "1": corev1.PodFailed}[code]
				starts := 0
				w.starts = func(*runtimeapi.ContainerConfig) { starts++ }
				w.start()
				w.api.put(makePod("job", "job", policy(corev1.RestartPolicyNever), containers(container("app", "exit", code, "1ms"))))
				w.within(5*time.Second, "ended", func() bool { return w.phase("job") == want })
				w.sleep(time.Second)
				if sandbox, ok := w.rt.FindSandbox("job"); ok {
					if err := w.rt.Vanish(sandbox); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					w.end()
					w.start()
					w.within(20*time.Second, "reported", func() bool { return w.phase("job") != "" })
					w.always(3*time.Minute, 5*time.Second, "final", func() bool { return w.phase("job") == want })
				}
				if starts != 1 {
					t.Errorf("the container started %d times, want once", starts)
				}
			})
		})
	}
}

func TestACreateThatTakesEffectTooLateDoesNotRunTwice(t *testing.T) {
	for _, kind := range []string{"container", "sandbox"} {
		t.Run(kind, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.start()
				w.static.put(makePod("web", "web", containers(container("app"), container("side"))))
				w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") && w.runs("web", "side") })
				// The agent gives up after two minutes and makes another one. When the
				// first comes, that one has been replaced and its record is gone.
				w.runtime.straggle.Store(int64(8 * time.Minute))
				broken := func() {
					if kind == "sandbox" {
						id, _ := w.rt.FindSandbox("web")
						w.must(w.rt.FailSandbox(id))
						return
					}
					id, _ := w.running("web", "app")
					w.must(w.rt.Kill(id, 1))
				}
				for range 3 {
					broken()
					w.within(4*time.Minute, "running again", func() bool { return w.runs("web", "app") && w.runs("web", "side") })
				}
				for range 3 {
					w.always(10*time.Minute, time.Second, "running once", func() bool {
						n := 0
						for _, c := range w.containers("web") {
							if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetMetadata().GetName() == "app" {
								n++
							}
						}
						return n <= 1
					})
					if !w.runs("web", "app") || !w.runs("web", "side") || w.phase("web") != corev1.PodRunning {
						t.Fatalf("it does not run\n%s", w.picture())
					}
					w.end() // and an agent that knows of nothing
					w.start()
				}
				w.sleep(time.Minute)
				if st := w.status("web"); describe(st) != "Running Ready=True app=Running side=Running" {
					t.Errorf("reported %s", describe(st))
				}
			})
		})
	}
}

// errFault is what goes wrong on command.
var errFault = errors.New("a fault of the test")

// eventually is within for tests on the real clock.
func eventually(t *testing.T, within time.Duration, what string, cond func() bool) {
	t.Helper()
	over := time.After(within)
	for !cond() {
		select {
		case <-over:
			t.Fatalf("after %v: not %s", within, what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The files are watched by the kernel, so this story is on the real clock.
func TestLastGoodVersionOutlivesTheAgentWhileItsFileIsBroken(t *testing.T) {
	o := fakeOptions(t)
	o.config.StaticPodPath = t.TempDir()
	file := filepath.Join(o.config.StaticPodPath, "web.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new~", file); err != nil {
			t.Fatal(err)
		}
	}
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, uid: fixed}\nspec: {containers: [{name: app, image: 'registry.example/web:1'}]}\n"
	rt := critest.New(critest.Config{Registry: critest.AnyImage})
	var orphans atomic.Int64
	// run starts an agent that counts its clean-ups.
	run := func() (n *node, cleanups *atomic.Int64, stop func()) {
		t.Helper()
		n, err := newNode(o, door{runtime: rt, images: rt, events: criEvents(rt)}, metrics.New("node"), testLog(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		cleanups = &atomic.Int64{}
		n.handler.hooks.orphaned = func(observed.Pod) { orphans.Add(1) }
		heard := n.handler.heard
		n.handler.heard = func() bool {
			if heard() && n.handler.sweeper.looked() {
				cleanups.Add(1)
			}
			return heard()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		return n, cleanups, func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run = %v", err)
			}
		}
	}
	container := func() string {
		id, _ := rt.FindContainer("fixed", "app")
		return id
	}
	running := func(n *node) bool {
		st, _ := n.handler.statuses.Get("fixed")
		return st.Phase == corev1.PodRunning
	}

	write(manifest)
	n, _, stop := run()
	eventually(t, 10*time.Second, "running", func() bool { return running(n) })
	id := container()
	stop()

	write("apiVersion: v1\nkind: Pod\nmetadata: {name: web")
	n, cleanups, stop := run()
	eventually(t, 40*time.Second, "cleaned up", func() bool { return cleanups.Load() > 0 })
	// The loop does one thing after the other: when it has this, it is done with that.
	other := strings.NewReplacer("web", "other", "fixed", "another").Replace(manifest)
	if err := os.WriteFile(filepath.Join(o.config.StaticPodPath, "other.yaml"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the other pod running", func() bool { _, ok := n.workers.State("another"); return ok })
	if n := orphans.Load(); n > 0 {
		t.Errorf("%d pods were taken for orphans", n)
	}
	if c, err := rt.ContainerStatus(t.Context(), id, false); err != nil || c.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container of a manifest that can't be read: %v, %v, want it running", c.GetStatus().GetState(), err)
	}
	if _, err := os.Stat(filepath.Join(o.rootDir, "pods", "fixed")); err != nil {
		t.Errorf("its directory: %v", err)
	}
	write(manifest)
	eventually(t, 20*time.Second, "running", func() bool { return running(n) })
	if now := container(); now != id {
		t.Errorf("the mended manifest restarts the container: %.8s became %.8s", id, now)
	}
	stop()

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, _, stop = run()
	eventually(t, 20*time.Second, "gone", func() bool { return container() == "" })
	if n := orphans.Load(); n != 1 {
		t.Errorf("%d orphans were found, want the one whose manifest is gone", n)
	}
	stop()
}

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// A pod that hangs when the agent starts must not keep the others from being
// cleared away.
func TestOneHungPodAtTheStartDelaysNoCleanup(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("stuck", "stuck"), makePod("other", "other"), makePod("done", "done"))
		w.within(5*time.Second, "running", func() bool { return w.runs("stuck", "app") && w.runs("other", "app") && w.runs("done", "app") })
		w.end()
		w.inject(critest.Fault{Method: "ContainerStatus", PodUID: "stuck", Hang: true})
		w.static.drop("other")
		w.start()
		w.within(time.Minute, "gone", func() bool { return w.gone("other") })
		w.static.drop("done")
		w.within(time.Minute, "gone", func() bool { return w.gone("done") })
	})
}

func TestAChangeDoesNotStartAPodThatWaitsForItsOldLife(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.api.put(makePod("web", "fixed"))
		w.within(5*time.Second, "running", func() bool { return w.runs("fixed", "app") })
		clear := w.inject(critest.Fault{Method: "RemoveContainer", PodUID: "fixed", Hang: true})
		w.api.drop("fixed")
		w.within(10*time.Second, "ended", func() bool { return w.agent.workers.Phase("fixed") >= podworkers.Finished })
		w.api.put(makePod("web", "fixed"))
		w.sleep(time.Second)
		changed := makePod("web", "fixed")
		changed.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
		w.api.put(changed)
		w.always(30*time.Second, time.Second, "held back", func() bool {
			_, known := w.agent.workers.State("fixed")
			return !known && !w.runs("fixed", "app")
		})
		clear()
		w.within(5*time.Minute, "running", func() bool { return w.runs("fixed", "app") && w.phase("fixed") == corev1.PodRunning })
	})
}

// What a manifest that can't be read says nobody knows, so nothing is removed
// that may be its pod's: it must not run once more when it can be read again.
func TestResultOfAPodOutlivesAManifestThatCanNotBeRead(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		blind := false
		w.blind = func() bool { return blind }
		starts := 0
		w.starts = func(*runtimeapi.ContainerConfig) { starts++ }
		w.start()
		pod := makePod("job", "job", policy(corev1.RestartPolicyNever), containers(container("app", "exit", "3", "1s")))
		w.static.put(pod)
		w.within(10*time.Second, "ended", func() bool { return w.phase("job") == corev1.PodFailed })
		w.sleep(time.Minute)
		w.end()
		blind = true
		w.static.drop("job")
		w.start()
		w.static.put(makePod("left", "left"))
		w.sleep(time.Second)
		w.static.drop("left") // this one has left for sure
		w.within(40*time.Second, "gone", func() bool { return w.gone("left") })
		w.always(10*time.Minute, time.Minute, "kept", func() bool { return len(w.containers("job")) == 1 })
		w.static.put(pod)
		w.sleep(time.Second)
		blind = false
		w.always(5*time.Minute, time.Second, "final", func() bool { return w.phase("job") == corev1.PodFailed })
		if starts != 2 {
			t.Errorf("%d starts, want one of each pod", starts)
		}
		if code := w.exitCode("job", "app"); code != 3 {
			t.Errorf("exit code = %d, want 3", code)
		}
		w.static.drop("job")
		w.within(time.Minute, "gone", func() bool { return w.gone("job") })
	})
}

func TestAPodThatIsRefusedNowRunsNoLonger(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("a", "a"), makePod("b", "b"))
		w.within(5*time.Second, "running", func() bool { return w.runs("a", "app") && w.runs("b", "app") })
		w.end()
		w.options.config.MaxPods = 1
		w.start()
		w.within(time.Minute, "refused and stopped", func() bool { return w.phase("b") == corev1.PodFailed && !w.runs("b", "app") })
		w.always(5*time.Minute, 10*time.Second, "as it is", func() bool { return w.runs("a", "app") && !w.runs("b", "app") })
		w.static.drop("a")
		w.within(time.Minute, "running again", func() bool { return w.runs("b", "app") && w.phase("b") == corev1.PodRunning })
	})
}

func TestARefusedPodThatRunsIsReplacedWithoutOtherSources(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("a", "a"), makePod("b", "b1", containers(container("app", "stubborn"))))
		w.within(5*time.Second, "running", func() bool { return w.runs("a", "app") && w.runs("b1", "app") })
		w.end()
		w.options.config.MaxPods = 1
		w.api.speaks(false)
		w.start()
		w.within(5*time.Second, "refused", func() bool { return w.phase("b1") == corev1.PodFailed })
		w.static.change(func(pods map[types.UID]*corev1.Pod) {
			clear(pods)
			pods["b2"] = makePod("b", "b2")
		})
		w.within(time.Minute, "replaced", func() bool {
			if w.runs("b1", "app") && w.runs("b2", "app") {
				t.Fatal("both versions run at the same time")
			}
			return w.runs("b2", "app")
		})
	})
}

func TestARefusedStaticPodWaitsForNoOtherSource(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		refusals := 0
		w.tell = func(room, what, _, _ string) {
			if room == "admission" && what == "reject" {
				refusals++
			}
		}
		w.options.config.MaxPods = 1
		w.api.speaks(false)
		w.start()
		w.static.put(makePod("first", "first"))
		w.within(5*time.Second, "running", func() bool { return w.runs("first", "app") })
		w.static.put(makePod("second", "second"))
		w.sleep(10 * time.Minute)
		if refusals != 1 {
			t.Errorf("one refusal was told %d times", refusals)
		}
		w.static.drop("first")
		w.within(time.Minute, "running", func() bool { return w.runs("second", "app") })
	})
}

func TestNothingIsRememberedOfPodsThatAreGone(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		for i := range 3 { // each edit is made while no agent runs
			w.static.change(func(pods map[types.UID]*corev1.Pod) {
				clear(pods)
				uid := types.UID(fmt.Sprint("v", i))
				pods[uid] = makePod("web", uid)
			})
			w.start()
			w.within(time.Minute, "running", func() bool { return w.runs(types.UID(fmt.Sprint("v", i)), "app") })
			w.sleep(2 * time.Minute)
			if h := w.agent.handler; len(h.ended)+len(h.held)+len(h.mu.left)+len(h.mu.refused)+len(h.sweeper.mu.wipes)+len(h.sweeper.mu.told) > 0 {
				t.Errorf("round %d: ended %v, held %v, left %v, refused %v, wipes %v, told %v", i, h.ended, h.held, h.mu.left, h.mu.refused, h.sweeper.mu.wipes, h.sweeper.mu.told)
			}
			w.end()
		}
	})
}

// The list of what runs can be half a minute old. What the agent ended itself
// since then is no orphan.
func TestAVersionThatWasReplacedIsNoOrphan(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.log = funcr.New(func(_, line string) {
			if strings.Contains(line, "no source wants") {
				t.Error(line)
			}
		}, funcr.Options{})
		w.static.put(makePod("web", "v0"))
		w.start()
		w.within(5*time.Second, "running", func() bool { return w.runs("v0", "app") })
		for i := range 12 {
			w.sleep(4 * time.Second)
			old, next := types.UID(fmt.Sprint("v", i)), types.UID(fmt.Sprint("v", i+1))
			w.static.change(func(pods map[types.UID]*corev1.Pod) {
				delete(pods, old)
				pods[next] = makePod("web", next)
			})
			w.within(10*time.Second, "replaced", func() bool { return w.runs(next, "app") })
		}
	})
}

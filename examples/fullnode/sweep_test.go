package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// leave makes a pod directory such as an agent of before left it.
func (w *world) leave(uid types.UID) string {
	w.Helper()
	dir := filepath.Join(w.options.rootDir, "pods", string(uid))
	for _, sub := range []string{"containers/app", "plugins", "volumes/kubernetes.io~empty-dir/work"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			w.Fatal(err)
		}
	}
	logs := filepath.Join(w.options.config.PodLogsDir, "default_"+string(uid)+"_"+string(uid), "app")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		w.Fatal(err)
	}
	return dir
}

func TestWhatAnEarlierAgentLeftIsClearedAway(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.leave("lost")
		w.static.put(makePod("web", "web"))
		w.start()
		w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") })
		w.within(2*time.Minute, "gone", func() bool { return w.gone("lost") })
		if left := strings.Join(w.left("web"), ", "); !strings.Contains(left, "pod directory") || !strings.Contains(left, "log directory") {
			t.Errorf("a pod that is wanted has only %s", left)
		}
	})
}

func TestNothingIsClearedAwayBeforeAllSourcesAreHeard(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.leave("lost")
		w.api.speaks(false)
		w.start()
		w.always(5*time.Minute, 5*time.Second, "left alone", func() bool { return len(w.left("lost")) == 2 })
		w.api.speaks(true)
		w.within(2*time.Minute, "gone", func() bool { return w.gone("lost") })
	})
}

func TestNothingIsClearedAwayWhileTheRuntimeDoesNotAnswer(t *testing.T) {
	for _, method := range []string{"ListPodSandbox", "ListContainers"} {
		t.Run(method, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.leave("lost")
				clear := w.inject(critest.Fault{Method: method, Err: errFault})
				w.start()
				w.always(5*time.Minute, 5*time.Second, "left alone", func() bool { return len(w.left("lost")) == 2 })
				clear()
				w.within(2*time.Minute, "gone", func() bool { return w.gone("lost") })
			})
		})
	}
}

func TestADirectoryThatIsNoPodsStaysAndStopsNothing(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		dir := w.leave("a-stranger")
		precious := filepath.Join(dir, "precious")
		if err := os.WriteFile(precious, []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.leave("lost")
		w.start()
		w.within(2*time.Minute, "gone", func() bool { return w.gone("lost") })
		if _, err := os.Stat(precious); err != nil {
			t.Errorf("a file that no agent made is gone: %v", err)
		}
	})
}

func TestARunningOrphanKeepsItsDirectoryUntilItHasEnded(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		w.static.put(makePod("web", "web", containers(container("app", "stubborn"))))
		w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") })
		w.end()
		w.static.drop("web")
		clear := w.inject(critest.Fault{Match: func(c critest.Call) bool { return strings.HasPrefix(c.Method, "Stop") }, Err: errFault})
		w.start()
		w.always(5*time.Minute, time.Second, "kept while it runs", func() bool {
			return w.runs("web", "app") && strings.Contains(strings.Join(w.left("web"), ", "), "pod directory")
		})
		clear()
		w.within(2*time.Minute, "gone", func() bool { return w.gone("web") })
	})
}

// A life that is over goes before the next one of its UID begins. What can't be
// removed holds up that pod alone, and for no longer than it has to.
func TestAnEarlierLifeThatDoesNotGoDelaysOnlyTheNext(t *testing.T) {
	for _, method := range []string{"RemoveContainer", "RemovePodSandbox"} {
		t.Run(method, func(t *testing.T) {
			story(t, critest.Config{}, func(t *testing.T, w *world) {
				w.api.speaks(false) // the rest of the node's news is missing, too
				w.start()
				pod := makePod("web", "web", policy(corev1.RestartPolicyNever))
				w.static.put(pod)
				w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") })
				first, _ := w.running("web", "app")
				clear := w.inject(critest.Fault{Method: method, PodUID: "web", Err: errFault})
				w.static.drop("web")
				w.within(20*time.Second, "asked to end", func() bool { return w.agent.workers.Phase("web") > podworkers.Syncing })
				w.static.put(pod)
				w.static.put(makePod("other", "other"))
				w.within(2*time.Second, "the other one running", func() bool { return w.runs("other", "app") })
				w.always(time.Minute, time.Second, "held back", func() bool { return !w.runs("web", "app") })
				clear()
				w.within(40*time.Second, "running", func() bool {
					second, ok := w.running("web", "app")
					return ok && second != first && w.phase("web") == corev1.PodRunning
				})
			})
		})
	}
}

func TestAPodThatIsHeldBackCanBeTakenAway(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		w.start()
		pod := makePod("web", "web")
		w.static.put(pod)
		w.within(5*time.Second, "running", func() bool { return w.runs("web", "app") })
		clear := w.inject(critest.Fault{Method: "RemoveContainer", PodUID: "web", Err: errFault})
		w.static.drop("web")
		w.within(20*time.Second, "over", func() bool { return !w.runs("web", "app") })
		w.static.put(pod)
		w.sleep(20 * time.Second)
		w.static.drop("web")
		w.sleep(20 * time.Second)
		clear()
		w.within(3*time.Minute, "gone", func() bool { return w.gone("web") })
		w.always(time.Minute, time.Second, "gone for good", func() bool { return w.gone("web") })
		w.static.put(pod)
		w.within(20*time.Second, "running", func() bool { return w.runs("web", "app") && w.phase("web") == corev1.PodRunning })
	})
}

// It was granted resources, and the agent ended before it made anything of it.
func TestAPodOfWhichOnlyARecordIsLeftIsForgotten(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		recorded := func() *allocation.Allocations {
			a, err := allocation.New(allocation.Config{Dir: w.options.rootDir})
			w.must(err)
			return a
		}
		_, err := recorded().Set(makePod("lost", "lost", asking("100m", "200m")), time.Now())
		w.must(err)
		w.static.put(makePod("web", "web"))
		w.start()
		w.within(3*time.Minute, "only the other one's record", func() bool {
			return slices.Equal(recorded().Pods(), []observed.UID{"web"})
		})
	})
}

// On a quiet node the next clean-up is half a minute away.
func TestWhatCouldNotBeClearedAwayIsTriedAgainSoon(t *testing.T) {
	story(t, critest.Config{}, func(t *testing.T, w *world) {
		foreign := filepath.Join(w.leave("lost"), "somebody-elses")
		if err := os.WriteFile(foreign, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.sleep(5 * time.Minute)
		if w.gone("lost") {
			t.Fatal("somebody else's file was removed")
		}
		if err := os.Remove(foreign); err != nil {
			t.Fatal(err)
		}
		w.within(againAfter+time.Second, "gone", func() bool { return w.gone("lost") })
	})
}

// Two agents may share a tree of cgroups, for as long as the machine runs.
func TestThePodsOfAnotherAgentAreNoReasonToTryAgainSoon(t *testing.T) {
	s := (&sweeper{log: logr.Discard()}).filled()
	for _, c := range []struct {
		err  error
		done bool
	}{{nil, true}, {errFault, false}, {fmt.Errorf("forget pod theirs: %w", podsync.ErrNotOurs), true}} {
		done := s.at(t.Context(), "theirs", func(context.Context, observed.UID) error { return c.err })
		if done != c.done {
			t.Errorf("after %v: done %v, want %v", c.err, done, c.done)
		}
	}
}

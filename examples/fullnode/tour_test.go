package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/podsource"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeOptions are those of a node in a bubble: no sockets, a disk of its own.
func fakeOptions(t *testing.T) options {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := header + "enableServer: false\nhealthzPort: 0\npodLogsDir: " + filepath.Join(dir, "logs") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := parseFlags([]string{"--config", config, "--runtime", "fake", "--root-dir", filepath.Join(dir, "root"), "--hostname-override", "node", "--node-ip", "192.0.2.1"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if err := prepare(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// manifests is a source whose pods a test sets.
type manifests struct{ sets chan []*corev1.Pod }

func (manifests) Name() string { return podsource.SourceFile }

func (m manifests) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	for {
		select {
		case pods := <-m.sets:
			set(pods)
		case <-ctx.Done():
			return nil
		}
	}
}

// podOf decodes a manifest as the file source does.
func podOf(t *testing.T, manifest string) *corev1.Pod {
	t.Helper()
	pods, err := podsource.Decode([]byte(manifest), podsource.Origin{Kind: podsource.SourceFile, Name: "/manifests/web.yaml", Node: "node"})
	if err != nil {
		t.Fatal(err)
	}
	return pods[0]
}

// script collects the lines of the tour, those of one step by room: a bubble
// makes time certain, not the order of what happens at the same time.
type script struct {
	mu    sync.Mutex
	lines []string
	text  strings.Builder
}

func (s *script) tell(room, what, pod, details string) {
	if strings.HasSuffix(details, "of something gone") {
		return // whether it is still told of depends on who comes first
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := strings.TrimRight(fmt.Sprintf("  %-11s %-7s %-17s %s", room, what, pod, details), " ")
	if !slices.Contains(s.lines, line) {
		s.lines = append(s.lines, line)
	}
}

func (s *script) step(title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := []string{"podsource", "admission", "podworkers", "podsync", "podruntime", "imagepull", "criclient", "pleg", "status"}
	rank := func(line string) int { return slices.Index(order, strings.Fields(line)[0]) }
	slices.SortStableFunc(s.lines, func(a, b string) int {
		if a, b := rank(a), rank(b); a != b {
			return a - b
		}
		if strings.Contains(a, "  pleg ") {
			return strings.Compare(a, b) // two containers change at the same time
		}
		return 0
	})
	fmt.Fprintf(&s.text, "%s\n%s\n\n", title, strings.Join(s.lines, "\n"))
	s.lines = nil
}

const tourManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: "registry.example/web:1", volumeMounts: [{name: work, mountPath: /work}]}
  volumes: [{name: work}]
`

// TestTour follows one pod through the house. Its golden file is the tour that
// README and ARCHITECTURE point to; run with -update after a change and read
// the difference.
func TestTour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{Registry: fakeImage})
		source := manifests{make(chan []*corev1.Pod)}
		s := &script{}
		n, err := newNode(fakeOptions(t), door{runtime: rt, images: rt, events: criEvents(rt), pods: []podsource.Source{source}}, metrics.New("node"), logr.Discard(), s.tell)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		// calls adds what the step asked of the runtime and was more than a look.
		calls := func(title string) {
			synctest.Wait()
			called := map[string]bool{}
			for _, c := range rt.Calls() {
				called[c.Method] = true
			}
			// In the order of a life, and without numbers: clearing away goes on
			// beside other work, and what it finds gone already it has asked for.
			var names []string
			for _, method := range []string{"RunPodSandbox", "PullImage", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"} {
				if called[method] {
					names = append(names, method)
				}
			}
			rt.ForgetCalls()
			if len(names) > 0 {
				s.tell("criclient", "call", "", strings.Join(names, ", "))
			}
			s.step(title)
		}

		source.sets <- nil
		time.Sleep(time.Second)
		synctest.Wait()
		s.lines = nil // a node without pods has nothing to tell
		rt.ForgetCalls()

		pod := podOf(t, tourManifest)
		source.sets <- []*corev1.Pod{pod}
		time.Sleep(100 * time.Millisecond)
		calls("A manifest is written.")

		id, ok := rt.FindContainer(string(pod.UID), "app")
		if !ok {
			t.Fatal("the container does not run")
		}
		if err := rt.Kill(id, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		calls("The container exits with code 1, and is restarted at once.")

		id, _ = rt.FindContainer(string(pod.UID), "app")
		if err := rt.Kill(id, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		calls("It exits again, and now waits out its back-off.")
		time.Sleep(10 * time.Second)
		calls("Ten seconds after it ended it is started again.")

		source.sets <- nil
		time.Sleep(40 * time.Second)
		calls("The manifest is removed.")

		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		golden := filepath.Join("testdata", "tour.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(s.text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), s.text.String()); diff != "" {
			t.Errorf("the tour has changed (-want +got); run with -update and read the difference:\n%s", diff)
		}
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// manyPods is about ten times what a node is usually given.
const manyPods = 1000

// A pod that nothing happens to is an entry in a few maps. What goroutines there
// are belong to rooms, not to pods.
func TestAThousandIdlePodsNeedNoGoroutine(t *testing.T) {
	empty := startScale(t, 0, inProcess)
	before := empty.goroutines(t)
	empty.stop()
	full := startScale(t, manyPods, inProcess)
	full.waitRunning(t)
	if after := full.goroutines(t); after > before {
		t.Errorf("%d goroutines with %d idle pods, %d with none", after, manyPods, before)
	}
}

// BenchmarkThousandPods is a whole node, with the fake runtime in the same process:
// the time until all its pods run, and what they cost when nothing happens to them.
// CPU and wake-ups are those of the process and so include the runtime's part; they
// are taken over the second minute, when every pod is looked at once again. The
// memory is the node's alone.
func BenchmarkThousandPods(b *testing.B) {
	const idle = time.Minute
	for b.Loop() {
		empty := startScale(b, 0, inProcess)
		goroutines := empty.goroutines(b)
		empty.stop()

		n := startScale(b, manyPods, inProcess)
		b.ReportMetric(n.waitRunning(b).Seconds(), "s-to-running")
		b.ReportMetric(float64(n.goroutines(b)-goroutines)/manyPods, "goroutines/pod")
		ticks := time.Tick(idle)
		<-ticks
		before := used(b)
		<-ticks
		after := used(b)
		b.ReportMetric((after.cpu - before.cpu).Seconds(), "cpu-s/min")
		b.ReportMetric(float64(after.switches-before.switches)/idle.Seconds(), "wake-ups/s")
		with := heap()
		n.stop()
		b.ReportMetric(float64(with-heap())/manyPods, "B/pod")
		runtime.KeepAlive(n.runtime) // the fake's memory is in both
	}
	b.ReportMetric(0, "ns/op") // it says nothing
}

// scale is a node with many pods in a folder of manifests.
type scale struct {
	node      *node
	runtime   *critest.Runtime
	manifests string
	pods      int
	begun     time.Time
	stop      func() // may be called again
}

// inProcess is the way to a runtime that costs nothing.
func inProcess(_ testing.TB, rt *critest.Runtime) door {
	return door{runtime: rt, images: rt, events: criEvents(rt)}
}

const scaleManifest = `{apiVersion: v1, kind: Pod, metadata: {name: web-%d, labels: {app: web}}, spec: {containers: [
  {name: app, image: "registry.example/web:1", command: [serve], env: [{name: A, value: b}], volumeMounts: [{name: work, mountPath: /work}]}
], volumes: [{name: work, emptyDir: {}}]}}`

func startScale(tb testing.TB, pods int, open func(testing.TB, *critest.Runtime) door) *scale {
	tb.Helper()
	dir := tb.TempDir()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		tb.Fatal(err)
	}
	for i := range pods {
		if err := os.WriteFile(filepath.Join(manifests, fmt.Sprintf("web-%d.yaml", i)), fmt.Appendf(nil, scaleManifest, i), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	config := filepath.Join(dir, "config.yaml")
	text := header + "enableServer: false\nhealthzPort: 0\nmaxPods: 2000\npodLogsDir: " + filepath.Join(dir, "logs") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	o, err := parseFlags([]string{
		"--config", config, "--runtime", "fake", "--root-dir", filepath.Join(dir, "root"),
		"--hostname-override", "node", "--node-ip", "192.0.2.1", "--pod-manifest-path", manifests,
	}, os.Stderr)
	if err != nil {
		tb.Fatal(err)
	}
	if err := prepare(o); err != nil {
		tb.Fatal(err)
	}
	rt := critest.New(critest.Config{})
	rt.AddImage("registry.example/web:1", critest.Behavior{})
	n, err := newNode(o, open(tb, rt), metrics.New("node"), logr.Discard(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	s := &scale{node: n, runtime: rt, manifests: manifests, pods: pods, begun: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	s.stop = func() {
		if s.node == nil {
			return
		}
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run = %v", err)
		}
		s.node = nil
	}
	tb.Cleanup(s.stop)
	return s
}

// waitRunning returns the time from the start until all pods were reported Running.
func (s *scale) waitRunning(tb testing.TB) time.Duration {
	tb.Helper()
	s.wait(tb, func() error {
		running := 0
		for _, pod := range s.node.handler.Pods() {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running < s.pods {
			return fmt.Errorf("%d of %d pods run", running, s.pods)
		}
		return nil
	})
	return time.Since(s.begun)
}

// goroutines counts them at rest: the least that was seen for a while after the
// last worker came to an end.
func (s *scale) goroutines(tb testing.TB) int {
	tb.Helper()
	s.wait(tb, func() error {
		if !s.node.handler.sweeper.looked() {
			return errors.New("the node is still starting")
		}
		for uid, state := range s.node.workers.States() {
			if state.Working || state.Phase != podworkers.Syncing {
				return fmt.Errorf("pod %s: %+v", uid, state)
			}
		}
		return nil
	})
	least := runtime.NumGoroutine()
	over := time.After(time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			least = min(least, runtime.NumGoroutine())
		case <-over:
			return least
		}
	}
}

func (s *scale) wait(tb testing.TB, try func() error) {
	tb.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("not within two minutes: %v", err)
		}
	}
}

type processUse struct {
	cpu      time.Duration
	switches int64 // voluntary context switches of all threads
}

func used(tb testing.TB) processUse {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return processUse{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()), switches: int64(r.Nvcsw)}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

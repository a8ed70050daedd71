package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

// On a runtime that takes no time, all the time is the agent's own. The way to it
// is the real one: gRPC on a unix socket, and its events.
func overSocket(tb testing.TB, rt *critest.Runtime) door {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cri") // short enough for a socket on every system
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	srv, err := critest.Serve(rt, filepath.Join(dir, "s"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := srv.Close(); err != nil {
			tb.Error(err)
		}
	})
	c, err := criclient.New(criclient.Config{Endpoint: srv.Endpoint()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return door{runtime: c, images: c, events: criEvents(c)}
}

// A container that was killed is back within 50 ms of the agent's own time. The
// best of a few medians counts: a machine that is busy with something else for a
// while says nothing about the agent.
func TestAKilledContainerIsBackAtOnce(t *testing.T) {
	const most, kills, tries = 50 * time.Millisecond, 10, 3
	n := startScale(t, kills*tries, overSocket)
	n.waitRunning(t)
	var seen []time.Duration
	for try := range tries {
		var own []time.Duration
		for i := range kills {
			own = append(own, n.killed(t, try*kills+i))
		}
		slices.Sort(own)
		seen = append(seen, own[kills/2])
		if own[kills/2] <= most {
			return
		}
	}
	t.Errorf("a killed container is started again after %v, want %v at most", seen, most)
}

// BenchmarkOwnTime is the median time from a new manifest, and from the end of a
// container, to the call that starts one.
func BenchmarkOwnTime(b *testing.B) {
	const pods = 30
	median := func(own []time.Duration) float64 {
		slices.Sort(own)
		return own[len(own)/2].Seconds() * 1000
	}
	for b.Loop() {
		n := startScale(b, 1, overSocket)
		n.waitRunning(b)
		var written, killed []time.Duration
		for i := range pods {
			written = append(written, n.written(b, i+1))
		}
		for i := range pods {
			killed = append(killed, n.killed(b, i+1))
		}
		b.ReportMetric(median(written), "ms-manifest-to-start")
		b.ReportMetric(median(killed), "ms-exit-to-start")
		n.stop()
	}
	b.ReportMetric(0, "ns/op") // it says nothing
}

// written adds a manifest and returns the time until its container is started.
func (s *scale) written(tb testing.TB, i int) time.Duration {
	tb.Helper()
	s.runtime.ForgetCalls()
	aside := filepath.Join(filepath.Dir(s.manifests), "aside")
	if err := os.WriteFile(aside, fmt.Appendf(nil, scaleManifest, i), 0o644); err != nil {
		tb.Fatal(err)
	}
	begun := time.Now()
	if err := os.Rename(aside, filepath.Join(s.manifests, fmt.Sprintf("web-%d.yaml", i))); err != nil {
		tb.Fatal(err)
	}
	return s.started(tb, i).Sub(begun)
}

// killed ends the pod's container and returns the time until it is started again.
func (s *scale) killed(tb testing.TB, i int) time.Duration {
	tb.Helper()
	id, ok := s.runtime.FindContainer(s.uid(tb, i), "app")
	if !ok {
		tb.Fatalf("the container of pod %d does not run", i)
	}
	s.runtime.ForgetCalls()
	begun := time.Now()
	if err := s.runtime.Kill(id, 137); err != nil {
		tb.Fatal(err)
	}
	return s.started(tb, i).Sub(begun)
}

// started waits for the call that starts the pod's container.
func (s *scale) started(tb testing.TB, i int) (at time.Time) {
	tb.Helper()
	s.wait(tb, func() error {
		for _, c := range s.runtime.Calls() {
			if c.Method == "StartContainer" && c.PodUID == s.uid(tb, i) {
				at = c.Time
				return nil
			}
		}
		return fmt.Errorf("no container of pod %d is started", i)
	})
	return at
}

func (s *scale) uid(tb testing.TB, i int) string {
	tb.Helper()
	name := fmt.Sprintf("web-%d-node", i)
	for _, pod := range s.node.handler.Pods() {
		if pod.Name == name {
			return string(pod.UID)
		}
	}
	return ""
}

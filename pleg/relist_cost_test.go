package pleg_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// A relist costs what runs. These are its two ends: nothing has exited, and as
// much as a node that nobody cleans up may hold.
const (
	relistPods   = 100
	relistExited = 20_000
)

// BenchmarkRelist is a whole relist over gRPC on a unix socket: both lists, their
// conversion, and the comparison with the records.
func BenchmarkRelist(b *testing.B) {
	for _, exited := range []int{0, relistExited} {
		name := fmt.Sprintf("%drunning", relistPods)
		if exited > 0 {
			name += fmt.Sprintf("+%dexited", exited)
		}
		b.Run(name, func(b *testing.B) {
			g := overSocket(b, relistPods, exited)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Relist(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What has exited may cost a relist a fifth more, at most. A busy machine makes
// single rounds meaningless, so the two take turns, medians are compared, and the
// best of a few tries counts: noise only ever makes the ratio of a try worse or
// better by chance, a relist that reads 20,000 entries misses every time by far.
func TestExitedContainersDoNotSlowARelist(t *testing.T) {
	const most, rounds, tries = 1.2, 31, 5
	clean, full := overSocket(t, relistPods, 0), overSocket(t, relistPods, relistExited)
	var seen []float64
	for range tries {
		var without, with []time.Duration
		for range rounds {
			without = append(without, relistTime(t, clean))
			with = append(with, relistTime(t, full))
		}
		ratio := float64(median(with)) / float64(median(without))
		seen = append(seen, ratio)
		if ratio <= most {
			t.Logf("a relist takes %v, with %d exited containers %v", median(without), relistExited, median(with))
			return
		}
	}
	t.Errorf("with %d exited containers a relist takes %.2f times as long, want at most %.1f", relistExited, seen, most)
}

// Memory is the same promise without a clock.
func TestExitedContainersCostARelistNoMemory(t *testing.T) {
	clean, full := overSocket(t, relistPods, 0), overSocket(t, relistPods, relistExited/10)
	allocs := func(g *pleg.Generator) float64 {
		return testing.AllocsPerRun(20, func() { relistTime(t, g) })
	}
	without, with := allocs(clean), allocs(full)
	if with > 1.2*without {
		t.Errorf("a relist allocates %.0f times, with %d exited containers %.0f times, want at most a fifth more", without, relistExited/10, with)
	}
}

func relistTime(t *testing.T, g *pleg.Generator) time.Duration {
	begin := time.Now()
	if err := g.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// overSocket returns a running Generator on a fake runtime behind gRPC. Every pod
// runs one container and holds its share of exited ones. It looks only when asked.
func overSocket(tb testing.TB, pods, exited int) *pleg.Generator {
	tb.Helper()
	rt := critest.New(critest.Config{KeepCalls: -1})
	populate(tb, rt, pods, exited)
	dir, err := os.MkdirTemp("", "pleg") // short enough for a socket on every system
	noError(tb, err)
	tb.Cleanup(func() { os.RemoveAll(dir) })
	srv, err := critest.Serve(rt, filepath.Join(dir, "s"))
	noError(tb, err)
	tb.Cleanup(func() { noError(tb, srv.Close()) })
	client, err := criclient.New(criclient.Config{Endpoint: srv.Endpoint()})
	noError(tb, err)
	tb.Cleanup(func() { noError(tb, client.Close(context.Background())) })
	observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: client})
	noError(tb, err)
	g, err := pleg.New(pleg.Config{Runtime: observer, RelistEvery: time.Hour, RelistThreshold: 2 * time.Hour})
	noError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range g.Watch() {
		}
	}()
	tb.Cleanup(func() { cancel(); noError(tb, <-done); <-read })
	noError(tb, g.Relist(tb.Context()))
	if n := len(g.Cache().Pods()); n != pods {
		tb.Fatalf("the cache has %d pods, want %d", n, pods)
	}
	return g
}

func populate(tb testing.TB, rt *critest.Runtime, pods, exited int) {
	tb.Helper()
	rt.AddImage("runs", critest.Behavior{})
	rt.AddImage("ends", critest.Exit(0, 0))
	ctx := tb.Context()
	for i := range pods {
		uid := fmt.Sprintf("u%d", i)
		labels := map[string]string{observed.LabelPodUID: uid, observed.LabelPodName: uid, observed.LabelPodNamespace: "default"}
		sc := &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}, Labels: labels,
		}
		sandbox, err := rt.RunPodSandbox(ctx, sc, "")
		noError(tb, err)
		start := func(image string, attempt int) {
			id, err := rt.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: uint32(attempt)},
				Image:    &runtimeapi.ImageSpec{Image: image},
				Labels: map[string]string{
					observed.LabelPodUID: uid, observed.LabelPodName: uid, observed.LabelPodNamespace: "default",
					observed.LabelContainerName: "app",
				},
			}, sc)
			noError(tb, err)
			noError(tb, rt.StartContainer(ctx, id))
		}
		ended := exited / pods
		for attempt := range ended {
			start("ends", attempt)
		}
		start("runs", ended)
	}
	waitExited(tb, rt, exited/pods*pods)
}

// waitExited waits for the runtime's timers.
func waitExited(tb testing.TB, rt *critest.Runtime, want int) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		running, err := rt.ListContainers(tb.Context(), &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		})
		noError(tb, err)
		if len(running) <= relistPods {
			break
		}
		<-tick.C
	}
	all, err := rt.ListContainers(tb.Context(), nil)
	noError(tb, err)
	if got := len(all) - relistPods; got != want {
		tb.Fatalf("%d containers have exited, want %d", got, want)
	}
}

func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

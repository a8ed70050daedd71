package pleg_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// still is a runtime in which nothing changes. The list is made once, so that
// only the generator is measured.
type still struct {
	list []observed.Pod
	all  map[observed.UID]observed.Pod
}

func newStill(pods, exited int) still {
	s := still{all: map[observed.UID]observed.Pod{}}
	for i := range pods {
		uid := observed.UID(fmt.Sprint("p", i))
		p := podOf(uid, true, container(fmt.Sprint("c", i), observed.Running))
		s.list = append(s.list, p)
		for j := range exited / pods {
			p.Containers = append(p.Containers, container(fmt.Sprint("c", i, "-", j), observed.Exited))
		}
		s.all[uid] = p
	}
	return s
}

func (s still) RunningPods(context.Context) ([]observed.Pod, error) { return s.list, nil }

func (s still) InspectPod(_ context.Context, last observed.Pod) (observed.Pod, error) {
	return s.all[last.UID], nil
}

// BenchmarkCompare is a relist without the runtime's part of it.
func BenchmarkCompare(b *testing.B) {
	for _, size := range []struct{ running, exited int }{{100, 0}, {100, 20_000}, {1000, 0}} {
		b.Run(fmt.Sprintf("running=%d/exited=%d", size.running, size.exited), func(b *testing.B) {
			g, stop := run(b, newStill(size.running, size.exited))
			defer stop()
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Relist(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMarkAndWait is what a worker adds to each of its rounds.
func BenchmarkMarkAndWait(b *testing.B) {
	g, stop := run(b, newStill(100, 0))
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Wait(b.Context(), "p1", g.MarkDirty("p1")); err != nil {
			b.Fatal(err)
		}
	}
}

func run(b *testing.B, rt pleg.Runtime) (*pleg.Generator, func()) {
	g, err := pleg.New(pleg.Config{Runtime: rt})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	if err := g.Relist(ctx); err != nil {
		b.Fatal(err)
	}
	return g, func() {
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

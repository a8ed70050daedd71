package podworkers_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// idle is a Syncer and Observer that does nothing, at no cost.
type idle struct{ synced chan struct{} }

func (i idle) SyncPod(context.Context, *corev1.Pod, observed.Pod) (bool, error) {
	i.synced <- struct{}{}
	return false, nil
}
func (i idle) StopPod(context.Context, *corev1.Pod, observed.Pod, *int64) error { return nil }
func (i idle) ReleasePod(context.Context, *corev1.Pod, observed.Pod) error      { return nil }
func (i idle) MarkDirty(observed.UID) observed.Seq                              { return 1 }
func (i idle) Wait(context.Context, observed.UID, observed.Seq) (observed.Pod, error) {
	return observed.Pod{}, nil
}

func run(b *testing.B, i idle) *podworkers.Workers {
	w, err := podworkers.New(podworkers.Config{Syncer: i, Observer: i})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return w
}

func settled() (heap uint64, goroutines int) {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}

// BenchmarkIdlePods reports what a pod costs that nothing happens to.
func BenchmarkIdlePods(b *testing.B) {
	const pods = 10_000
	desired := make([]*corev1.Pod, pods)
	for i := range desired {
		desired[i] = pod(fmt.Sprint(i))
	}
	for b.Loop() {
		i := idle{synced: make(chan struct{}, pods)}
		w := run(b, i)
		heap, goroutines := settled()
		for _, p := range desired {
			w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: p})
		}
		for range desired {
			<-i.synced
		}
		for w.States()["0"].Working || runtime.NumGoroutine() > goroutines {
			time.Sleep(time.Millisecond)
		}
		heap2, goroutines2 := settled()
		b.ReportMetric(float64(heap2-heap)/pods, "B/pod")
		b.ReportMetric(float64(goroutines2-goroutines)/pods, "goroutines/pod")
	}
	runtime.KeepAlive(desired)
}

// BenchmarkUpdatePod is the way of an update through a worker to its sync.
func BenchmarkUpdatePod(b *testing.B) {
	for _, pods := range []int{1, 500} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			i := idle{synced: make(chan struct{}, 1)}
			w := run(b, i)
			desired := make([]*corev1.Pod, pods)
			for k := range desired {
				desired[k] = pod(fmt.Sprint(k))
				w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: desired[k]})
				<-i.synced
			}
			k := 0
			b.ReportAllocs()
			for b.Loop() {
				w.UpdatePod(podworkers.Update{Type: podworkers.Change, Pod: desired[k%pods]})
				<-i.synced
				k++
			}
		})
	}
}

package podworkers_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// simulator pretends to run pods. It is the smallest Syncer and Observer there is.
type simulator struct{ synced chan struct{} }

func (s simulator) SyncPod(_ context.Context, pod *corev1.Pod, _ observed.Pod) (bool, error) {
	fmt.Println("start", pod.Name)
	close(s.synced)
	return false, nil
}

func (s simulator) StopPod(_ context.Context, pod *corev1.Pod, _ observed.Pod, grace *int64) error {
	fmt.Println("stop", pod.Name, "within", *grace, "s")
	return nil
}

func (s simulator) ReleasePod(context.Context, *corev1.Pod, observed.Pod) error { return nil }

func (s simulator) MarkDirty(observed.UID) observed.Seq { return 1 }

func (s simulator) Wait(_ context.Context, uid observed.UID, _ observed.Seq) (observed.Pod, error) {
	return observed.Pod{UID: uid}, nil
}

// A pod is handed in, started, and taken down again.
func Example() {
	sim := simulator{synced: make(chan struct{})}
	workers, err := podworkers.New(podworkers.Config{Syncer: sim, Observer: sim, AutoResync: true})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- workers.Run(ctx) }()

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
	<-sim.synced
	fmt.Println(workers.Phase("1"))

	grace, done := int64(5), make(chan struct{})
	workers.UpdatePod(podworkers.Update{
		Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Grace: &grace, Done: done},
	})
	<-done
	fmt.Println("may have running:", workers.Phase("1").MayHaveRunning())

	cancel()
	<-stopped
	// Output:
	// start web
	// Syncing
	// stop web within 5 s
	// may have running: false
}

package syncloop_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// printer is a handler that only says what it would do.
type printer struct{}

func (printer) HandlePodAdditions(_ context.Context, pods []*corev1.Pod) {
	fmt.Println("start", pods[0].Name)
}
func (printer) HandlePodUpdates(context.Context, []*corev1.Pod)   {}
func (printer) HandlePodReconcile(context.Context, []*corev1.Pod) {}
func (printer) HandlePodRemoves(_ context.Context, pods []*corev1.Pod) {
	fmt.Println("stop", pods[0].Name)
}
func (printer) HandlePodSyncs(context.Context, []observed.UID) {}
func (printer) HandlePodCleanups(context.Context) error        { return nil }

// Two changes of the desired pods pass through the hall.
func Example() {
	updates := make(chan podsource.Update)
	ctx, cancel := context.WithCancel(context.Background())
	loop, err := syncloop.New(syncloop.Config{
		Handler:  printer{},
		ConfigCh: updates,
		Seen:     func(source string) { fmt.Println("heard", source) },
	})
	if err != nil {
		panic(err)
	}
	done := make(chan error)
	go func() { done <- loop.Run(ctx) }()

	web := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	updates <- podsource.Update{Op: podsource.OpAdd, Source: podsource.SourceFile, Pods: web}
	updates <- podsource.Update{Op: podsource.OpRemove, Source: podsource.SourceFile, Pods: web}
	cancel()
	fmt.Println("error:", <-done)
	// Output:
	// start web
	// heard file
	// stop web
	// heard file
	// error: <nil>
}

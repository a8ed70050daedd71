package imagepull_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
)

// The first image is in the registry, the second is nowhere.
func Example() {
	rt := critest.New(critest.Config{})
	rt.Publish(critest.Image{Ref: "registry.example/web:1", Size: 4096})

	puller, err := imagepull.New(imagepull.Config{
		Images: rt,
		Hooks: imagepull.Hooks{
			Event: func(_ *corev1.Pod, container, eventType, reason, _ string) {
				fmt.Println("event:", container, eventType, reason)
			},
		},
	})
	if err != nil {
		panic(err)
	}
	pod := &corev1.Pod{}
	for _, image := range []string{"registry.example/web:1", "registry.example/web:2"} {
		c := &corev1.Container{Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}
		_, err := puller.EnsureImage(context.Background(), pod, c, nil)
		var failed *imagepull.Error
		if errors.As(err, &failed) {
			fmt.Println("waiting:", failed.Reason)
		}
	}
	// Output:
	// event: app Normal Pulling
	// event: app Normal Pulled
	// event: app Normal Pulling
	// event: app Warning Failed
	// waiting: ErrImagePull
}

package imagepull_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/keyring"
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

// purse is one user's password for one registry, from a secret of the pod's.
type purse struct{ password string }

func (p purse) Lookup(_ context.Context, _ string, pod *corev1.Pod) (keyring.Answer, error) {
	if pod.Namespace != "paying" {
		return keyring.Answer{}, nil
	}
	return keyring.Answer{Credentials: []keyring.Credential{{
		Auth:   &runtimeapi.AuthConfig{Username: "me", Password: p.password},
		Source: keyring.Source{Kind: keyring.Secret, Namespace: pod.Namespace, Name: "pull", Hash: "of the password"},
	}}}, nil
}

// With RecordsDir, what one pod has pulled with its secret is not there for a pod
// that has none.
func ExampleConfig_records() {
	const image = "registry.example/private:1"
	rt := critest.New(critest.Config{})
	rt.Publish(critest.Image{Ref: image, Username: "me", Password: "secret"})
	dir, err := os.MkdirTemp("", "image_manager")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	puller, err := imagepull.New(imagepull.Config{Images: rt, Credentials: purse{"secret"}, RecordsDir: dir})
	if err != nil {
		panic(err)
	}
	for _, namespace := range []string{"paying", "paying", "other"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		c := &corev1.Container{Name: "app", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}
		_, err := puller.EnsureImage(context.Background(), pod, c, nil)
		fmt.Println(namespace, err == nil)
	}
	// Output:
	// paying true
	// paying true
	// other false
}

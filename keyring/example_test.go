package keyring_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/keyring"
)

// secrets are those of one namespace.
type secrets map[string]string

func (s secrets) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	text, ok := s[name]
	if !ok {
		return nil, fmt.Errorf("find secret %s/%s: not found", namespace, name)
	}
	return &corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)},
	}, nil
}

// Two keys fit the image. The longer one comes first.
func Example() {
	ring, err := keyring.New(keyring.Config{Secrets: secrets{
		"pull": `{"auths": {
			"registry.example":      {"username": "everybody", "password": "1"},
			"registry.example/team": {"username": "team", "password": "2"}
		}}`,
	}})
	if err != nil {
		panic(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}, {Name: "lost"}}},
	}
	answer, err := ring.Lookup(context.Background(), "registry.example/team/web:1", pod)
	if err != nil {
		panic(err)
	}
	for _, c := range answer.Credentials {
		fmt.Println(c.Auth.Username)
	}
	fmt.Println("missing:", answer.MissingSecrets)
	// Output:
	// team
	// everybody
	// missing: [lost]
}

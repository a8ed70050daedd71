package podenv_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// A container that learns its address and passes it on to its program.
func ExampleBuild() {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app",
		Args: []string{"--listen=$(LISTEN)", "$(UNKNOWN)"},
		Env: []corev1.EnvVar{
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "LISTEN", Value: "$(IP):8080"},
		},
	}}}}
	app := &pod.Spec.Containers[0]
	env, err := podenv.Build(context.Background(), podenv.Inputs{
		Pod: pod, Container: app, Addresses: podspec.Addresses{PodIPs: []string{"10.0.0.2"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(env.Vars)
	fmt.Println(env.Expand(app.Args))
	_, err = env.SubPath("logs/$(POD_NAME)")
	fmt.Println(err)
	// Output:
	// [{IP 10.0.0.2} {LISTEN 10.0.0.2:8080}]
	// [--listen=10.0.0.2:8080 $(UNKNOWN)]
	// missing value for POD_NAME in subPathExpr "logs/$(POD_NAME)"
}

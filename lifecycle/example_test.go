package lifecycle_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
)

func Example() {
	inContainer := execFunc(func(_ context.Context, id string, cmd []string, left time.Duration) (stdout, stderr []byte, err error) {
		return fmt.Appendf(nil, "%s runs %v", id, cmd), nil, nil
	})
	runner, err := lifecycle.New(lifecycle.Config{Exec: inContainer})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // the grace period
	defer cancel()
	output, err := runner.Run(ctx, lifecycle.Call{
		Container: &corev1.Container{Name: "app"},
		ID:        "c1",
		Handler:   &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"drain"}}},
	})
	fmt.Println(output, err)
	// Output: c1 runs [drain] <nil>
}

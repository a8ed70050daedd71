package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThePodRunsIsRestartedAndIsTakenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("busybox", critest.Behavior{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx, rt, pod("busybox")) }()

		time.Sleep(2 * time.Second)
		first, ok := rt.FindContainer("minimal-hello", "main")
		if !ok {
			t.Fatal("the container does not run")
		}
		if err := rt.Kill(first, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if second, ok := rt.FindContainer("minimal-hello", "main"); !ok || second == first {
			t.Errorf("container = %q, %v, want a new one in place of %q", second, ok, first)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run = %v, want nil after cancel", err)
		}
		if left, err := rt.ListPodSandbox(t.Context(), nil); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

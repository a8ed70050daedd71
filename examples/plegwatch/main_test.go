package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWatchTellsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("job", critest.Behavior{Exits: true, After: time.Minute, ExitCode: 3})
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() { done <- watch(ctx, rt, &out) }()
		time.Sleep(time.Second)

		labels := map[string]string{observed.LabelPodUID: "u1", observed.LabelPodName: "job", observed.LabelPodNamespace: "default"}
		config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "job", Namespace: "default", Uid: "u1"}, Labels: labels}
		box, err := rt.RunPodSandbox(ctx, config, "")
		if err != nil {
			t.Fatal(err)
		}
		id, err := rt.CreateContainer(ctx, box, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "work"}, Image: &runtimeapi.ImageSpec{Image: "job"},
			Labels: map[string]string{observed.LabelPodUID: "u1", observed.LabelContainerName: "work"},
		}, config)
		if err == nil {
			err = rt.StartContainer(ctx, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch = %v", err)
		}
		for _, want := range []string{"ContainerStarted default/job sandbox", "ContainerStarted default/job container work", "ContainerDied    default/job container work (exit code 3)"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no line %q in:\n%s", want, out.String())
			}
		}
	})
}

// Command minimal is a whole node agent for one hard-wired pod, made of three
// rooms: criclient is the door to the runtime, pleg looks back through it, and
// podworkers decides when to act. The agent brings its own Syncer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/floors"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

func main() {
	endpoint := flag.String("endpoint", "unix:///run/containerd/containerd.sock", "CRI socket")
	image := flag.String("image", "docker.io/library/busybox:latest", "image of the pod's container; it must be present")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := criclient.New(criclient.Config{Endpoint: *endpoint})
	if err == nil {
		defer client.Close(ctx) //nolint:errcheck // the process ends
		err = run(ctx, client, pod(*image))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

func pod(image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello", UID: "minimal-hello"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image, Command: []string{"sleep", "3600"}}}},
	}
}

// run keeps the pod running until ctx ends, then takes it down.
func run(ctx context.Context, rt cri.RuntimeService, pod *corev1.Pod) error {
	observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: rt})
	if err != nil {
		return err
	}
	looks, err := pleg.New(pleg.Config{Runtime: observer})
	if err != nil {
		return err
	}
	workers, err := podworkers.New(podworkers.Config{Syncer: syncer{rt}, Observer: looks, AutoResync: true})
	if err != nil {
		return err
	}
	workers.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod})
	agent := floors.RunnerFunc(func(ctx context.Context) error {
		for {
			select {
			case event := <-looks.Watch():
				fmt.Println(event.Type, event.ID)
				if event.ID == observed.UID(pod.UID) {
					workers.UpdatePod(podworkers.Update{Type: podworkers.Sync, Pod: pod})
				}
			case <-ctx.Done():
				done := make(chan struct{})
				workers.UpdatePod(podworkers.Update{Type: podworkers.Kill, Pod: pod, Kill: &podworkers.KillOptions{Done: done}})
				<-done
				return nil
			}
		}
	})
	return floors.Run(ctx, []floors.Runner{looks}, []floors.Runner{workers}, []floors.Runner{agent})
}

// syncer is this agent's recipe: one sandbox, one container, always running.
type syncer struct{ rt cri.RuntimeService }

func (s syncer) SyncPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod) (bool, error) {
	labels := map[string]string{
		observed.LabelPodUID: string(pod.UID), observed.LabelPodName: pod.Name, observed.LabelPodNamespace: pod.Namespace,
	}
	box, _ := seen.Sandbox()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: box.Attempt},
		Labels:   labels, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	if !box.Ready {
		if seen.Exists() {
			config.Metadata.Attempt++
		}
		id, err := s.rt.RunPodSandbox(ctx, config, "")
		if err != nil {
			return false, err
		}
		box.ID = observed.SandboxID(id)
	}
	c := &pod.Spec.Containers[0]
	was, ran := seen.Container(c.Name)
	if ran && was.State == observed.Running && box.Ready {
		return false, nil
	}
	attempt := 0
	if ran {
		attempt = was.RestartCount + 1
	}
	id, err := s.rt.CreateContainer(ctx, string(box.ID), &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(attempt)},
		Image:    &runtimeapi.ImageSpec{Image: c.Image}, Command: c.Command,
		Labels: map[string]string{observed.LabelPodUID: string(pod.UID), observed.LabelContainerName: c.Name},
		Linux:  &runtimeapi.LinuxContainerConfig{},
	}, config)
	if err != nil {
		return false, err
	}
	return false, s.rt.StartContainer(ctx, id)
}

func (s syncer) StopPod(ctx context.Context, _ *corev1.Pod, seen observed.Pod, _ *int64) error {
	for _, box := range seen.Sandboxes {
		if err := s.rt.StopPodSandbox(ctx, string(box.ID)); err != nil {
			return err
		}
		if err := s.rt.RemovePodSandbox(ctx, string(box.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (s syncer) ReleasePod(context.Context, *corev1.Pod, observed.Pod) error { return nil }

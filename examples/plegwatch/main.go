// Command plegwatch prints what happens on a CRI runtime, one line per event,
// until it is interrupted. It starts and stops nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/floors"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/crievents"
)

func main() {
	endpoint := flag.String("endpoint", "unix:///run/containerd/containerd.sock", "CRI socket")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := criclient.New(criclient.Config{Endpoint: *endpoint})
	if err == nil {
		defer client.Close(ctx) //nolint:errcheck // the process ends
		err = watch(ctx, client, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plegwatch:", err)
		os.Exit(1)
	}
}

// watch prints events to out until ctx ends. The runtime's event stream is used
// where there is one; without it a change is seen within a second.
func watch(ctx context.Context, rt cri.RuntimeService, out io.Writer) error {
	observer, err := criclient.NewObserver(criclient.ObserverConfig{Runtime: rt})
	if err != nil {
		return err
	}
	events, err := crievents.New(crievents.Config{Runtime: rt})
	if err != nil {
		return err
	}
	looks, err := pleg.New(pleg.Config{Runtime: observer, Events: events})
	if err != nil {
		return err
	}
	printer := floors.RunnerFunc(func(ctx context.Context) error {
		for {
			select {
			case e := <-looks.Watch():
				pod, _ := looks.Cache().Get(e.ID)
				fmt.Fprintf(out, "%s  %-16s %s/%s %s\n", time.Now().Format("15:04:05.000"), e.Type, pod.Namespace, pod.Name, what(pod, e.Data))
			case <-ctx.Done():
				return nil
			}
		}
	})
	return floors.Run(ctx, []floors.Runner{looks}, []floors.Runner{printer})
}

// what names the container or sandbox of an event.
func what(pod observed.Pod, id observed.ContainerID) string {
	for _, c := range pod.Containers {
		if c.ID != id {
			continue
		}
		if c.State == observed.Exited {
			return fmt.Sprintf("container %s (exit code %d)", c.Name, c.ExitCode)
		}
		return "container " + c.Name
	}
	for _, s := range pod.Sandboxes {
		if string(s.ID) == string(id) {
			return "sandbox"
		}
	}
	return string(id)
}

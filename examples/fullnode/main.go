// Command fullnode is a node agent that does the kubelet's job with the rooms of
// kubeletkit. It takes the kubelet's configuration and most used flags.
//
// Read newNode for how the rooms are built and fitted, floor by floor, and
// testdata/tour.txt for what one pod meets on its way through them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/containerdevents"
	"github.com/kubeletkit/kubeletkit/pleg/crievents"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, errUsage) {
		fmt.Fprintln(os.Stderr, "fullnode:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

// run is the program, up to its exit status.
func run(ctx context.Context, args []string) error {
	o, err := parseFlags(args, os.Stderr)
	if err != nil {
		return err
	}
	log := newLog(o.verbosity)
	if len(o.ignored) > 0 {
		log.Info("configuration fields without effect in this version", "fields", strings.Join(o.ignored, ", "))
	}
	m := metrics.New(o.nodeName)
	d, closeDoor, err := openDoor(o, m, log)
	if err != nil {
		return err
	}
	defer closeDoor()
	n, err := newNode(o, d, m, log, nil)
	if err != nil {
		return err
	}
	if err := prepare(o); err != nil {
		return err
	}
	log.Info("node agent starts", "node", o.nodeName, "addresses", strings.Join(o.nodeIPs, ","), "manifests", o.config.StaticPodPath, "rootDir", o.rootDir)
	if err := n.Run(ctx); err != nil {
		return err
	}
	log.Info("node agent has stopped; pods are left as they are")
	return nil
}

// newLog writes to standard error. What logr calls V(n) is printed as V(n).
func newLog(verbosity int) logr.Logger {
	return logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{
		Level: slog.Level(-verbosity),
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && level < 0 {
				a.Value = slog.StringValue(fmt.Sprintf("V(%d)", -level))
			}
			return a
		},
	}))
}

// openDoor returns the way to the runtime that o names. It does not connect: a
// runtime may start after its agent.
func openDoor(o options, m *metrics.Metrics, log logr.Logger) (door, func(), error) {
	if o.runtime == "fake" {
		log.Info("THE RUNTIME IS A FAKE IN MEMORY: no container runs, and all is gone when this process ends")
		rt := critest.New(critest.Config{Registry: fakeImage})
		return door{runtime: rt, images: rt, events: criEvents(rt)}, func() {}, nil
	}
	hooks := m.CRI()
	open := func(endpoint string) (*criclient.Client, error) {
		return criclient.New(criclient.Config{
			Endpoint: endpoint, RuntimeTimeout: o.config.RuntimeRequestTimeout.Duration, Log: log.WithName("criclient"), Hooks: hooks,
		})
	}
	client, err := open(o.config.ContainerRuntimeEndpoint)
	if err != nil {
		return door{}, nil, fmt.Errorf("containerRuntimeEndpoint: %w", err)
	}
	images := client
	if e := o.config.ImageServiceEndpoint; e != "" && e != o.config.ContainerRuntimeEndpoint {
		if images, err = open(e); err != nil {
			return door{}, nil, fmt.Errorf("imageServiceEndpoint: %w", err)
		}
	}
	closeDoor := func() {
		ctx := context.Background()
		client.Close(ctx) //nolint:errcheck // the process ends
		images.Close(ctx) //nolint:errcheck // closing twice is fine
	}
	if on, set := o.config.FeatureGates[gateEvents]; set && !on {
		return door{runtime: client, images: images}, closeDoor, nil
	}
	events, err := clientEvents(o, client, log)
	if err != nil {
		closeDoor()
		return door{}, nil, err
	}
	return door{runtime: client, images: images, events: events}, closeDoor, nil
}

// clientEvents is the CRI event stream, and for containerd 1.x, whose CRI has
// none, containerd's own.
func clientEvents(o options, client *criclient.Client, log logr.Logger) (pleg.EventSource, error) {
	socket, err := criclient.SocketPath(o.config.ContainerRuntimeEndpoint)
	if err != nil {
		return nil, fmt.Errorf("containerRuntimeEndpoint: %w", err)
	}
	own, err := containerdevents.New(containerdevents.Config{Address: socket, Log: log.WithName("containerdevents")})
	if err != nil {
		return nil, err
	}
	return pleg.FirstSupported(criEvents(client), own), nil
}

func criEvents(rt crievents.Runtime) pleg.EventSource {
	source, err := crievents.New(crievents.Config{Runtime: rt})
	if err != nil {
		panic(err) // the runtime is given
	}
	return source
}

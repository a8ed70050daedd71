package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/repo"
)

func main() {
	// Children ask to be ended when the thread that started them ends.
	runtime.LockOSThread()
	kind := flag.String("runtime", "", "fake: run pods in memory only")
	down := flag.Bool("down", false, "only remove what an earlier run left")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kind, *down); err != nil {
		fmt.Fprintln(os.Stderr, "devnode:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kind string, down bool) error {
	switch {
	case down:
		return takeDown()
	case kind == "fake":
		return serve(ctx, "node-fake", func(context.Context, *node) (backend, error) { return fake{}, nil })
	case kind == "":
		if err := errors.Join(checkMachine(), takeDown()); err != nil {
			return err
		}
		return serve(ctx, "node", startContainerd)
	}
	return fmt.Errorf("--runtime=%s: the only value is fake; without it a containerd is started", kind)
}

// backend is what fullnode runs its pods on.
type backend interface {
	// Flags are those that point fullnode at the backend.
	Flags() []string
	// CgroupRoot is where the pods' cgroups go, apart from those of a kubelet.
	CgroupRoot() string
	// Host is the image registry, empty for the one in the manifests.
	Host() string
	// Hints are lines for a person who wants to look around.
	Hints() []string
	// Close takes it down with all pods, and says what is left.
	Close() error
}

type fake struct{}

func (fake) Flags() []string    { return []string{"--runtime=fake"} }
func (fake) CgroupRoot() string { return "" }
func (fake) Host() string       { return "" }
func (fake) Hints() []string {
	return []string{"the pods are in memory only: nothing really runs"}
}
func (fake) Close() error { return nil }

// healthyWithin bounds the start of fullnode, podsWithin that of the demo pods.
const (
	healthyWithin = 30 * time.Second
	podsWithin    = 90 * time.Second
)

func serve(ctx context.Context, name string, start func(context.Context, *node) (backend, error)) (err error) {
	n, err := newNode(name)
	if err != nil {
		return err
	}
	fmt.Println("building fullnode")
	if err := repo.Build(ctx, ".", n.binary, "./examples/fullnode"); err != nil {
		return err
	}
	under, err := start(ctx, n)
	if err != nil {
		return err
	}
	defer func() {
		closed := under.Close()
		if closed == nil {
			fmt.Println("all down; nothing is left running")
		}
		err = errors.Join(err, closed)
	}()
	if err := n.writeManifests(under.Host()); err != nil {
		return err
	}
	if err := n.writeConfig(under.CgroupRoot()); err != nil {
		return err
	}
	agent, err := n.startAgent(under.Flags())
	if err != nil {
		return err
	}
	defer func() {
		fmt.Println("\nstopping fullnode, then its pods")
		err = errors.Join(err, agent.stop())
	}()
	return n.show(ctx, agent, under)
}

// show waits for the pods, prints them, and stays until ctx or the agent ends.
func (n *node) show(ctx context.Context, agent *agent, under backend) error {
	if err := n.waitHealthy(ctx, agent); err != nil {
		return interrupted(ctx, err)
	}
	pods, err := n.waitPods(ctx, agent)
	if ctx.Err() != nil {
		return nil
	}
	printPods(os.Stdout, pods)
	if err != nil {
		fmt.Printf("\nnot all is as it should be: %v\n", err)
	}
	fmt.Println()
	for _, line := range append(n.hints(), under.Hints()...) {
		fmt.Println("  " + line)
	}
	fmt.Println("\nCtrl-C takes everything down.")
	select {
	case <-ctx.Done():
		return nil
	case <-agent.done:
		return fmt.Errorf("fullnode ended by itself: %v; see %s", agent.err, n.log)
	}
}

// interrupted is nil when the error came only from Ctrl-C.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (n *node) hints() []string {
	return []string{
		"manifests    " + n.manifests + " (edit, add, remove)",
		"agent's log  " + n.log,
		"pods' logs   " + filepath.Join(n.podLogs, "NAMESPACE_POD_UID", "CONTAINER", "0.log"),
		fmt.Sprintf("health       curl http://127.0.0.1:%d/healthz", n.ports.health),
		fmt.Sprintf("pods         curl http://127.0.0.1:%d/pods", n.ports.readOnly),
		fmt.Sprintf("metrics      curl http://127.0.0.1:%d/metrics", n.ports.readOnly),
	}
}

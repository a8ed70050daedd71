package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/kubeletkit/kubeletkit/test/containerd"
	"github.com/kubeletkit/kubeletkit/test/images"
	"github.com/kubeletkit/kubeletkit/test/registry"
	"github.com/kubeletkit/kubeletkit/test/repo"
)

// machine is what all tests of one run share. Tests run one after the other,
// and each leaves it without pods.
type machine struct {
	daemon   *containerd.Daemon
	registry *registry.Registry
	kk       string // reference of the demo image at the registry
}

// the is set once, by TestMain, before any test.
var the machine

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("integration tests NOT RUN: containerd needs root")
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		return
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	ctx := context.Background()
	down, err := setUp(ctx)
	status := 1
	if err == nil {
		status = m.Run()
	}
	if err = errors.Join(err, down()); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return status
}

// setUp fills in the machine. The function it returns takes everything down
// and is never nil.
func setUp(ctx context.Context) (down func() error, err error) {
	dir := ""
	down = func() error {
		var errs []error
		if the.daemon != nil {
			errs = append(errs, the.daemon.Close())
		}
		if the.registry != nil {
			errs = append(errs, the.registry.Close())
		}
		if left := containerd.Leftovers(dir); the.daemon != nil && len(left) > 0 {
			errs = append(errs, fmt.Errorf("left on the machine:\n  %s", strings.Join(left, "\n  ")))
		}
		return errors.Join(errs...)
	}
	bin, err := chosen(ctx)
	if err != nil {
		return down, err
	}
	if dir, err = repo.Dev("integration", bin.Name); err != nil {
		return down, err
	}
	if the.registry, err = registry.Start("127.0.0.1:0"); err != nil {
		return down, err
	}
	set, err := images.Build(ctx, dir+"-images")
	if err != nil {
		return down, err
	}
	if err := set.Push(ctx, the.registry.Host()); err != nil {
		return down, err
	}
	the.kk = images.Ref(the.registry.Host(), images.KK)
	the.daemon, err = containerd.Start(ctx, containerd.Config{Dir: dir, Binary: bin.Path})
	return down, err
}

// fullnode is the path of the binary under test, built on the first call.
var fullnode = sync.OnceValues(func() (string, error) {
	path, err := repo.Dev("integration", "fullnode")
	if err != nil {
		return "", err
	}
	return path, repo.Build(context.Background(), ".", path, "./examples/fullnode")
})

func chosen(ctx context.Context) (containerd.Binary, error) {
	switch name := os.Getenv("KUBELETKIT_CONTAINERD"); name {
	case "", "system":
		return containerd.System(ctx)
	case "v2":
		return containerd.V2(ctx)
	default:
		return containerd.Binary{}, fmt.Errorf("KUBELETKIT_CONTAINERD=%s: must be system or v2", name)
	}
}

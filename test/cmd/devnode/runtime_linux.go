package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/test/containerd"
	"github.com/kubeletkit/kubeletkit/test/images"
	"github.com/kubeletkit/kubeletkit/test/registry"
	"github.com/kubeletkit/kubeletkit/test/repo"
)

// real is a containerd and the registry that it pulls from.
type real struct {
	dir    string
	daemon *containerd.Daemon
	reg    *registry.Registry
	crictl string
}

func checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("containerd needs root; `make run RUNTIME=fake` does not")
	}
	return nil
}

func startContainerd(ctx context.Context, n *node) (backend, error) {
	r := &real{dir: n.dir}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *real) start(ctx context.Context) error {
	fmt.Println("building crictl (once)")
	var err error
	if r.crictl, err = containerd.Crictl(ctx); err != nil {
		return err
	}
	if r.reg, err = registry.Start(registryHost); err != nil {
		if r.reg, err = registry.Start("127.0.0.1:0"); err != nil {
			return err
		}
	}
	fmt.Println("building the images pause and kk; the registry is", r.reg.Host())
	set, err := images.Build(ctx, filepath.Join(r.dir, "images"))
	if err != nil {
		return err
	}
	if err := set.Push(ctx, r.reg.Host()); err != nil {
		return err
	}
	fmt.Println("starting containerd in", r.containerdDir())
	r.daemon, err = containerd.Start(ctx, containerd.Config{Dir: r.containerdDir(), Masquerade: true})
	if err != nil {
		return err
	}
	// The last run's image of the same name may be older than its sources.
	_, err = r.daemon.Images().RemoveImage(ctx, &cri.RemoveImageRequest{
		Image: &cri.ImageSpec{Image: images.Ref(r.reg.Host(), images.KK)},
	})
	return err
}

func (r *real) containerdDir() string { return filepath.Join(r.dir, "containerd") }

func (r *real) Flags() []string {
	return []string{"--container-runtime-endpoint", r.daemon.Endpoint()}
}

func (r *real) CgroupRoot() string { return r.daemon.CgroupRoot() }

func (r *real) Host() string { return r.reg.Host() }

func (r *real) Hints() []string {
	return []string{
		"runtime      containerd " + r.daemon.Version() + ", log " + r.daemon.LogFile(),
		"look around  " + r.crictl + " -r " + r.daemon.Endpoint() + " ps -a",
		"registry     " + r.reg.Host() + ", image " + images.Ref(r.reg.Host(), images.KK),
	}
}

func (r *real) Close() error {
	var errs []error
	if r.daemon != nil {
		errs = append(errs, r.daemon.Close())
	}
	if r.reg != nil {
		errs = append(errs, r.reg.Close())
	}
	return errors.Join(append(errs, removeLogLinks(r.dir), nothingLeft(r.dir))...)
}

// removeLogLinks removes the links that fullnode made, as a kubelet does, to logs
// below dir. Links of other agents stay.
func removeLogLinks(dir string) error {
	links, err := filepath.Glob("/var/log/containers/*.log")
	for _, link := range links {
		if target, e := os.Readlink(link); e == nil && strings.HasPrefix(target, dir+"/") {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// nothingLeft is an error that lists what is left of a run.
func nothingLeft(dir string) error {
	left := containerd.Leftovers(filepath.Join(dir, "containerd"))
	for _, m := range containerd.Mounts(dir) {
		left = append(left, "mount "+m)
	}
	if len(left) > 0 {
		return fmt.Errorf("left over:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// takeDown removes what a run left that was killed.
func takeDown() error {
	dir, err := repo.Dev("node")
	if err != nil {
		return err
	}
	if err := containerd.Reap(filepath.Join(dir, "containerd")); err != nil {
		return err
	}
	return nothingLeft(dir)
}

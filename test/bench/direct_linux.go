package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// direct does by plain CRI calls what the agent has done: it repeats the requests
// that the agent made for its first pod.
type direct struct {
	dir     string
	runtime runtimeOf

	sandbox   *cri.PodSandboxConfig
	container *cri.ContainerConfig

	made int
	pods []*directPod
	best int // calls at once that were the fastest in a burst
}

type directPod struct {
	sandbox   string
	container string
	config    *cri.PodSandboxConfig
	own       *cri.ContainerConfig
}

// learn takes the requests for a running container of the agent's as the model.
// Host files that were mounted for it are replaced by files of our own.
func (d *direct) learn(ctx context.Context, from runtimeOf, c *cri.Container) error {
	s, err := from.sandbox(ctx, c.PodSandboxId)
	if err != nil {
		return err
	}
	own, err := from.container(ctx, c.Id)
	if err != nil {
		return err
	}
	d.sandbox, d.container = s.Config, own.Config
	// The agent's cgroup of that pod goes away with the pod.
	if d.sandbox.Linux != nil {
		d.sandbox.Linux.CgroupParent = ""
	}
	for i, m := range d.container.Mounts {
		info, err := os.Stat(m.HostPath)
		if err != nil {
			return err
		}
		m.HostPath = filepath.Join(d.dir, fmt.Sprintf("mount-%d", i))
		if err := makeLike(m.HostPath, info.IsDir()); err != nil {
			return err
		}
	}
	return nil
}

func makeLike(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o666)
}

// run starts n pods, some at once, and returns when it began and when the
// runtime says that the last container had started.
func (d *direct) run(ctx context.Context, n, parallel int) (begin, last time.Time, err error) {
	pods := make([]*directPod, n)
	for i := range pods {
		if pods[i], err = d.next(); err != nil {
			return begin, last, err
		}
	}
	begin = time.Now()
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range pods {
		g.Go(func() error { return d.start(ctx, p) })
	}
	if err := g.Wait(); err != nil {
		return begin, last, fmt.Errorf("direct calls: %w", err)
	}
	for _, p := range pods {
		at, err := d.runtime.startedAt(ctx, p.container)
		if err != nil {
			return begin, last, err
		}
		if at.After(last) {
			last = at
		}
	}
	return begin, last, nil
}

// next prepares a pod of which the runtime knows nothing yet.
func (d *direct) next() (*directPod, error) {
	d.made++
	name := fmt.Sprintf("direct-%d", d.made)
	p := &directPod{config: new(cri.PodSandboxConfig), own: new(cri.ContainerConfig)}
	if err := copyTo(p.config, d.sandbox); err != nil {
		return nil, err
	}
	if err := copyTo(p.own, d.container); err != nil {
		return nil, err
	}
	p.config.Metadata.Name, p.config.Metadata.Uid = name, name
	p.config.LogDirectory = filepath.Join(d.dir, name)
	d.pods = append(d.pods, p)
	return p, os.MkdirAll(filepath.Join(p.config.LogDirectory, filepath.Dir(p.own.LogPath)), 0o755)
}

// copyTo copies a request the way containerd gave it to us.
func copyTo(to, from any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

func (d *direct) start(ctx context.Context, p *directPod) error {
	s, err := d.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return err
	}
	p.sandbox = s.PodSandboxId
	return d.startContainer(ctx, p)
}

func (d *direct) startContainer(ctx context.Context, p *directPod) error {
	c, err := d.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: p.sandbox, Config: p.own, SandboxConfig: p.config})
	if err != nil {
		return err
	}
	p.container = c.ContainerId
	_, err = d.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container})
	return err
}

// restart kills a pod's container from behind, and starts it anew when the
// runtime says that it has exited. It returns what that took from the kill on, and
// what of it was creating and starting.
func (d *direct) restart(ctx context.Context, p *directPod) (whole, start time.Duration, err error) {
	c, err := d.runtime.container(ctx, p.container)
	if err != nil {
		return 0, 0, err
	}
	killed := time.Now()
	if err := syscall.Kill(c.Pid, syscall.SIGKILL); err != nil {
		return 0, 0, err
	}
	err = wait(ctx, 30*time.Second, 2*time.Millisecond, func() (bool, error) {
		answer, err := d.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.container})
		return answer.GetStatus().GetState() == cri.ContainerState_CONTAINER_EXITED, err
	})
	if err != nil {
		return 0, 0, err
	}
	p.own.Metadata.Attempt++
	begin := time.Now()
	if err := d.startContainer(ctx, p); err != nil {
		return 0, 0, err
	}
	at, err := d.runtime.startedAt(ctx, p.container)
	return at.Sub(killed), at.Sub(begin), err
}

// removeAll takes all pods down, some at once, and returns how long it took.
func (d *direct) removeAll(ctx context.Context, parallel int) (time.Duration, error) {
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, p := range d.pods {
		g.Go(func() error {
			if _, err := d.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.container, Timeout: 2}); err != nil {
				return err
			}
			if _, err := d.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
				return err
			}
			_, err := d.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.sandbox})
			return err
		})
	}
	err := g.Wait()
	d.pods = nil
	return time.Since(begin), err
}

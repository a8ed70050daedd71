package critest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// pidBase keeps the invented process IDs away from small ones.
const pidBase = 1000

type container struct {
	id      string
	seq     uint64
	name    string // reserved
	sandbox *sandbox
	config  *runtimeapi.ContainerConfig // never changed; resources are replaced beside it
	image   *localImage
	logPath string
	size    int // of its list entry, in bytes

	state      runtimeapi.ContainerState
	createdAt  int64
	startedAt  int64
	finishedAt int64
	exitCode   int32
	reason     string
	message    string
	resources  *runtimeapi.LinuxContainerResources

	behavior Behavior
	termed   bool          // TERM was sent
	ended    chan struct{} // closed at the end; made for the first who waits
	timers   []*time.Timer // what the container will do; stopped at its end
	log      *os.File      // open only while a container runs that prints
}

func byAge(a, b *container) int {
	if a.seq < b.seq {
		return -1
	}
	return 1
}

func (c *container) uid() string { return c.config.GetLabels()[observed.LabelPodUID] }

func (r *Runtime) setState(c *container, state runtimeapi.ContainerState) {
	r.containersState.remove(c.state, c)
	c.state = state
	r.containersState.add(c.state, c)
}

func (r *Runtime) findContainer(id string) (*container, error) {
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return findPrefix(r.containers, "container", id)
}

func (r *Runtime) createContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", req.GetPodSandboxId())
	}
	cfg, pod := req.GetConfig(), req.GetSandboxConfig().GetMetadata()
	switch {
	case sb.state != ready:
		return nil, status.Errorf(codes.Unknown, "sandbox container %q is not running", sb.id)
	case cfg.GetMetadata() == nil:
		return nil, status.Error(codes.Unknown, "container config must include metadata")
	case pod == nil:
		return nil, status.Error(codes.Unknown, "pod sandbox config must include metadata")
	}
	name := strings.Join([]string{cfg.GetMetadata().GetName(), pod.GetName(), pod.GetNamespace(), pod.GetUid(),
		strconv.FormatUint(uint64(cfg.GetMetadata().GetAttempt()), 10)}, "_")
	if holder, taken := r.names["c:"+name]; taken {
		return nil, status.Errorf(codes.Unknown, "failed to reserve container name %q: name %q is reserved for %q", name, name, holder)
	}
	img := r.resolveLocal(cfg.GetImage().GetImage())
	if img == nil {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", cfg.GetImage().GetImage())
	}
	if r.diskFull {
		return nil, errDisk(fmt.Sprintf("create containerd container %q", name), "/var/lib/critest/snapshots")
	}
	r.dropNewFields(cfg)
	if err := r.checkMounts(sb.handler, cfg.GetMounts()); err != nil {
		return nil, err
	}
	c := &container{
		name: "c:" + name, sandbox: sb, config: cfg, image: img,
		state: created, createdAt: r.now(), resources: cfg.GetLinux().GetResources(),
	}
	c.id = r.newID(name, c.createdAt)
	c.seq = r.seq
	if cfg.GetLogPath() != "" && req.GetSandboxConfig().GetLogDirectory() != "" {
		c.logPath = filepath.Join(req.GetSandboxConfig().GetLogDirectory(), cfg.GetLogPath())
	}
	r.names[c.name] = c.id
	r.containers[c.id] = c
	r.containersUID.add(c.uid(), c)
	r.containersState.add(c.state, c)
	sb.containers[c] = struct{}{}
	c.size = entrySize(containerEntry(c))
	r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, sb, c.id)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (r *Runtime) startContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != created {
		return nil, status.Errorf(codes.Unknown, "failed to set starting state for container %q: container is in %s state", c.id, c.state)
	}
	c.behavior = c.image.Behavior.resolve(c.config)
	if err := r.launch(c); err != nil {
		c.finishedAt, c.exitCode, c.reason = r.now(), 128, "StartError"
		c.message = status.Convert(err).Message()
		r.setState(c, exited)
		return nil, err
	}
	c.startedAt = r.now()
	r.setState(c, running)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.sandbox, c.id)
	r.schedule(c)
	return &runtimeapi.StartContainerResponse{}, nil
}

// launch is what can go wrong between created and running.
func (r *Runtime) launch(c *container) error {
	if c.sandbox.state != ready {
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sandbox.id)
	}
	if err := r.openLog(c); err != nil {
		return status.Errorf(codes.Unknown, "failed to create containerd task: failed to create container loggers: %v", err)
	}
	if c.behavior.StartError != "" {
		c.closeLog()
		return status.Errorf(codes.Unknown, "failed to create containerd task: failed to create shim task: %s", c.behavior.StartError)
	}
	return nil
}

func (r *Runtime) stopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	c, ended, err := r.beginStop(req)
	if err != nil {
		return nil, err
	}
	if ended == nil {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	grace := time.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
	defer grace.Stop()
	r.mu.Lock()
	down := r.down
	r.mu.Unlock()
	select {
	case <-ended:
	case <-grace.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kill(c)
	case <-ctx.Done():
		return nil, status.Errorf(status.FromContextError(ctx.Err()).Code(), "wait container %q: %v", c.id, ctx.Err())
	case <-down:
		return nil, errDown()
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// beginStop sends the first signal. It returns what to wait for, or nil when
// the container has ended.
func (r *Runtime) beginStop(req *runtimeapi.StopContainerRequest) (*container, <-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		if r.cfg.MissingIsError {
			return nil, nil, err
		}
		return nil, nil, nil
	}
	if req.GetTimeout() <= 0 || c.state != running {
		r.kill(c)
		return c, nil, nil
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	ended := c.ended // the end clears the field
	r.term(c)
	return c, ended, nil
}

func (r *Runtime) removeContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	r.kill(c)
	r.forgetContainer(c)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.sandbox, c.id)
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *Runtime) forgetContainer(c *container) {
	c.quiet()
	delete(r.containers, c.id)
	delete(r.names, c.name)
	delete(c.sandbox.containers, c)
	r.containersUID.remove(c.uid(), c)
	r.containersState.remove(c.state, c)
}

func (r *Runtime) containerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: r.containerStatusOf(c)}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": fmt.Sprintf(`{"sandboxID":%q,"pid":%d}`, c.sandbox.id, c.pid())}
	}
	return resp, nil
}

func (c *container) pid() uint64 {
	if c.state != running {
		return 0
	}
	return c.seq + pidBase
}

func (r *Runtime) updateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "failed to find container: container %q: not found", req.GetContainerId())
	}
	if c.state != created && c.state != running {
		return nil, status.Errorf(codes.Unknown, "failed to update resources: container %q is in %s state", c.id, c.state)
	}
	c.resources = mergeResources(c.resources, req.GetLinux())
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

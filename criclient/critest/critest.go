package critest

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

var (
	_ cri.RuntimeService      = (*Runtime)(nil)
	_ cri.ImageManagerService = (*Runtime)(nil)
)

// Config has a useful zero value: a runtime like containerd 2 without images.
type Config struct {
	RuntimeName    string // default "critest"; agents put it before "://" in container IDs
	RuntimeVersion string // default "2.0.0"

	// Registry answers for pulls of references that nobody gave to
	// [Runtime.Publish]; false means there is no such image. [AnyImage] makes
	// every reference pullable. Default: nothing more can be pulled. It is
	// called without a lock and may be called at the same time by several pulls.
	Registry func(ref string) (Image, bool)

	// Unimplemented names CRI methods that answer codes.Unimplemented, as an
	// older runtime does: "GetContainerEvents", "RuntimeConfig", "StreamContainers".
	Unimplemented []string

	// MissingIsError makes StopContainer and StopPodSandbox of an unknown ID
	// answer NotFound, as containerd 1.6 does. containerd 2 answers success.
	MissingIsError bool

	// Handlers are the runtime handlers RunPodSandbox accepts beside "".
	Handlers []string

	// Features are what Status tells of the runtime and its handlers, and what
	// sandboxes and containers may ask for. Default: each handler can do all.
	Features *observed.RuntimeFeatures

	// OldFields makes it know no field that is newer than containerd 1.6. It does
	// not tell features, users, resources, stop signals and image IDs, and asked
	// for a user namespace or a recursive read-only mount, it makes one without.
	OldFields bool

	// HostPath is asked for the host path of each mount, and its error refuses
	// the container. [MakeHostPath] does as containerd. Default: any path will do,
	// and no file system is touched.
	HostPath func(path string) error

	// CgroupDriver is what RuntimeConfig reports.
	CgroupDriver CgroupDriver

	// StreamURL answers Exec, Attach and PortForward for an embedder that runs
	// a streaming server. Default: those three are Unimplemented, because there
	// is no process behind a container to talk to.
	StreamURL func(method string, request any) (string, error)

	// MaxAnswer is the size in bytes above which an answer is ResourceExhausted
	// instead; default 16 MiB, containerd's limit for a sent message.
	MaxAnswer int

	// KeepCalls is how many of the newest calls [Runtime.Calls] returns;
	// default 1000, negative for none.
	KeepCalls int

	// EventBuffer is how many events wait for one slow subscriber; default
	// 1000. Beyond that its newest events are lost and counted.
	EventBuffer int
}

// CgroupDriver is the cgroup driver that RuntimeConfig reports.
type CgroupDriver int

// Cgroupfs is the default.
const (
	Cgroupfs CgroupDriver = iota
	Systemd
)

// MakeHostPath is a Config.HostPath that does as containerd: what is not there
// becomes a directory.
func MakeHostPath(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(path, 0o755)
	}
	return err
}

// Containerd16 is a Config that answers like containerd 1.6: no events, no
// RuntimeConfig, no list streams, no newer fields, and stopping what is not there
// is an error.
func Containerd16() Config {
	return Config{
		RuntimeName:    "containerd",
		RuntimeVersion: "1.6.20",
		MissingIsError: true,
		OldFields:      true,
		Unimplemented: []string{
			"GetContainerEvents", "RuntimeConfig", "UpdatePodSandboxResources",
			"StreamPodSandboxes", "StreamContainers", "StreamContainerStats",
			"StreamPodSandboxStats", "StreamPodSandboxMetrics", "StreamImages",
		},
	}
}

// Runtime is a container runtime in memory. It implements RuntimeService and
// ImageManagerService of k8s.io/cri-api; [Serve] puts it behind gRPC. All
// methods may be called at the same time from several goroutines.
//
// It starts no goroutine: what happens by itself, happens in timers. Made and
// used inside a testing/synctest bubble it follows the bubble's clock.
type Runtime struct {
	cfg           Config
	unimplemented map[string]bool
	handlers      map[string]bool

	mu         sync.Mutex
	down       chan struct{} // closed while the runtime is stopped
	stopped    bool
	diskFull   bool
	networkErr string
	lastTime   int64
	seq        uint64
	names      map[string]string // reserved name -> ID
	ips        ipPool

	sandboxes      map[string]*sandbox
	sandboxesUID   index[string, *sandbox]
	sandboxesState index[runtimeapi.PodSandboxState, *sandbox]

	containers      map[string]*container
	containersUID   index[string, *container]
	containersState index[runtimeapi.ContainerState, *container]

	published map[string]Image // by full reference
	present   map[string]*localImage
	imageIDs  map[string]*localImage

	subscribers   []*subscriber
	eventsDropped int
	eventFaults   []*eventFault
	held          []*runtimeapi.ContainerEventResponse

	faults []*fault
	calls  []*Call
}

// New returns a runtime that is up, ready, and empty.
func New(cfg Config) *Runtime {
	cfg.RuntimeName = cmp.Or(cfg.RuntimeName, "critest")
	cfg.RuntimeVersion = cmp.Or(cfg.RuntimeVersion, "2.0.0")
	cfg.MaxAnswer = cmp.Or(cfg.MaxAnswer, 16<<20)
	cfg.KeepCalls = cmp.Or(cfg.KeepCalls, 1000)
	cfg.EventBuffer = cmp.Or(cfg.EventBuffer, 1000)
	r := &Runtime{
		cfg:             cfg,
		unimplemented:   map[string]bool{},
		handlers:        map[string]bool{"": true},
		down:            make(chan struct{}),
		names:           map[string]string{},
		ips:             ipPool{used: map[int]bool{}},
		sandboxes:       map[string]*sandbox{},
		sandboxesUID:    index[string, *sandbox]{},
		sandboxesState:  index[runtimeapi.PodSandboxState, *sandbox]{},
		containers:      map[string]*container{},
		containersUID:   index[string, *container]{},
		containersState: index[runtimeapi.ContainerState, *container]{},
		published:       map[string]Image{},
		present:         map[string]*localImage{},
		imageIDs:        map[string]*localImage{},
	}
	for _, m := range cfg.Unimplemented {
		r.unimplemented[m] = true
	}
	for _, h := range cfg.Handlers {
		r.handlers[h] = true
	}
	return r
}

// Stop takes the runtime away as a stopped containerd does: calls in progress
// and new ones answer Unavailable, event streams end, and containers run on and
// may exit meanwhile. Nothing is forgotten. It closes no connection of a
// [Server]; close that too to imitate a socket that is gone.
func (r *Runtime) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.stopped = true
	close(r.down)
	for _, s := range r.subscribers {
		s.end(errDown())
	}
	r.subscribers = nil
}

// Start brings the runtime back after [Runtime.Stop], with everything it knew.
// For a runtime that answers empty lists at first, inject Fault{Empty: true}.
func (r *Runtime) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		return
	}
	r.stopped = false
	r.down = make(chan struct{})
}

// FillDisk makes the disk of the runtime full, or frees it: RunPodSandbox,
// CreateContainer and PullImage fail and log lines are lost while it is full.
func (r *Runtime) FillDisk(full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.diskFull = full
}

// SetNetworkReady switches the NetworkReady condition. While it is false only
// sandboxes on the host network can be run.
func (r *Runtime) SetNetworkReady(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.networkErr = ""
	if !ready {
		r.networkErr = "cni plugin not initialized"
	}
}

// now is the runtime's clock. No two readings are equal, so creation, start and
// finish of one container are always in order. The lock is held.
func (r *Runtime) now() int64 {
	r.lastTime = max(time.Now().UnixNano(), r.lastTime+1)
	return r.lastTime
}

func (r *Runtime) version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version:           "0.1.0", // the kubelet API's version, not the CRI's
		RuntimeName:       r.cfg.RuntimeName,
		RuntimeVersion:    r.cfg.RuntimeVersion,
		RuntimeApiVersion: "v1",
	}, nil
}

func (r *Runtime) status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
	if r.networkErr != "" {
		network.Status = false
		network.Reason = "NetworkPluginNotReady"
		network.Message = "Network plugin returns error: " + r.networkErr
	}
	resp := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, network,
	}}}
	r.tellFeatures(resp)
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": "{}"}
	}
	return resp, nil
}

func (r *Runtime) runtimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if r.cfg.CgroupDriver == Systemd {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

func (r *Runtime) updateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

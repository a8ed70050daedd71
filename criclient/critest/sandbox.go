package critest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

type sandbox struct {
	id         string
	seq        uint64
	name       string // reserved
	config     *runtimeapi.PodSandboxConfig
	handler    string
	state      runtimeapi.PodSandboxState
	createdAt  int64
	host       int // host part of the address; 0 for none
	size       int // of its list entry, in bytes
	containers map[*container]struct{}
}

func (s *sandbox) uid() string { return s.config.GetLabels()[observed.LabelPodUID] }

func (s *sandbox) hostNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *sandbox) ip() string {
	if s.host == 0 {
		return ""
	}
	return fmt.Sprintf("10.88.%d.%d", s.host>>8, s.host&255)
}

// inOrder returns the sandbox's containers, oldest first.
func (s *sandbox) inOrder() []*container {
	all := make([]*container, 0, len(s.containers))
	for c := range s.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, byAge)
	return all
}

// newID makes an ID of the usual form. It depends on the name and the clock, so
// a bubble gives the same IDs in every run, and two runtimes give different ones.
func (r *Runtime) newID(name string, at int64) string {
	r.seq++
	sum := sha256.Sum256([]byte(name + "\x00" + strconv.FormatInt(at, 10) + "\x00" + strconv.FormatUint(r.seq, 10)))
	return hex.EncodeToString(sum[:])
}

func (r *Runtime) findSandbox(id string) (*sandbox, error) {
	if sb := r.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return findPrefix(r.sandboxes, "sandbox", id)
}

// fullID is the length of a whole ID. One that was not found as it stands is
// not looked for as a beginning.
const fullID = 64

// findPrefix finds by a short ID, as crictl users type it.
func findPrefix[T any](all map[string]T, what, id string) (T, error) {
	var found T
	n := 0
	if id != "" && len(id) < fullID {
		for full, v := range all {
			if strings.HasPrefix(full, id) {
				found, n = v, n+1
			}
		}
	}
	if n == 1 {
		return found, nil
	}
	var none T
	return none, status.Errorf(codes.NotFound, "an error occurred when try to find %s %q: not found", what, id)
}

func errDisk(doing, path string) error {
	return status.Errorf(codes.Unknown, "failed to %s: write %s: no space left on device", doing, path)
}

func (r *Runtime) runPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, status.Error(codes.Unknown, "sandbox config must include metadata")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.Join([]string{meta.GetName(), meta.GetNamespace(), meta.GetUid(), strconv.FormatUint(uint64(meta.GetAttempt()), 10)}, "_")
	if holder, taken := r.names["s:"+name]; taken {
		return nil, status.Errorf(codes.Unknown, "failed to reserve sandbox name %q: name %q is reserved for %q", name, name, holder)
	}
	sb := &sandbox{
		name: "s:" + name, config: req.GetConfig(), handler: req.GetRuntimeHandler(),
		state: ready, containers: map[*container]struct{}{},
	}
	switch {
	case !r.handlers[sb.handler]:
		return nil, status.Errorf(codes.Unknown, "unable to get OCI runtime for sandbox %q: no runtime for %q is configured", name, sb.handler)
	case r.diskFull:
		return nil, errDisk(fmt.Sprintf("create sandbox %q", name), "/var/lib/critest/sandboxes")
	}
	if err := r.checkUserNamespace(sb); err != nil {
		return nil, err
	}
	sb.createdAt = r.now()
	sb.id = r.newID(name, sb.createdAt)
	sb.seq = r.seq
	if !sb.hostNetwork() {
		if r.networkErr != "" {
			return nil, status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %s", sb.id, r.networkErr)
		}
		host, ok := r.ips.take()
		if !ok {
			return nil, status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: no IP addresses available in range set: 10.88.0.1-10.88.255.254", sb.id)
		}
		sb.host = host
	}
	r.names[sb.name] = sb.id
	r.sandboxes[sb.id] = sb
	r.sandboxesUID.add(sb.uid(), sb)
	r.sandboxesState.add(sb.state, sb)
	sb.size = entrySize(sandboxEntry(sb))
	r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, sb, sb.id)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, sb, sb.id)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

func (r *Runtime) stopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		if r.cfg.MissingIsError {
			return nil, err
		}
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	r.haltSandbox(sb)
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// haltSandbox kills what runs in a sandbox and takes its network down.
func (r *Runtime) haltSandbox(sb *sandbox) {
	for _, c := range sb.inOrder() {
		r.kill(c)
	}
	r.exitSandbox(sb)
	if sb.host != 0 {
		r.ips.release(sb.host)
		sb.host = 0
	}
}

// exitSandbox is the end of the sandbox's own process. The network stays.
func (r *Runtime) exitSandbox(sb *sandbox) {
	if sb.state == notReady {
		return
	}
	r.sandboxesState.remove(sb.state, sb)
	sb.state = notReady
	r.sandboxesState.add(sb.state, sb)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, sb, sb.id)
}

func (r *Runtime) removePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	r.haltSandbox(sb)
	for _, c := range sb.inOrder() {
		r.forgetContainer(c)
		r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, sb, c.id)
	}
	// containerd sends this one before it forgets the sandbox, so it still
	// carries a status.
	r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, sb, sb.id)
	r.forgetSandbox(sb)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *Runtime) forgetSandbox(sb *sandbox) {
	delete(r.sandboxes, sb.id)
	delete(r.names, sb.name)
	r.sandboxesUID.remove(sb.uid(), sb)
	r.sandboxesState.remove(sb.state, sb)
	if sb.host != 0 {
		r.ips.release(sb.host)
		sb.host = 0
	}
}

func (r *Runtime) podSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: sandboxStatus(sb)}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": fmt.Sprintf(`{"pid":%d}`, sb.seq+pidBase)}
	}
	return resp, nil
}

func (r *Runtime) updatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.findSandbox(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

package criclient_test

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// world is a Runtime in memory. Its errors are raw gRPC statuses, as those of
// k8s.io/cri-client.
type world struct {
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	of         map[string]string // container to sandbox
	listEmpty  bool              // as a runtime that has just restarted
	noFilters  bool              // lists do not look at the filter
	vanished   map[string]bool   // listed, but their status is NotFound
	fail       map[string]error  // by ID
	asked      []string          // status calls, by ID
}

func newWorld() *world {
	return &world{
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*runtimeapi.ContainerStatus{},
		of: map[string]string{}, vanished: map[string]bool{}, fail: map[string]error{},
	}
}

func podLabels(uid string) map[string]string {
	if uid == "" {
		return nil
	}
	return map[string]string{observed.LabelPodUID: uid, observed.LabelPodName: "web", observed.LabelPodNamespace: "default"}
}

func (w *world) sandbox(id, uid string, createdAt int64, ready bool, ips ...string) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{Id: id, Labels: podLabels(uid), CreatedAt: createdAt, Network: &runtimeapi.PodSandboxNetworkStatus{}}
	if !ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	for i, ip := range ips {
		if i == 0 {
			s.Network.Ip = ip
		} else {
			s.Network.AdditionalIps = append(s.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	w.sandboxes[id] = s
	return s
}

func (w *world) container(id, uid, name, sandbox string, createdAt int64, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	labels := podLabels(uid)
	if labels != nil {
		labels[observed.LabelContainerName] = name
	}
	c := &runtimeapi.ContainerStatus{
		Id: id, Labels: labels, CreatedAt: createdAt, State: state,
		Image: &runtimeapi.ImageSpec{Image: "app:1"}, ImageRef: "app@sha256:1", ImageId: "sha256:1",
		Annotations: map[string]string{observed.AnnotationHash: "abc", observed.AnnotationRestartCount: "2"},
	}
	if state != created {
		c.StartedAt = createdAt + 1
	}
	if state == exited {
		c.FinishedAt, c.ExitCode, c.Reason = createdAt+2, 1, "Error"
	}
	w.containers[id], w.of[id] = c, sandbox
	return c
}

func labelled(want, have map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

func (w *world) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if w.noFilters {
		f = nil
	}
	var all []*runtimeapi.PodSandbox
	for _, s := range w.sandboxes {
		if w.listEmpty || (f.GetState() != nil && f.GetState().GetState() != s.GetState()) || !labelled(f.GetLabelSelector(), s.GetLabels()) {
			continue
		}
		all = append(all, &runtimeapi.PodSandbox{Id: s.Id, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels, Metadata: s.Metadata})
	}
	return all, w.fail["ListPodSandbox"]
}

func (w *world) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if w.noFilters {
		f = nil
	}
	var all []*runtimeapi.Container
	for _, c := range w.containers {
		if w.listEmpty || (f.GetState() != nil && f.GetState().GetState() != c.GetState()) || !labelled(f.GetLabelSelector(), c.GetLabels()) {
			continue
		}
		all = append(all, &runtimeapi.Container{Id: c.Id, State: c.State, CreatedAt: c.CreatedAt, Labels: c.Labels, Annotations: c.Annotations, PodSandboxId: w.of[c.Id], Metadata: c.Metadata})
	}
	return all, w.fail["ListContainers"]
}

func (w *world) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	w.asked = append(w.asked, id)
	if err := w.fail[id]; err != nil {
		return nil, err
	}
	s := w.sandboxes[id]
	if s == nil || w.vanished[id] {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: s}, nil
}

func (w *world) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	w.asked = append(w.asked, id)
	if err := w.fail[id]; err != nil {
		return nil, err
	}
	c := w.containers[id]
	if c == nil || w.vanished[id] {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: c}, nil
}

// takeAsked returns which IDs were asked for, sorted, and starts anew.
func (w *world) takeAsked() []string {
	asked := w.asked
	w.asked = nil
	slices.Sort(asked)
	return asked
}

package critest

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

func (r *Runtime) listPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return r.sandboxList(req.GetFilter(), r.cfg.MaxAnswer)
}

func (r *Runtime) listContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return r.containerList(req.GetFilter(), r.cfg.MaxAnswer)
}

func (r *Runtime) sandboxList(f *runtimeapi.PodSandboxFilter, limit int) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.matchSandboxes(f)
	if err := fits(limit, found, func(s *sandbox) int { return s.size }); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListPodSandboxResponse{Items: make([]*runtimeapi.PodSandbox, len(found))}
	for i, sb := range found {
		resp.Items[i] = sandboxEntry(sb)
	}
	return resp, nil
}

func (r *Runtime) containerList(f *runtimeapi.ContainerFilter, limit int) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.matchContainers(f)
	if err := fits(limit, found, func(c *container) int { return c.size }); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListContainersResponse{Containers: make([]*runtimeapi.Container, len(found))}
	for i, c := range found {
		resp.Containers[i] = containerEntry(c)
		if r.cfg.OldFields {
			resp.Containers[i].ImageId = ""
		}
	}
	return resp, nil
}

// matchSandboxes returns what a filter selects, oldest first. The smallest
// group that the filter names is searched, so the cost follows the answer.
func (r *Runtime) matchSandboxes(f *runtimeapi.PodSandboxFilter) []*sandbox {
	if f.GetId() != "" {
		sb, err := r.findSandbox(f.GetId())
		if err != nil || !sandboxMatches(sb, f) {
			return nil
		}
		return []*sandbox{sb}
	}
	var groups []map[*sandbox]struct{}
	if f.GetState() != nil {
		groups = append(groups, r.sandboxesState[f.GetState().GetState()])
	}
	if uid, ok := f.GetLabelSelector()[observed.LabelPodUID]; ok {
		groups = append(groups, r.sandboxesUID[uid])
	}
	found := search(r.sandboxes, groups, func(sb *sandbox) bool { return sandboxMatches(sb, f) })
	slices.SortFunc(found, func(a, b *sandbox) int { return cmp.Compare(a.seq, b.seq) })
	return found
}

func sandboxMatches(sb *sandbox, f *runtimeapi.PodSandboxFilter) bool {
	return (f.GetState() == nil || f.GetState().GetState() == sb.state) &&
		labelsMatch(sb.config.GetLabels(), f.GetLabelSelector())
}

func (r *Runtime) matchContainers(f *runtimeapi.ContainerFilter) []*container {
	if f.GetId() != "" {
		c, err := r.findContainer(f.GetId())
		if err != nil || !r.containerMatches(c, f) {
			return nil
		}
		return []*container{c}
	}
	var groups []map[*container]struct{}
	if f.GetPodSandboxId() != "" {
		sb, err := r.findSandbox(f.GetPodSandboxId())
		if err != nil {
			return nil
		}
		groups = append(groups, sb.containers)
	}
	if f.GetState() != nil {
		groups = append(groups, r.containersState[f.GetState().GetState()])
	}
	if uid, ok := f.GetLabelSelector()[observed.LabelPodUID]; ok {
		groups = append(groups, r.containersUID[uid])
	}
	found := search(r.containers, groups, func(c *container) bool { return r.containerMatches(c, f) })
	slices.SortFunc(found, byAge)
	return found
}

func (r *Runtime) containerMatches(c *container, f *runtimeapi.ContainerFilter) bool {
	if f.GetPodSandboxId() != "" {
		if sb, err := r.findSandbox(f.GetPodSandboxId()); err != nil || sb != c.sandbox {
			return false
		}
	}
	return (f.GetState() == nil || f.GetState().GetState() == c.state) &&
		labelsMatch(c.config.GetLabels(), f.GetLabelSelector())
}

// search looks through the smallest of the groups, or through all without any.
func search[V comparable](all map[string]V, groups []map[V]struct{}, match func(V) bool) []V {
	var found []V
	if len(groups) == 0 {
		for _, v := range all {
			if match(v) {
				found = append(found, v)
			}
		}
		return found
	}
	smallest := groups[0]
	for _, g := range groups[1:] {
		if len(g) < len(smallest) {
			smallest = g
		}
	}
	for v := range smallest {
		if match(v) {
			found = append(found, v)
		}
	}
	return found
}

func labelsMatch(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// fits refuses an answer that gRPC would refuse to send.
func fits[V any](limit int, found []V, size func(V) int) error {
	total := 0
	for _, v := range found {
		total += size(v)
	}
	if total > limit {
		return errTooLarge(total, limit)
	}
	return nil
}

// entrySize is what a list entry takes in an encoded answer.
func entrySize(m proto.Message) int { return proto.Size(m) + 6 }

func sandboxEntry(sb *sandbox) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id:             sb.id,
		Metadata:       podMetadata(sb),
		State:          sb.state,
		CreatedAt:      sb.createdAt,
		Labels:         maps.Clone(sb.config.GetLabels()),
		Annotations:    maps.Clone(sb.config.GetAnnotations()),
		RuntimeHandler: sb.handler,
	}
}

func containerEntry(c *container) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           c.id,
		PodSandboxId: c.sandbox.id,
		Metadata:     containerMetadata(c),
		Image:        &runtimeapi.ImageSpec{Image: c.config.GetImage().GetImage(), UserSpecifiedImage: c.config.GetImage().GetUserSpecifiedImage()},
		// containerd lists the image ID in both.
		ImageRef:    c.image.id,
		ImageId:     c.image.id,
		State:       c.state,
		CreatedAt:   c.createdAt,
		Labels:      maps.Clone(c.config.GetLabels()),
		Annotations: maps.Clone(c.config.GetAnnotations()),
	}
}

func podMetadata(sb *sandbox) *runtimeapi.PodSandboxMetadata {
	m := sb.config.GetMetadata()
	return &runtimeapi.PodSandboxMetadata{Name: m.GetName(), Namespace: m.GetNamespace(), Uid: m.GetUid(), Attempt: m.GetAttempt()}
}

func containerMetadata(c *container) *runtimeapi.ContainerMetadata {
	return &runtimeapi.ContainerMetadata{Name: c.config.GetMetadata().GetName(), Attempt: c.config.GetMetadata().GetAttempt()}
}

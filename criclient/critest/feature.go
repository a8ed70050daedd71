package critest

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// features are those of Config, or of a runtime that can do everything.
func (r *Runtime) features() observed.RuntimeFeatures {
	if r.cfg.Features != nil {
		return *r.cfg.Features
	}
	f := observed.RuntimeFeatures{SupplementalGroupsPolicy: true, Handlers: map[string]observed.HandlerFeatures{}}
	for h := range r.handlers {
		f.Handlers[h] = observed.HandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
	}
	return f
}

func (r *Runtime) tellFeatures(resp *runtimeapi.StatusResponse) {
	if r.cfg.OldFields {
		return
	}
	f := r.features()
	resp.Features = &runtimeapi.RuntimeFeatures{
		SupplementalGroupsPolicy: f.SupplementalGroupsPolicy, UserNamespacesHostNetwork: f.UserNamespacesHostNetwork,
	}
	for _, name := range slices.Sorted(maps.Keys(r.handlers)) {
		h := f.Handler(name)
		resp.RuntimeHandlers = append(resp.RuntimeHandlers, &runtimeapi.RuntimeHandler{
			Name: name,
			Features: &runtimeapi.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: h.RecursiveReadOnlyMounts, UserNamespaces: h.UserNamespaces,
			},
		})
	}
}

// checkUserNamespace refuses a sandbox whose handler has no user namespaces.
func (r *Runtime) checkUserNamespace(sb *sandbox) error {
	user := sb.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if user == nil || user.GetMode() != runtimeapi.NamespaceMode_POD || r.cfg.OldFields {
		return nil
	}
	f := r.features()
	if !f.Handler(sb.handler).UserNamespaces {
		return status.Errorf(codes.Unknown, "user namespaces are not supported by runtime handler %q", sb.handler)
	}
	if sb.hostNetwork() && !f.UserNamespacesHostNetwork {
		return status.Error(codes.Unknown, "user namespaces are not supported on the host's network")
	}
	return nil
}

// dropNewFields does to a request what an old runtime does when it decodes it.
func (r *Runtime) dropNewFields(cfg *runtimeapi.ContainerConfig) {
	if !r.cfg.OldFields {
		return
	}
	cfg.StopSignal = runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	for _, m := range cfg.GetMounts() {
		m.Image, m.ImageSubPath, m.RecursiveReadOnly, m.UidMappings, m.GidMappings = nil, "", false, nil, nil
	}
}

// checkMounts refuses what api.proto forbids a container to mount, and what the
// runtime cannot.
func (r *Runtime) checkMounts(handler string, mounts []*runtimeapi.Mount) error {
	for _, m := range mounts {
		var problem string
		switch {
		case m.GetContainerPath() == "":
			problem = "no container path"
		case m.GetImage().GetImage() != "" && m.GetHostPath() != "":
			problem = "both a host path and an image"
		case m.GetImage().GetImage() != "" && r.resolveLocal(m.GetImage().GetImage()) == nil:
			return status.Errorf(codes.NotFound, "failed to mount image %q at %q: image not found", m.GetImage().GetImage(), m.GetContainerPath())
		case m.GetImage().GetImage() == "" && m.GetHostPath() == "":
			problem = "neither a host path nor an image"
		case m.GetRecursiveReadOnly() && !m.GetReadonly():
			problem = "recursive read-only, but not read-only"
		case m.GetRecursiveReadOnly() && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
			problem = "recursive read-only, but not private"
		case m.GetRecursiveReadOnly() && !r.features().Handler(handler).RecursiveReadOnlyMounts:
			problem = "recursive read-only mounts are not supported by the runtime handler"
		}
		if problem != "" {
			return status.Errorf(codes.Unknown, "invalid mount at %q: %s", m.GetContainerPath(), problem)
		}
		if m.GetHostPath() == "" || r.cfg.HostPath == nil {
			continue
		}
		if err := r.cfg.HostPath(m.GetHostPath()); err != nil {
			return status.Errorf(codes.Unknown, "failed to mount %q at %q: %v", m.GetHostPath(), m.GetContainerPath(), err)
		}
	}
	return nil
}

package podruntime

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// stopSignal is what the container is asked to end with (KEP-4960). The runtime
// takes the image's where the pod names none.
func stopSignal(s starting) (runtimeapi.Signal, error) {
	if s.c.Lifecycle == nil || s.c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	name := string(*s.c.Lifecycle.StopSignal)
	// CRI spells SIGRTMIN+1 as SIGRTMINPLUS1.
	spelled := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)
	number, ok := runtimeapi.Signal_value["SIGNAL_"+spelled]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, field.Invalid(containerPath(s.pod, s.c, s.kind).Child("lifecycle", "stopSignal"), name, "not a signal")
	}
	return runtimeapi.Signal(number), nil
}

// checkStopSignal refuses a container whose signal the runtime did not take. An old
// one decodes the request without the field and would send SIGTERM, which may mean
// something else to the program. One that knows the field tells for each container
// which signal it will send (KEP-4960).
func (r *Runtime) checkStopSignal(ctx context.Context, s starting, id string) *StartFailure {
	want, err := stopSignal(s)
	if err != nil || want == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil // one that is wrong did not get as far as this
	}
	resp, err := r.cfg.CRI.ContainerStatus(ctx, id, false)
	if err != nil {
		return r.failed(ctx, s, ReasonCreateError, criclient.Message(err), err)
	}
	if resp.GetStatus().GetStopSignal() != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	if err := r.RemoveContainer(ctx, observed.Container{ID: observed.ContainerID(id), Name: s.c.Name}); err != nil {
		r.log(s.pod).V(1).Info("Container that is not to start was not removed", "container", s.c.Name, "containerID", id, "err", err.Error())
	}
	err = field.Forbidden(containerPath(s.pod, s.c, s.kind).Child("lifecycle", "stopSignal"), "the container runtime knows no stop signals")
	return r.failed(ctx, s, ReasonConfigError, fmt.Sprintf("configure container %s of pod %s: %v", s.c.Name, podName(s.pod), err), err)
}

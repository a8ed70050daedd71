package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Waiting reasons of this room. Those about images come from the [ImageEnsurer].
const (
	ReasonCrashLoop    = "CrashLoopBackOff"
	ReasonConfigError  = "CreateContainerConfigError"
	ReasonCreateError  = "CreateContainerError"
	ReasonRunError     = "RunContainerError"
	reasonImageUnknown = "ErrImagePull"
)

// retryAfter is when a start that failed for no known span of time is tried again.
const retryAfter = 10 * time.Second

// Converge carries out the second half of a plan: it starts plan.Start in order,
// one after the other, in the sandbox that [Runtime.EnsureSandbox] returned.
// seen is the observation that the plan was made from.
//
// A regular container or sidecar that does not start holds nobody up; an init
// container that does not start ends the pass. spec is asked right before each
// create, so that it can use what earlier containers brought. When ctx ends,
// nothing more is started.
func (r *Runtime) Converge(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan Plan, sb Sandbox, spec func(Start) (ContainerSpec, error)) Result {
	result := Result{pod: podName(pod)}
	volumes := make(volumeImages)
	for _, s := range plan.Start {
		if err := ctx.Err(); err != nil {
			result.stopped = fmt.Errorf("start containers of pod %s: %w", podName(pod), err)
			break
		}
		c, kind, ok := podspec.Find(pod, s.Name)
		if !ok || kind != s.Kind {
			result.stopped = fmt.Errorf("start container %s of pod %s: the plan belongs to another pod spec", s.Name, podName(pod))
			break
		}
		failure := r.start(ctx, starting{pod: pod, c: c, kind: kind, start: s, seen: seen, sandbox: sb, spec: spec, volumes: volumes})
		if failure == nil {
			result.Started = append(result.Started, s.Name)
			continue
		}
		if err := ctx.Err(); err != nil { // no failure of the container's
			result.stopped = fmt.Errorf("start container %s of pod %s: %w", s.Name, podName(pod), err)
			break
		}
		if result.Failures == nil {
			result.Failures = make(map[string]StartFailure)
		}
		result.Failures[s.Name] = *failure
		if kind == podspec.Init && !podspec.IsSidecar(c) {
			break
		}
	}
	return result
}

// starting is one container on its way.
type starting struct {
	pod     *corev1.Pod
	c       *corev1.Container
	kind    podspec.Kind
	start   Start
	seen    observed.Pod
	sandbox Sandbox
	spec    func(Start) (ContainerSpec, error)
	volumes volumeImages
}

// start runs one container through the steps; nil means that it runs.
func (r *Runtime) start(ctx context.Context, s starting) *StartFailure {
	if failure := r.heldBack(s); failure != nil {
		return failure
	}
	r.cfg.Hooks.Starting(s.pod, s.kind)
	id, count, adopted := s.created()
	if !adopted {
		var failure *StartFailure
		if id, count, failure = r.create(ctx, s); failure != nil {
			return failure
		}
		r.event(s.pod, s.c.Name, corev1.EventTypeNormal, "Created", "Container created")
	}
	if failure := r.checkStopSignal(ctx, s, id); failure != nil {
		return failure
	}
	if err := r.run(ctx, id); err != nil {
		if adopted && ctx.Err() == nil {
			// It has failed twice. A new one may have a better configuration.
			if err := r.RemoveContainer(ctx, observed.Container{ID: observed.ContainerID(id), Name: s.c.Name}); err != nil {
				r.log(s.pod).V(1).Info("Container that does not start was not removed", "container", s.c.Name, "containerID", id, "err", err.Error())
			}
		}
		message := strings.ReplaceAll(criclient.Message(err), id, s.c.Name)
		return r.failed(ctx, s, ReasonRunError, message, err)
	}
	r.event(s.pod, s.c.Name, corev1.EventTypeNormal, "Started", "Container started")
	r.cfg.Hooks.Started(s.pod, s.kind, s.c.Name)
	if err := r.linkLog(s.pod, s.c.Name, id, count); err != nil {
		// Nothing depends on the link but older log shippers.
		r.log(s.pod).V(1).Info("Log link was not made", "container", s.c.Name, "containerID", id, "err", err.Error())
	}
	return r.postStart(ctx, s, id)
}

// heldBack asks the crash-loop back-off. Only an exit counts: a container that
// was never started has not crashed.
func (r *Runtime) heldBack(s starting) *StartFailure {
	var finished time.Time
	all := s.seen.Instances(s.c.Name)
	if i := slices.IndexFunc(all, func(c observed.Container) bool { return c.State == observed.Exited }); i >= 0 {
		finished = all[i].FinishedAt
	} else if d, ok := r.backoffs.get(observed.UID(s.pod.UID), s.c.Name); ok && !d.removed.IsZero() {
		finished = d.removed
	} else {
		return nil
	}
	d, ok := r.backoffs.try(observed.UID(s.pod.UID), s.c, finished, time.Now())
	if ok {
		return nil
	}
	who := podspec.Human(s.pod)
	r.event(s.pod, s.c.Name, corev1.EventTypeWarning, "BackOff",
		fmt.Sprintf("Back-off restarting failed container %s in pod %s", s.c.Name, who))
	return &StartFailure{
		Reason:  ReasonCrashLoop,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", d.delay, s.c.Name, who),
		RetryAt: d.until,
	}
}

// created returns the instance that was made for this start but never ran: the
// agent ended between the two calls, or the runtime's answer came too late. It
// is started instead of making a second one.
func (s starting) created() (id string, count int, ok bool) {
	last, ok := s.seen.Container(s.c.Name)
	if !ok || s.sandbox.Created || last.State != observed.Created ||
		last.Sandbox != s.sandbox.ID || last.Hash != Hash(s.c) {
		return "", 0, false
	}
	return string(last.ID), last.RestartCount, true
}

// create makes the images present and the container. The images come first, since
// only they can take long, and everything else is to be fresh.
func (r *Runtime) create(ctx context.Context, s starting) (id string, count int, failure *StartFailure) {
	if s.start.Images, failure = r.imageVolumes(ctx, s); failure != nil {
		return "", 0, failure
	}
	image, err := r.cfg.Images.EnsureImage(ctx, s.pod, s.c, s.sandbox.Config)
	if err != nil {
		return "", 0, r.imageFailed(ctx, s, err)
	}
	dir, err := r.makeLogDir(s.pod, s.c.Name)
	if err != nil {
		return "", 0, r.failed(ctx, s, ReasonConfigError, err.Error(), err)
	}
	count, err = restartCount(s.seen.Instances(s.c.Name), dir, s.pod.Status, s.c.Name)
	if err != nil {
		r.log(s.pod).Info("Restart count starts from 0: the log directory cannot be read", "container", s.c.Name, "err", err.Error())
	}
	s.start.Attempt = count
	spec, err := s.spec(s.start)
	if err != nil {
		return "", 0, r.failed(ctx, s, ReasonConfigError, err.Error(), err)
	}
	if err := verifyNonRoot(s.pod, s.c, image); err != nil {
		return "", 0, r.failed(ctx, s, ReasonConfigError, err.Error(), err)
	}
	config, err := r.containerConfig(s, spec, image, count)
	if err != nil {
		return "", 0, r.failed(ctx, s, ReasonConfigError, err.Error(), err)
	}
	call, done := finishing(ctx)
	defer done()
	id, err = r.cfg.CRI.CreateContainer(call, string(s.sandbox.ID), config, s.sandbox.Config)
	if err != nil && ctx.Err() == nil {
		if late := r.findContainer(ctx, s, config); late != "" {
			id, err = late, nil
		}
	}
	if err != nil {
		return "", 0, r.failed(ctx, s, ReasonCreateError, criclient.Message(err)+hintAtImages(s.start.Images), err)
	}
	return id, count, nil
}

// findContainer looks for the container that a failed call has made after all;
// see [Runtime.findSandbox].
func (r *Runtime) findContainer(ctx context.Context, s starting, config *runtimeapi.ContainerConfig) string {
	list, err := r.cfg.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{
		PodSandboxId: string(s.sandbox.ID),
		LabelSelector: map[string]string{
			observed.LabelPodUID:        string(s.pod.UID),
			observed.LabelContainerName: s.c.Name,
		},
	})
	if err != nil {
		return ""
	}
	for _, c := range list {
		if c.GetPodSandboxId() == string(s.sandbox.ID) && c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED &&
			c.GetMetadata().GetAttempt() == config.Metadata.Attempt &&
			c.GetAnnotations()[observed.AnnotationHash] == config.Annotations[observed.AnnotationHash] {
			return c.GetId()
		}
	}
	return ""
}

// run starts the container. When the call fails, the container itself is asked
// whether it runs or has run: a start must not happen twice.
func (r *Runtime) run(ctx context.Context, id string) error {
	call, done := finishing(ctx)
	defer done()
	err := r.cfg.CRI.StartContainer(call, id)
	if err == nil || ctx.Err() != nil {
		return err
	}
	resp, lookErr := r.cfg.CRI.ContainerStatus(ctx, id, false)
	if lookErr != nil {
		return err
	}
	status := resp.GetStatus()
	switch status.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		// containerd calls a container that never came up exited as well.
		if status.GetStartedAt() > 0 && status.GetReason() != "StartError" {
			return nil
		}
	}
	return err
}

func (r *Runtime) failed(ctx context.Context, s starting, reason, message string, err error) *StartFailure {
	if ctx.Err() == nil { // otherwise it is no failure of the container's
		r.event(s.pod, s.c.Name, corev1.EventTypeWarning, "Failed", "Error: "+message)
		r.cfg.Hooks.StartFailed(s.pod, s.kind, s.c.Name, reason)
	}
	return &StartFailure{Reason: reason, Message: message, RetryAt: time.Now().Add(retryAfter), Err: err}
}

// imageFailed lets the image's error speak for itself: it knows the reason, and
// often when to try again.
func (r *Runtime) imageFailed(ctx context.Context, s starting, err error) *StartFailure {
	failure := &StartFailure{Reason: reasonImageUnknown, Message: err.Error(), Err: err}
	var waiting interface{ WaitingReason() string }
	if errors.As(err, &waiting) {
		failure.Reason = waiting.WaitingReason()
	}
	var retry interface{ RetryAt() time.Time }
	if errors.As(err, &retry) {
		failure.RetryAt = retry.RetryAt()
	}
	if failure.RetryAt.IsZero() {
		failure.RetryAt = time.Now().Add(retryAfter)
	}
	if ctx.Err() == nil {
		r.event(s.pod, s.c.Name, corev1.EventTypeWarning, "Failed", "Error: "+failure.Reason)
		r.cfg.Hooks.StartFailed(s.pod, s.kind, s.c.Name, failure.Reason)
	}
	return failure
}

// restartCount numbers a new instance. What the runtime knows goes first; when
// every record is gone, the log files and the pod's status still tell how many
// there were.
func restartCount(known []observed.Container, logDir string, reported corev1.PodStatus, name string) (int, error) {
	count := 0
	for _, c := range known {
		count = max(count, c.RestartCount+1)
	}
	if len(known) > 0 {
		return count, nil
	}
	entries, err := os.ReadDir(logDir)
	for _, e := range entries {
		number, _, ok := strings.Cut(e.Name(), ".log")
		if n, err := strconv.ParseUint(number, 10, 31); ok && err == nil && !e.IsDir() && isLogOf(e.Name(), number+".log") {
			count = max(count, int(n)+1)
		}
	}
	for _, list := range [][]corev1.ContainerStatus{reported.InitContainerStatuses, reported.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				count = max(count, countAfter(&list[i]))
			}
		}
	}
	return count, err
}

// countAfter numbers the instance that comes after what was reported. A status
// without an instance has counted it already where the one before was removed or
// lost while it ran.
func countAfter(c *corev1.ContainerStatus) int {
	end := c.LastTerminationState.Terminated
	switch {
	case c.RestartCount == 0 && c.ContainerID == "":
		return 0
	case c.ContainerID == "" && end != nil && (end.Reason == "RestartingAllContainers" || end.Reason == "ContainerStatusUnknown"):
		return int(c.RestartCount)
	default:
		return int(c.RestartCount) + 1
	}
}

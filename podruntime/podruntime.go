package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// CRI is what podruntime calls. Every RuntimeService of k8s.io/cri-api is one.
type CRI interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, timeout int64) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	UpdateContainerResources(ctx context.Context, id string, resources *runtimeapi.ContainerResources) error
	UpdatePodSandboxResources(ctx context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error)
}

// ImageEnsurer makes a container's image present. Of the container it looks at
// name, image and pull policy only. An error may have a method WaitingReason()
// string and one RetryAt() time.Time.
type ImageEnsurer interface {
	EnsureImage(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (observed.Image, error)
}

// ImageForgetter is an optional ability of an [ImageEnsurer]: to drop what it
// remembers of a pod, such as a back-off.
type ImageForgetter interface {
	Forget(pod observed.UID)
}

// Config needs CRI and Images; everything else has a useful zero value.
type Config struct {
	CRI    CRI
	Images ImageEnsurer
	// LogDir holds one directory per pod; default /var/log/pods.
	LogDir string
	// ContainerLogDir gets a link to the log of each container, under the name
	// that older log shippers look for. Empty: no links.
	ContainerLogDir string
	// NodeMemory is the node's memory in bytes. It scales the OOM score of
	// Burstable pods; 0 gives them all the same one.
	NodeMemory int64
	Resources  ResourcePolicy
	// SeccompDefault gives a container that asks for no seccomp profile the
	// runtime's. Otherwise it has none.
	SeccompDefault bool
	// SeccompRoot holds the profiles of type Localhost; default
	// /var/lib/kubelet/seccomp.
	SeccompRoot string
	// BackoffInitial and BackoffMax bound the crash-loop delay; default 10s, 300s.
	BackoffInitial, BackoffMax time.Duration
	// Lifecycle runs the hooks of containers, as a lifecycle.Runner does. Without
	// one a postStart hook fails its container, and a preStop hook is left out.
	Lifecycle func(ctx context.Context, call lifecycle.Call) (output string, err error)
	Log       logr.Logger
	Hooks     Hooks
}

// Hooks report work as it happens. They are called from the goroutine that does
// the work and must not block.
type Hooks struct {
	// Event is a Kubernetes Event about a container, or about the pod when
	// container is empty. The words are the kubelet's.
	Event func(pod *corev1.Pod, container, eventType, reason, message string)
	// SandboxCreated is told about each RunPodSandbox call.
	SandboxCreated func(pod *corev1.Pod, handler string, took time.Duration, err error)
	// Starting counts an attempt that no back-off held back. StartFailed follows
	// with the waiting reason, or Started when the container runs.
	Starting    func(pod *corev1.Pod, kind podspec.Kind)
	Started     func(pod *corev1.Pod, kind podspec.Kind, container string)
	StartFailed func(pod *corev1.Pod, kind podspec.Kind, container, reason string)
	// ImageVolume is told for each image volume that a starting container mounts
	// whether its image is there.
	ImageVolume func(pod *corev1.Pod, container, volume string, err error)
}

// Runtime carries out plans. Its methods may run at the same time for different
// pods; for one pod the caller calls one at a time.
type Runtime struct {
	cfg         Config
	maskedPaths []string
	rules       rules
	backoffs    backoffs
	preStops    preStops
	images      ImageForgetter // nil if Images is none
}

// New checks cfg and asks the kernel what it offers. It touches neither the runtime
// nor the disk.
func New(cfg Config) (*Runtime, error) {
	switch {
	case cfg.CRI == nil:
		return nil, errors.New("podruntime: Config.CRI is required")
	case cfg.Images == nil:
		return nil, errors.New("podruntime: Config.Images is required")
	case cfg.BackoffInitial < 0 || cfg.BackoffMax < 0:
		return nil, errors.New("podruntime: a back-off cannot be negative")
	}
	if cfg.LogDir == "" {
		cfg.LogDir = "/var/log/pods"
	}
	if !filepath.IsAbs(cfg.LogDir) {
		return nil, fmt.Errorf("podruntime: Config.LogDir %q is not an absolute path", cfg.LogDir)
	}
	cfg.LogDir = filepath.Clean(cfg.LogDir)
	if cfg.SeccompRoot == "" {
		cfg.SeccompRoot = "/var/lib/kubelet/seccomp"
	}
	if !filepath.IsAbs(cfg.SeccompRoot) {
		return nil, fmt.Errorf("podruntime: Config.SeccompRoot %q is not an absolute path", cfg.SeccompRoot)
	}
	rules, err := newRules(cfg.Resources, cfg.NodeMemory)
	if err != nil {
		return nil, err
	}
	if cfg.BackoffInitial == 0 {
		cfg.BackoffInitial = 10 * time.Second
	}
	if cfg.BackoffMax == 0 {
		cfg.BackoffMax = 300 * time.Second
	}
	if cfg.Lifecycle == nil {
		cfg.Lifecycle = noHooks
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	cfg.Hooks.fill()
	images, _ := cfg.Images.(ImageForgetter)
	return &Runtime{
		images:      images,
		cfg:         cfg,
		maskedPaths: maskedPaths(),
		rules:       rules,
		backoffs:    backoffs{initial: cfg.BackoffInitial, limit: cfg.BackoffMax},
	}, nil
}

// fill makes every hook callable.
func (h *Hooks) fill() {
	if h.Event == nil {
		h.Event = func(*corev1.Pod, string, string, string, string) {}
	}
	if h.SandboxCreated == nil {
		h.SandboxCreated = func(*corev1.Pod, string, time.Duration, error) {}
	}
	if h.Starting == nil {
		h.Starting = func(*corev1.Pod, podspec.Kind) {}
	}
	if h.Started == nil {
		h.Started = func(*corev1.Pod, podspec.Kind, string) {}
	}
	if h.StartFailed == nil {
		h.StartFailed = func(*corev1.Pod, podspec.Kind, string, string) {}
	}
	if h.ImageVolume == nil {
		h.ImageVolume = func(*corev1.Pod, string, string, error) {}
	}
}

// ForgetPod drops what is remembered of a pod. Call it when the pod is gone.
func (r *Runtime) ForgetPod(uid observed.UID) {
	r.backoffs.forget(uid)
	r.preStops.forget(uid)
	if r.images != nil {
		r.images.Forget(uid)
	}
}

// Backoff answers why a container is not restarted: it waits until the given
// time, because its crash-loop delay has grown to delay. A zero until means that
// nothing waits now. ok is false when the container has never been delayed.
func (r *Runtime) Backoff(uid observed.UID, container string) (until time.Time, delay time.Duration, ok bool) {
	d, ok := r.backoffs.get(uid, container)
	return d.until, d.delay, ok && d.delay > 0
}

func (r *Runtime) event(pod *corev1.Pod, container, eventType, reason, message string) {
	if pod != nil {
		r.cfg.Hooks.Event(pod, container, eventType, reason, message)
	}
}

func (r *Runtime) log(pod *corev1.Pod) logr.Logger {
	return r.cfg.Log.WithValues("pod", pod.Namespace+"/"+pod.Name, "podUID", string(pod.UID))
}

// podName is how errors name a pod.
func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// podLogDir is where the logs of the pod's containers are. The parts become one
// path element, so none of them may leave it: a UID can come from a manifest.
func (r *Runtime) podLogDir(pod *corev1.Pod) (string, error) {
	name := pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	if name != filepath.Base(name) || !filepath.IsLocal(name) {
		return "", fmt.Errorf("make log directory of pod %s: %q is not a file name; give the pod a namespace, name and UID without slashes", podName(pod), name)
	}
	return filepath.Join(r.cfg.LogDir, name), nil
}

// makeLogDir makes the directory of one container's logs.
func (r *Runtime) makeLogDir(pod *corev1.Pod, container string) (string, error) {
	dir, err := r.podLogDir(pod)
	if err != nil {
		return "", err
	}
	if container != filepath.Base(container) || !filepath.IsLocal(container) {
		return "", fmt.Errorf("make log directory of container %q of pod %s: the name is not a file name", container, podName(pod))
	}
	dir = filepath.Join(dir, container)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make log directory of container %s of pod %s: %w", container, podName(pod), err)
	}
	return dir, nil
}

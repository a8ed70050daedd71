package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/userns"
	"github.com/kubeletkit/kubeletkit/volume"
)

// Runtime carries out plans. [podruntime.Runtime] satisfies it.
type Runtime interface {
	EnsureSandbox(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan, spec podruntime.SandboxSpec) (podruntime.Sandbox, error)
	Converge(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan, sandbox podruntime.Sandbox, spec func(podruntime.Start) (podruntime.ContainerSpec, error)) podruntime.Result
	StopPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod, grace *int64) error
	Resize(ctx context.Context, pod *corev1.Pod, seen observed.Pod, plan podruntime.Plan, cgroup podruntime.PodCgroup) ([]podruntime.Actuated, error)
	ForgetPod(uid observed.UID)
}

// Volumes makes a pod's volumes present. The volume room satisfies it.
type Volumes interface {
	// SetUp returns each volume by its name in the pod.
	SetUp(ctx context.Context, pod *corev1.Pod) (map[string]volume.Mounted, error)
	// SubPath returns the host path of a part of a volume, which no link leads out of.
	SubPath(ctx context.Context, req volume.SubPath) (hostPath string, err error)
	TearDown(ctx context.Context, uid observed.UID) error
}

// Statuses remembers what was reported of each pod. [status.Store] satisfies it.
type Statuses interface {
	Get(uid observed.UID) (corev1.PodStatus, bool)
	// Set returns once what can't be rebuilt is on disk.
	Set(pod *corev1.Pod, st corev1.PodStatus) (changed bool, err error)
	Remove(uid observed.UID) error
}

// Names is how a pod sees the names of the network. podnet satisfies it.
type Names interface {
	// SandboxHostname is the pod's host name, FQDN if the pod asks for that.
	SandboxHostname(pod *corev1.Pod) (string, error)
	// DNS is the content of resolv.conf; nil leaves it to the runtime.
	DNS(pod *corev1.Pod) (*runtimeapi.DNSConfig, error)
	// Hosts is the content of /etc/hosts.
	Hosts(pod *corev1.Pod, ips []string) ([]byte, error)
}

// Cgroups are the boxes of the pods' resources. The cgroup room satisfies it.
type Cgroups interface {
	// Ensure returns the parent for the cgroups of the pod's containers.
	Ensure(ctx context.Context, pod *corev1.Pod) (parent string, err error)
	// Remove ends what still runs in the pod's cgroup.
	Remove(ctx context.Context, uid observed.UID) error
	// All are the pods that have a cgroup.
	All() ([]observed.UID, error)
	// Busy reports whether a process runs in the pod's cgroup.
	Busy(ctx context.Context, uid observed.UID) (bool, error)
	// Pod is the cgroup of one pod, for a resize.
	Pod(pod *corev1.Pod) podruntime.PodCgroup
}

// Allocations remember what containers were given, over restarts of the agent.
// The allocation room satisfies it.
type Allocations interface {
	Actuated(uid observed.UID, container string) (corev1.ResourceRequirements, bool)
	SetActuated(uid observed.UID, container string, given corev1.ResourceRequirements) error
	// Progress is told the end of each pass over a pod.
	Progress(pod *corev1.Pod, seen observed.Pod, resizeErr error, now time.Time)
	Conditions(uid observed.UID) []corev1.PodCondition
	Forget(uid observed.UID, now time.Time) error
	// Pods are all that there is a record of.
	Pods() []observed.UID
}

// UserNamespaces gives pods users of their own. The userns room satisfies it.
type UserNamespaces interface {
	Map(uid observed.UID) (userns.Mapping, error)
	Release(uid observed.UID) error
}

// Config of a [Syncer]. Runtime, Volumes, Statuses and RootDir are required.
type Config struct {
	Runtime  Runtime
	Volumes  Volumes
	Statuses Statuses
	// Names is optional: without it the runtime decides about names.
	Names Names
	// Cgroups is optional: without it the runtime decides where containers are
	// accounted.
	Cgroups Cgroups
	// UserNamespaces is optional: without it a pod that wants one gets an error.
	UserNamespaces UserNamespaces
	// Allocations is optional: without it nothing is ever resized. With it pods
	// have to come with the resources that they were granted.
	Allocations Allocations
	// Objects and Services are what environments are made from; see [podenv.Inputs].
	Objects  podenv.Objects
	Services podenv.Services
	// Allocatable is what the node has for pods.
	Allocatable corev1.ResourceList
	// Handler gives the runtime handler of the pod's RuntimeClass, and what it can
	// do. The default knows only the runtime's default handler.
	Handler func(pod *corev1.Pod) (name string, can observed.HandlerFeatures, err error)
	// RootDir is the kubelet's root directory; pods live under RootDir/pods.
	RootDir string
	// HostIPs are the node's addresses, primary first.
	HostIPs []string
	// RuntimeName is the scheme of container IDs in statuses; default "containerd".
	RuntimeName func() string
	// NetworkReady says why a sandbox can't get a network yet; nil when it can.
	// Pods on the host network do not wait for it. The default never waits.
	NetworkReady func() error
	// SyncAt asks for another SyncPod of the pod at the given time, beside the
	// usual resync. activeDeadlineSeconds needs it. Default: none.
	SyncAt func(uid observed.UID, at time.Time)
	Log    logr.Logger // default discards
	Hooks  Hooks       // default no-ops
}

// Hooks report the recipe's steps as they happen.
type Hooks struct {
	// Step is called after each step that did something.
	Step func(pod *corev1.Pod, step string)
	// Planned is called for each plan that is carried out and changes something.
	Planned func(pod *corev1.Pod, plan podruntime.Plan)
	// Event is a Kubernetes Event of the pod.
	Event func(pod *corev1.Pod, eventType, reason, message string)
}

// Syncer knows the recipe. It implements the Syncer of podworkers. Calls for
// different pods may run at the same time, calls for one pod may not.
type Syncer struct {
	cfg Config

	mu struct {
		sync.Mutex
		// failures says why containers did not start the last time it was
		// tried, by container name.
		failures map[observed.UID]map[string]status.Failure
	}
}

// New checks cfg and returns a Syncer.
func New(cfg Config) (*Syncer, error) {
	if cfg.Runtime == nil || cfg.Volumes == nil || cfg.Statuses == nil || cfg.RootDir == "" {
		return nil, errors.New("podsync: Runtime, Volumes, Statuses and RootDir are required")
	}
	if cfg.RuntimeName == nil {
		cfg.RuntimeName = func() string { return "containerd" }
	}
	if cfg.NetworkReady == nil {
		cfg.NetworkReady = func() error { return nil }
	}
	if cfg.Handler == nil {
		cfg.Handler = func(pod *corev1.Pod) (string, observed.HandlerFeatures, error) {
			if class := pod.Spec.RuntimeClassName; class != nil && *class != "" {
				return "", observed.HandlerFeatures{}, fmt.Errorf("runtime class %q is not known on this node", *class)
			}
			return "", observed.HandlerFeatures{}, nil
		}
	}
	if cfg.SyncAt == nil {
		cfg.SyncAt = func(observed.UID, time.Time) {}
	}
	if cfg.Hooks.Step == nil {
		cfg.Hooks.Step = func(*corev1.Pod, string) {}
	}
	if cfg.Hooks.Planned == nil {
		cfg.Hooks.Planned = func(*corev1.Pod, podruntime.Plan) {}
	}
	if cfg.Hooks.Event == nil {
		cfg.Hooks.Event = func(*corev1.Pod, string, string, string) {}
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	s := &Syncer{cfg: cfg}
	s.mu.failures = map[observed.UID]map[string]status.Failure{}
	return s, nil
}

// SyncPod brings the pod's containers to what its spec asks for. It returns
// done when the pod has ended: its containers will not run again, or its
// deadline has passed. The status is reported before anything is started, so
// what must survive a crash is on disk before it matters. What has to end ends
// although the disk can't be written: it may be full of that very pod.
func (s *Syncer) SyncPod(ctx context.Context, pod *corev1.Pod, seen observed.Pod) (done bool, err error) {
	now := time.Now()
	uid := observed.UID(pod.UID)
	last := s.last(pod)
	seen = status.Recall(pod, seen, last)
	in := s.input(pod, seen, false, now)
	st, err := s.report(pod, in)
	if in.Verdict != nil {
		s.cfg.Hooks.Event(pod, corev1.EventTypeNormal, in.Verdict.Reason, in.Verdict.Message)
	}
	if status.IsTerminal(status.Decide(in)) {
		s.late(pod, err)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if _, at := status.DeadlineExceeded(pod, st, now); !at.IsZero() {
		s.cfg.SyncAt(uid, at)
	}

	plan := podruntime.ComputePodActions(reported(pod, st), seen, podruntime.Inputs{
		Actuated: s.actuated(uid), Unfinished: unfinished(in.Resize),
	})
	if plan.Done && pod.DeletionTimestamp == nil {
		// Not all containers have an end that says how the pod went, but what did
		// not run will not: policy Never allows no second sandbox.
		in.Verdict = &status.Failure{Reason: reasonSandboxLost, Message: messageSandboxLost}
		_, err := s.report(pod, in)
		s.late(pod, err)
		return true, nil
	}
	if plan.CreateSandbox && !pod.Spec.HostNetwork {
		if err := s.cfg.NetworkReady(); err != nil {
			s.cfg.Hooks.Event(pod, corev1.EventTypeWarning, "NetworkNotReady", "network is not ready: "+err.Error())
			return false, &notYetError{fmt.Errorf("network is not ready: %w", err), now.Add(networkRetry)}
		}
	}
	if plan.KillPod || plan.CreateSandbox || plan.ResizePod || len(plan.Kill)+len(plan.Start)+len(plan.Reset) > 0 {
		s.cfg.Hooks.Planned(pod, plan)
	}
	err = s.converge(ctx, pod, seen, plan, now)
	if len(plan.Reset) > 0 && err == nil {
		s.cfg.SyncAt(uid, time.Now()) // all is removed, and starts again
	}
	return false, err
}

// reported is the pod with what was just reported of it: a restart of all its
// containers is a condition that the plan goes by.
func reported(pod *corev1.Pod, st corev1.PodStatus) *corev1.Pod {
	shown := *pod
	shown.Status = st
	return &shown
}

// actuated is nil where nothing is resized.
func (s *Syncer) actuated(uid observed.UID) func(string) (corev1.ResourceRequirements, bool) {
	if s.cfg.Allocations == nil {
		return nil
	}
	return func(container string) (corev1.ResourceRequirements, bool) {
		return s.cfg.Allocations.Actuated(uid, container)
	}
}

// The words of a pod that can't go on because its sandbox has ended.
const (
	reasonSandboxLost  = "SandboxLost"
	messageSandboxLost = "The pod sandbox ended before all containers had run, and restart policy Never allows no other one"
)

// networkRetry is how soon a pod looks again at a network that was not ready.
const networkRetry = time.Second

// notYetError carries the time at which another try makes sense.
type notYetError struct {
	err error
	at  time.Time
}

func (e *notYetError) Error() string      { return e.err.Error() }
func (e *notYetError) Unwrap() error      { return e.err }
func (e *notYetError) RetryAt() time.Time { return e.at }

// remember keeps the failures of this pass and drops those of containers that
// started. What was not tried still waits for what it waited for. It reports
// whether the pod has any failure.
func (s *Syncer) remember(pod *corev1.Pod, result podruntime.Result) bool {
	uid := observed.UID(pod.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.mu.failures[uid]
	if all == nil {
		all = map[string]status.Failure{}
	}
	for _, name := range result.Started {
		delete(all, name)
	}
	for name, f := range result.Failures {
		all[name] = status.Failure{Reason: f.Reason, Message: f.Message}
	}
	if len(all) == 0 {
		delete(s.mu.failures, uid)
		return false
	}
	s.mu.failures[uid] = all
	return true
}

func (s *Syncer) failuresOf(uid observed.UID) map[string]status.Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]status.Failure, len(s.mu.failures[uid]))
	for name, f := range s.mu.failures[uid] {
		all[name] = f
	}
	return all
}

// last is what was reported of the pod before.
func (s *Syncer) last(pod *corev1.Pod) corev1.PodStatus {
	if st, ok := s.cfg.Statuses.Get(observed.UID(pod.UID)); ok {
		return st
	}
	return pod.Status
}

func (s *Syncer) input(pod *corev1.Pod, seen observed.Pod, terminal bool, now time.Time) status.Input {
	in := status.Input{
		Pod:         pod,
		Seen:        seen,
		Last:        s.last(pod),
		Failures:    s.failuresOf(observed.UID(pod.UID)),
		Terminal:    terminal,
		Now:         now,
		RuntimeName: s.cfg.RuntimeName(),
		HostIPs:     s.cfg.HostIPs,
	}
	if s.cfg.Allocations != nil {
		s.addResources(pod, &in)
	}
	if exceeded, _ := status.DeadlineExceeded(pod, in.Last, now); exceeded {
		in.Verdict = &status.Failure{Reason: status.ReasonDeadlineExceeded, Message: status.MessageDeadlineExceeded}
	}
	return in
}

// report publishes what is true of the pod now and returns what counts: a status
// that would take back something final is refused by the store, and the old one
// stands.
func (s *Syncer) report(pod *corev1.Pod, in status.Input) (corev1.PodStatus, error) {
	_, err := s.cfg.Statuses.Set(pod, status.Generate(in))
	if errors.Is(err, status.ErrRejected) {
		s.cfg.Log.V(1).Info("status stands", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "reason", err.Error())
		err = nil
	}
	return s.last(pod), err
}

// withSandbox is seen with the sandbox that was just made, so that the pod is
// reported ready to start containers before a slow image pull.
func withSandbox(seen observed.Pod, pod *corev1.Pod, plan podruntime.Plan, sandbox podruntime.Sandbox, now time.Time) observed.Pod {
	made := observed.Sandbox{
		ID: sandbox.ID, Attempt: plan.Attempt, Ready: true, CreatedAt: now,
		HostNetwork: pod.Spec.HostNetwork, IPs: sandbox.IPs, NetworkReported: len(sandbox.IPs) > 0,
	}
	old := slices.Clone(seen.Sandboxes)
	for i := range old {
		old[i].Ready = false // stopped, or it would not have been replaced
	}
	seen.Sandboxes = slices.Insert(old, 0, made)
	return seen
}

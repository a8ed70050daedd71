package observed

import (
	"slices"
	"time"
)

// UID is a pod's identity. Names come back under another UID; a UID never does.
type UID string

// ContainerID is the runtime's own ID, without the "containerd://" scheme that
// the Kubernetes API puts before it.
type ContainerID string

// SandboxID is the runtime's ID of a pod sandbox.
type SandboxID string

// Seq orders the observations of one pod. A number is drawn before the runtime
// is asked, so an observation with a Seq above s has seen every change that was
// complete when s was drawn. Clocks are not compared. Zero is before everything.
type Seq uint64

// State is where a container is in its life.
type State uint8

// The states of CRI v1. Unknown is the zero value: the runtime could not tell.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is one container instance as the runtime reports it. A restarted
// container is a new instance with a new ID.
type Container struct {
	ID      ContainerID
	Sandbox SandboxID
	// Name is the container's name in the pod spec (label
	// io.kubernetes.container.name).
	Name string
	// RestartCount is the number of instances of this name before this one
	// (annotation io.kubernetes.container.restartCount, else the CRI attempt).
	RestartCount int
	State        State
	// Image is the reference as the runtime resolved it, ImageID the local ID.
	// ImageRef is the digested reference, which the Kubernetes API calls imageID.
	Image    string
	ImageID  string
	ImageRef string
	// Hash is the container hash this instance was made from, lower-case hex;
	// empty when the instance carries none.
	Hash string
	// Times are zero when they have not happened, or were not asked for: a
	// listing fills CreatedAt only.
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	// Reason and Message are the runtime's, with Message replaced by the
	// termination message where the container left one.
	Reason  string
	Message string
	// LogPath is absolute on the host.
	LogPath string
	// Annotations are those the instance was created with. The agent that made
	// it left there what is needed to stop it without its pod at hand.
	Annotations map[string]string
	Details
}

// Details are what a runtime tells of one container when it is asked for it, and
// an old runtime does not tell at all: containerd 1.6 has Mounts only.
type Details struct {
	// User is nil when it is not told.
	User *User
	// Resources are the limits in force, nil when they are not told.
	Resources *Resources
	Mounts    []Mount
	// StopSignal is spelled as in the Kubernetes API, SIGTERM or SIGRTMIN+3. It
	// is empty when it is not told.
	StopSignal string
}

// User is what the first process of a container runs as.
type User struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// Resources are a container's limits in the kernel's units; 0 is not told.
type Resources struct {
	CPUShares           int64 // weight; 1024 for one processor
	CPUQuota, CPUPeriod int64 // microseconds
	MemoryLimit         int64 // bytes
}

// Mount is how a host path, or the content of an image, is seen in a container.
type Mount struct {
	ContainerPath               string
	ReadOnly, RecursiveReadOnly bool
	// Image is the reference of a mounted image, with its digest if that is told.
	Image string
}

// Image is an image that is present on the node.
type Image struct {
	// ID is what a container is created with.
	ID string
	// UID is the user that the image names by number, nil when it names none or
	// names one by UserName.
	UID      *int64
	UserName string
	// Size is in bytes, 0 when the runtime does not tell.
	Size uint64
}

// Sandbox is a pod's shared environment: its namespaces and its network.
type Sandbox struct {
	ID SandboxID
	// Attempt counts the sandboxes a pod has had, from 0.
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// HostNetwork is true when the sandbox uses the node's network namespace.
	HostNetwork bool
	// IPs has the primary address first. Empty on the host network, when the
	// sandbox has lost its network, and in a listing.
	IPs []string
	// NetworkReported is true when the runtime said anything about the network;
	// only then do empty IPs mean that there is no address.
	NetworkReported bool
	// RuntimeHandler is the handler the sandbox runs under; empty is the default.
	RuntimeHandler string
}

// Pod is all that the runtime holds for one pod UID.
type Pod struct {
	UID       UID
	Namespace string
	Name      string
	// Sandboxes and Containers are newest first, by creation time.
	Sandboxes  []Sandbox
	Containers []Container
}

// Exists reports whether the runtime holds anything for the pod.
func (p Pod) Exists() bool { return len(p.Sandboxes) > 0 || len(p.Containers) > 0 }

// HasRunning reports whether any container of the pod runs, or may: an Unknown
// container has to be stopped before anyone can say that it does not run.
func (p Pod) HasRunning() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return c.State == Running || c.State == Unknown
	})
}

// HasReadySandbox reports whether any sandbox of the pod is ready.
func (p Pod) HasReadySandbox() bool {
	return slices.ContainsFunc(p.Sandboxes, func(s Sandbox) bool { return s.Ready })
}

// Sandbox returns the newest sandbox, ready or not.
func (p Pod) Sandbox() (Sandbox, bool) {
	if len(p.Sandboxes) == 0 {
		return Sandbox{}, false
	}
	return p.Sandboxes[0], true
}

// Container returns the newest instance of the named container.
func (p Pod) Container(name string) (Container, bool) {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return Container{}, false
	}
	return p.Containers[i], true
}

// Instances returns all instances of the named container, newest first.
func (p Pod) Instances(name string) []Container {
	var all []Container
	for _, c := range p.Containers {
		if c.Name == name {
			all = append(all, c)
		}
	}
	return all
}

// IPs returns the addresses of the newest ready sandbox, primary first.
func (p Pod) IPs() []string {
	for _, s := range p.Sandboxes {
		if s.Ready {
			return s.IPs
		}
	}
	return nil
}

// Sort puts sandboxes and containers newest first. Equal creation times are
// ordered by attempt, then by ID, so that the result does not depend on the
// order of the runtime's answer. A container that was only created, and has a
// lower restart count than another one of its name, comes last: its call took so
// long that it was made once more (containerd issue 4604), and started now it
// would run beside its successor.
func (p *Pod) Sort() {
	slices.SortFunc(p.Sandboxes, func(a, b Sandbox) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		if a.Attempt != b.Attempt {
			return int(b.Attempt) - int(a.Attempt)
		}
		return compare(a.ID, b.ID)
	})
	slices.SortFunc(p.Containers, func(a, b Container) int {
		if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
			return c
		}
		if a.RestartCount != b.RestartCount {
			return b.RestartCount - a.RestartCount
		}
		return compare(a.ID, b.ID)
	})
	p.latecomersLast()
}

func (p *Pod) latecomersLast() {
	var late []Container
	for _, c := range p.Containers {
		if c.State == Created && slices.ContainsFunc(p.Containers, func(o Container) bool {
			return o.Name == c.Name && o.RestartCount > c.RestartCount
		}) {
			late = append(late, c)
		}
	}
	if len(late) == 0 {
		return
	}
	rest := slices.DeleteFunc(p.Containers, func(c Container) bool {
		return slices.ContainsFunc(late, func(l Container) bool { return l.ID == c.ID })
	})
	p.Containers = append(rest, late...)
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

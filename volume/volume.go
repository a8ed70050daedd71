package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

var (
	// ErrUnsupported is wrapped by the error for a volume that this version
	// cannot set up.
	ErrUnsupported = errors.New("volume: not supported by this version")
	// ErrMounted is wrapped by the error of a removal that would have gone
	// through a mount point that this room did not make. Nothing was removed.
	ErrMounted = errors.New("volume: something is still mounted")
	// ErrOutside is wrapped by the error for a subPath that leads out of its
	// volume, over a symlink for example.
	ErrOutside = errors.New("volume: the path leads out of the volume")
)

// Error says which volume of which pod has the problem. Its text is fit for the
// pod's FailedMount event.
type Error struct {
	Pod    string // namespace/name
	Volume string
	// Refresh is true for a volume that was set up before: it stays as it was, and
	// [Volumes.SetUp] returns it all the same.
	Refresh bool
	Err     error
}

func (e *Error) Error() string {
	doing := ""
	if e.Refresh {
		doing = "refresh: "
	}
	return fmt.Sprintf("pod %s volume %s: %s%v", e.Pod, e.Volume, doing, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// RefreshOnly reports whether err, from [Volumes.SetUp], is about nothing but
// refreshes: every volume is there, some with older contents. Containers may run.
func RefreshOnly(err error) bool {
	switch e := err.(type) {
	case *Error:
		return e.Refresh
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(one error) bool { return !RefreshOnly(one) })
	case interface{ Unwrap() error }:
		return RefreshOnly(e.Unwrap())
	default:
		return false
	}
}

// Objects is where config maps and secrets come from. The error for one that does
// not exist satisfies IsNotFound of k8s.io/apimachinery/pkg/api/errors. What is
// returned is shared and only read.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Config has a useful zero value except for RootDir.
type Config struct {
	RootDir string // required, absolute: the kubelet's root, for example /var/lib/kubelet
	// Objects is asked at every SetUp. Without it each reference to a config map
	// or secret is an error.
	Objects Objects
	// Allocatable is what the node has for pods: the bound of volumes in memory,
	// and the downward API's answer for a container without a limit.
	Allocatable corev1.ResourceList
	// NoTmpfs keeps in plain directories what belongs into memory: secrets,
	// projected volumes, emptyDir volumes of medium Memory. It is for programs that
	// may not mount, such as tests, and says that their disk is good enough.
	NoTmpfs bool
	Log     logr.Logger // default discards
	Hooks   Hooks       // default no-ops
}

// Hooks report work as it happens.
type Hooks struct {
	// Event is a Kubernetes Event of the pod.
	Event func(pod *corev1.Pod, eventType, reason, message string)
	// SetUp is called for each volume of each [Volumes.SetUp], refreshes too.
	// Plugins have the kubelet's names, kubernetes.io/configmap for example.
	SetUp func(plugin string, took time.Duration, err error)
	// TornDown is called for each [Volumes.TearDown] that found something to do.
	TornDown func(took time.Duration, err error)
	// Written is called for each volume whose files were written or replaced.
	Written func(plugin string)
}

// Volumes sets up and takes down the volumes of one node's pods. It keeps no
// list of them: the directories are the record, so a restart loses nothing.
type Volumes struct {
	cfg    Config
	pods   string // <root>/pods
	kernel kernel
	check  func(path string, kind corev1.HostPathType) error // checkHostPath
	checks singleflight.Group                                // by kind and path
	turns  turns
}

// New checks cfg. It creates no directory.
func New(cfg Config) (*Volumes, error) {
	if !filepath.IsAbs(cfg.RootDir) {
		return nil, fmt.Errorf("volume: Config.RootDir is %q, want an absolute path", cfg.RootDir)
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Event == nil {
		cfg.Hooks.Event = func(*corev1.Pod, string, string, string) {}
	}
	if cfg.Hooks.SetUp == nil {
		cfg.Hooks.SetUp = func(string, time.Duration, error) {}
	}
	if cfg.Hooks.TornDown == nil {
		cfg.Hooks.TornDown = func(time.Duration, error) {}
	}
	if cfg.Hooks.Written == nil {
		cfg.Hooks.Written = func(string) {}
	}
	return &Volumes{cfg: cfg, pods: filepath.Join(cfg.RootDir, "pods"), kernel: system{}, check: checkHostPath}, nil
}

// Mounted is a volume that is ready to be mounted into containers.
type Mounted struct {
	// HostPath is empty for an image volume, which the runtime mounts by itself.
	HostPath string
	// ReadOnly volumes are mounted read-only whatever the container says.
	ReadOnly bool
	// SELinuxRelabel allows the runtime to relabel the path: it is the pod's own.
	SELinuxRelabel bool
}

// SetUp makes the volumes that some container of pod mounts, brings the contents
// of those that were made before up to date, and returns them by name. Volumes
// that no container mounts are not touched. Calling it again is cheap and writes
// nothing where nothing has changed.
//
// The error joins one [*Error] per volume with a problem. If [RefreshOnly] holds
// for it, the returned volumes are all that the pod needs; else some are missing.
func (v *Volumes) SetUp(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	uid := observed.UID(pod.UID)
	if err := checkName(string(uid)); err != nil {
		return nil, fmt.Errorf("set up volumes of pod %s/%s: UID %w", pod.Namespace, pod.Name, err)
	}
	done, err := v.turns.take(ctx, uid)
	if err != nil {
		return nil, err
	}
	defer done()

	mounted := podspec.MountedVolumes(pod)
	ready := make(map[string]Mounted, len(mounted))
	var errs []error
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !mounted[vol.Name] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		one, usable, err := v.setUp(ctx, pod, vol)
		v.cfg.Hooks.SetUp(pluginOf(vol), time.Since(start), err)
		if err != nil {
			errs = append(errs, &Error{Pod: pod.Namespace + "/" + pod.Name, Volume: vol.Name, Refresh: usable, Err: err})
		}
		if usable {
			ready[vol.Name] = one
		}
	}
	return ready, errors.Join(errs...)
}

// setUp makes one volume. It is usable despite an error if only a refresh failed.
func (v *Volumes) setUp(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (one Mounted, usable bool, err error) {
	if err := checkName(vol.Name); err != nil {
		return Mounted{}, false, fmt.Errorf("volume name %w", err)
	}
	switch {
	case vol.HostPath != nil:
		path, err := v.setUpHostPath(ctx, vol.HostPath)
		return Mounted{HostPath: path}, err == nil, err
	case vol.EmptyDir != nil || vol.VolumeSource == corev1.VolumeSource{}:
		path, err := v.setUpEmptyDir(ctx, pod, vol)
		return Mounted{HostPath: path, SELinuxRelabel: true}, err == nil, err
	case hasFiles(vol):
		path, usable, err := v.setUpFiles(ctx, pod, vol)
		return Mounted{HostPath: path, ReadOnly: true, SELinuxRelabel: true}, usable, err
	case vol.Image != nil:
		return Mounted{ReadOnly: true}, true, nil
	default:
		return Mounted{}, false, unsupported(vol)
	}
}

// checkName refuses what would not be one plain directory entry. A static pod's
// UID comes from its manifest, so it is not to be trusted as a path.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return fmt.Errorf("%q cannot be the name of a directory", name)
	}
	return nil
}

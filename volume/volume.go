package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

var (
	// ErrUnsupported is wrapped by the error for a volume that this version
	// cannot set up.
	ErrUnsupported = errors.New("volume: not supported by this version")
	// ErrMounted is wrapped by the error of a removal that would have gone
	// through a mount point. Nothing was removed.
	ErrMounted = errors.New("volume: something is still mounted")
)

// Error says which volume of which pod has the problem. Its text is fit for the
// pod's FailedMount event.
type Error struct {
	Pod    string // namespace/name
	Volume string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("pod %s volume %s: %v", e.Pod, e.Volume, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Config has a useful zero value except for RootDir.
type Config struct {
	RootDir string      // required, absolute: the kubelet's root, for example /var/lib/kubelet
	Log     logr.Logger // default discards
}

// Volumes sets up and takes down the volumes of one node's pods. It keeps no
// list of them: the directories are the record, so a restart loses nothing.
type Volumes struct {
	pods   string // <root>/pods
	log    logr.Logger
	mounts func(dir string) ([]string, error)                // mountsBelow
	check  func(path string, kind corev1.HostPathType) error // checkHostPath
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
	return &Volumes{pods: filepath.Join(cfg.RootDir, "pods"), log: cfg.Log, mounts: mountsBelow, check: checkHostPath}, nil
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

// SetUp makes the volumes that some container of pod mounts and returns them by
// name. Volumes that no container mounts are not touched.
// Calling it again is cheap and changes nothing that is in order. The error
// joins one [*Error] per volume that could not be set up.
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
		one, err := v.setUp(ctx, uid, vol)
		if err != nil {
			errs = append(errs, &Error{Pod: pod.Namespace + "/" + pod.Name, Volume: vol.Name, Err: err})
			continue
		}
		ready[vol.Name] = one
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return ready, nil
}

func (v *Volumes) setUp(ctx context.Context, uid observed.UID, vol *corev1.Volume) (Mounted, error) {
	switch {
	case vol.HostPath != nil:
		path, err := v.setUpHostPath(ctx, vol.HostPath)
		return Mounted{HostPath: path}, err
	case vol.EmptyDir != nil:
		path, err := v.setUpEmptyDir(uid, vol.Name, vol.EmptyDir)
		return Mounted{HostPath: path, SELinuxRelabel: true}, err
	case vol.VolumeSource == corev1.VolumeSource{}:
		// The API server's default for a volume without a source.
		path, err := v.setUpEmptyDir(uid, vol.Name, &corev1.EmptyDirVolumeSource{})
		return Mounted{HostPath: path, SELinuxRelabel: true}, err
	default:
		return Mounted{}, fmt.Errorf("%w: use an emptyDir or a hostPath volume", ErrUnsupported)
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

// turns lets calls for one pod happen one after the other, so that no set-up
// writes into a directory that is being taken down. The zero value is ready.
type turns struct {
	mu   sync.Mutex
	busy map[observed.UID]chan struct{}
}

// take waits for uid's turn and returns the function that ends it.
func (t *turns) take(ctx context.Context, uid observed.UID) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other, wait := t.busy[uid]
		if !wait {
			if t.busy == nil {
				t.busy = map[observed.UID]chan struct{}{}
			}
			t.busy[uid] = mine
		}
		t.mu.Unlock()
		if !wait {
			return func() {
				t.mu.Lock()
				delete(t.busy, uid)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for other volume work of pod %s: %w", uid, ctx.Err())
		}
	}
}

package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeKernel mounts on paper.
type fakeKernel struct {
	table []mountPoint
	calls []string
	// errors that the next calls give, first one first
	mountErrors []error
	bindError   error
	tableError  error
	stuck       bool // unmounting does nothing
	// unmountError comes after that many unmounts; onUnmount is called at each.
	unmounts     int
	unmountError error
	onUnmount    func()
}

func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return path
}

func (k *fakeKernel) mount(dir, fstype, options string) error {
	k.calls = append(k.calls, fmt.Sprintf("mount %s %s %s", filepath.Base(dir), fstype, options))
	if len(k.mountErrors) > 0 {
		err := k.mountErrors[0]
		k.mountErrors = k.mountErrors[1:]
		return err
	}
	k.table = append(k.table, mountPoint{resolved(dir), fstype})
	return nil
}

func (k *fakeKernel) bind(_ *os.File, target string, readOnly bool) error {
	k.calls = append(k.calls, fmt.Sprintf("bind %s %v", filepath.Base(target), readOnly))
	k.table = append(k.table, mountPoint{resolved(target), "ext4"})
	return k.bindError // as where it is bound and could not be made read-only
}

func (k *fakeKernel) unmount(at string) error {
	k.calls = append(k.calls, "unmount "+filepath.Base(at))
	if k.onUnmount != nil {
		k.onUnmount()
	}
	if k.stuck {
		return nil
	}
	if k.unmountError != nil {
		if k.unmounts == 0 {
			return k.unmountError
		}
		k.unmounts--
	}
	for i, m := range slices.Backward(k.table) {
		if m.at == at {
			k.table = slices.Delete(k.table, i, i+1)
			break
		}
	}
	k.table = slices.DeleteFunc(k.table, func(m mountPoint) bool { return m.at != at && m.below(at) })
	return nil
}

func (k *fakeKernel) mountsBelow(dir string) ([]mountPoint, error) {
	var found []mountPoint
	for _, m := range k.table {
		if m.below(dir) {
			found = append(found, m)
		}
	}
	return found, k.tableError
}

func (k *fakeKernel) mountedAt(dir string) (string, error) {
	for _, m := range slices.Backward(k.table) {
		if m.at == resolved(dir) {
			return m.fstype, nil
		}
	}
	return "", nil
}

// newFake returns a room whose mounts are on paper.
func newFake(t testing.TB, cfg Config) (*Volumes, *fakeKernel) {
	t.Helper()
	cfg.RootDir = t.TempDir()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{}
	v.kernel = k
	return v, k
}

// mounting is a pod u1 with one container that mounts all of vols.
func mounting(vols ...corev1.Volume) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID("u1")}}
	c := corev1.Container{Name: "app"}
	for _, v := range vols {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name})
	}
	pod.Spec.Volumes = vols
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

func emptyDirOf(name string, medium corev1.StorageMedium) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}
}

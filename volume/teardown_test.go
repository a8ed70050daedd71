package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNothingIsRemovedUnderAMount(t *testing.T) {
	v, err := New(Config{RootDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p", UID: "u1"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v"}}}}
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(paths["v"].HostPath, "data")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v.mounts = func(dir string) ([]string, error) {
		if !strings.HasSuffix(dir, "/pods/u1") {
			t.Errorf("asked for mounts below %s", dir)
		}
		return []string{paths["v"].HostPath}, nil
	}
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), paths["v"].HostPath) {
		t.Errorf("TearDown = %v, want ErrMounted with the path", err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Errorf("after TearDown: %v", err)
	}
	unreadable := errors.New("no table")
	v.mounts = func(string) ([]string, error) { return nil, unreadable }
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, unreadable) {
		t.Errorf("TearDown = %v: without the mount table nothing may be removed", err)
	}
	v.mounts = mountsBelow
	if err := v.TearDown(t.Context(), "u1"); err != nil {
		t.Errorf("TearDown after the unmount = %v", err)
	}
}

// A hostPath on a dead network file system must not keep its pod from ending.
func TestAHostPathThatHangsHoldsNobody(t *testing.T) {
	v, err := New(Config{RootDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	defer close(dead)
	ctx, cancel := context.WithCancel(t.Context())
	v.check = func(string, corev1.HostPathType) error {
		cancel()
		<-dead
		return nil
	}
	pod := &corev1.Pod{}
	pod.UID, pod.Name, pod.Namespace = "u1", "web", "default"
	kind := corev1.HostPathDirectory
	pod.Spec.Volumes = []corev1.Volume{{Name: "nfs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt/nfs", Type: &kind}}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "nfs"}}}}
	_, err = v.SetUp(ctx, pod)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "/mnt/nfs") {
		t.Errorf("SetUp = %v, want the context's error with the path", err)
	}
	if err := v.TearDown(t.Context(), "u1"); err != nil {
		t.Errorf("TearDown = %v", err)
	}
}

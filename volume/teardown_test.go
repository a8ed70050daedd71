package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNothingIsRemovedUnderAMount(t *testing.T) {
	v, k := newFake(t, Config{})
	pod := mounting(emptyDirOf("v", ""), emptyDirOf("m", corev1.StorageMediumMemory))
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(paths["v"].HostPath, "data")
	if err := os.WriteFile(data, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := mountPoint{resolved(paths["v"].HostPath), "tmpfs2"}
	k.table = append(k.table, foreign)
	k.calls = nil
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), foreign.at) {
		t.Errorf("TearDown = %v, want ErrMounted with the path", err)
	}
	if _, err := os.Stat(data); err != nil || len(k.calls) > 0 {
		t.Errorf("after TearDown: %v, calls %v; want nothing touched", err, k.calls)
	}
	unreadable := errors.New("no table")
	k.tableError = unreadable
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, unreadable) {
		t.Errorf("TearDown = %v: without the mount table nothing may be removed", err)
	}
	k.tableError, k.stuck = nil, true
	k.table = k.table[:1]
	if err := v.TearDown(t.Context(), "u1"); !errors.Is(err, ErrMounted) {
		t.Errorf("TearDown = %v: an unmount that did not work must not be believed", err)
	}
	if _, err := os.Stat(data); err != nil {
		t.Errorf("after TearDown: %v", err)
	}
	k.stuck = false
	for range 2 {
		if err := v.TearDown(t.Context(), "u1"); err != nil {
			t.Errorf("TearDown after the unmount = %v", err)
		}
	}
	if len(k.table) != 0 {
		t.Errorf("mounts left: %v", k.table)
	}
}

func TestMountsAreKnownByTheirPlaceAndKind(t *testing.T) {
	at := func(path, fstype string) mountPoint { return mountPoint{"/pods/u/" + path, fstype} }
	mounts := []mountPoint{
		at("volumes/kubernetes.io~secret/a", tmpfs),
		at("volumes/kubernetes.io~secret/a", tmpfs), // twice, after two crashes
		at("volumes/kubernetes.io~empty-dir/h", hugetlbfs),
		at("volume-subpaths/a/app/0", tmpfs),
		at("volume-subpaths/a/app/0/copied", "nfs"),
		at("volume-subpaths/a/app/1", "ext4"),
		at("volume-subpaths/a/app/10/x", "nfs"), // its own mount, in no bind
		at("volumes/kubernetes.io~empty-dir/d", "ext4"),
		at("volumes/kubernetes.io~empty-dir/h/inside", tmpfs),
		at("volumes/kubernetes.io~configmap/c", tmpfs), // never on memory
		at("volumes/kubernetes.io~csi/pvc/mount", "ext4"),
		at("volume-subpaths/a", tmpfs),
		{"/pods/u", tmpfs},
	}
	ours, others := sortMounts("/pods/u", mounts)
	want := []string{
		"/pods/u/volume-subpaths/a/app/1",
		"/pods/u/volume-subpaths/a/app/0",
		"/pods/u/volumes/kubernetes.io~empty-dir/h",
		"/pods/u/volumes/kubernetes.io~secret/a",
		"/pods/u/volumes/kubernetes.io~secret/a",
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("ours (-want +got):\n%s", diff)
	}
	if want := append(slices.Clone(mounts[6:7]), mounts[7:]...); !slices.Equal(others, want) {
		t.Errorf("others = %v, want %v", others, want)
	}
}

// TestTearDownIsCutOff ends it before each unmount and between the directories. What
// is left is neither ready nor lost: it can be set up again, and taken down.
func TestTearDownIsCutOff(t *testing.T) {
	for n := range 5 {
		v, k := newFake(t, Config{})
		pod := mounting(emptyDirOf("m", corev1.StorageMediumMemory), emptyDirOf("n", corev1.StorageMediumMemory), emptyDirOf("d", ""))
		if _, err := v.SetUp(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		switch n {
		case 0, 1:
			k.unmounts = n
			k.unmountError = syscall.EBUSY
		case 2:
			k.onUnmount = cancel
		case 3:
			if err := os.RemoveAll(filepath.Join(v.pods, "u1/plugins")); err != nil {
				t.Fatal(err)
			}
			cancel()
		case 4:
			k.table = nil // a reboot
		}
		if err := v.TearDown(ctx, "u1"); (err == nil) != (n == 4) {
			t.Errorf("%d: TearDown = %v", n, err)
		}
		cancel()
		k.unmountError, k.onUnmount = nil, nil
		if n%2 == 0 {
			if _, err := v.SetUp(t.Context(), pod); err != nil || len(k.table) != 2 {
				t.Errorf("%d: SetUp = %v, mounts %v", n, err, k.table)
			}
		}
		if err := v.TearDown(t.Context(), "u1"); err != nil || len(k.table) != 0 {
			t.Errorf("%d: the next TearDown = %v, mounts %v", n, err, k.table)
		}
		if left, _ := os.ReadDir(filepath.Join(v.pods, "u1")); len(left) != 0 {
			t.Errorf("%d: left %v", n, left)
		}
	}
}

// A hostPath on a dead network file system must not keep its pod from ending.
func TestAHostPathThatHangsHoldsNobody(t *testing.T) {
	kind := corev1.HostPathDirectory
	pod := mounting(corev1.Volume{Name: "nfs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/mnt/nfs", Type: &kind}}})

	t.Run("it ends with its context", func(t *testing.T) {
		v, _ := newFake(t, Config{})
		dead := make(chan struct{})
		defer close(dead)
		ctx, cancel := context.WithCancel(t.Context())
		v.check = func(string, corev1.HostPathType) error {
			cancel()
			<-dead
			return nil
		}
		_, err := v.SetUp(ctx, pod)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "/mnt/nfs") {
			t.Errorf("SetUp = %v, want the context's error with the path", err)
		}
		if err := v.TearDown(t.Context(), "u1"); err != nil {
			t.Errorf("TearDown = %v", err)
		}
	})
	t.Run("it ends by itself, and many tries leave one check behind", func(t *testing.T) {
		v, _ := newFake(t, Config{})
		synctest.Test(t, func(t *testing.T) {
			dead := make(chan struct{})
			defer close(dead)
			var checks atomic.Int32
			v.check = func(string, corev1.HostPathType) error {
				checks.Add(1)
				<-dead
				return nil
			}
			for range 3 {
				start := time.Now()
				if _, err := v.SetUp(t.Context(), pod); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != hostPathAnswers {
					t.Errorf("SetUp = %v after %v", err, time.Since(start))
				}
			}
			if n := checks.Load(); n != 1 {
				t.Errorf("%d checks were started, want 1", n)
			}
		})
	})
}

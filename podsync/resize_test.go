package podsync_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeletkit/kubeletkit/allocation"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

// box is a pod's cgroup whose quota follows the pod's container.
type box struct {
	pod   *corev1.Pod
	quota int64
	fail  error
}

func (b *box) Usage(context.Context) (int64, error) { return 0, nil }
func (b *box) Limits(context.Context) (now, want podruntime.PodLimits, err error) {
	quota := b.pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue() * 100
	return podruntime.PodLimits{CPUQuota: b.quota}, podruntime.PodLimits{CPUQuota: quota}, nil
}
func (b *box) Set(_ context.Context, l podruntime.PodLimits) error {
	if b.fail != nil {
		return b.fail
	}
	b.quota = l.CPUQuota
	return nil
}

// resizing is a pod that runs with half a processor in a box of its own.
func resizing(t *testing.T) (w *world, b *box, grant func(cpu string) *corev1.Pod) {
	w, g := standing(t)
	alloc, err := allocation.New(allocation.Config{})
	w.must(err)
	w.alloc = alloc
	b = &box{quota: 50_000}
	g.box = b
	w.rebuild()
	grant = func(cpu string) *corev1.Pod {
		pod := newPod(corev1.RestartPolicyAlways)
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		_, err := alloc.Set(pod, time.Now())
		w.must(err)
		_, err = alloc.Evaluate(time.Now(), func(*corev1.Pod) allocation.Answer { return allocation.Answer{OK: true} })
		w.must(err)
		b.pod = pod
		return pod
	}
	w.passes(grant("500m"), 2)
	return w, b, grant
}

// wantResize compares what is reported: the limit in force, and of the resize.
func (w *world) wantResize(pod *corev1.Pod, limit, said string) {
	w.t.Helper()
	st := w.reported(pod)
	if got := st.ContainerStatuses[0].Resources.Limits.Cpu().String(); got != limit {
		w.t.Errorf("the limit in force is %s, want %s", got, limit)
	}
	got := ""
	for _, c := range st.Conditions {
		if c.Type == corev1.PodResizeInProgress {
			got = "under way " + c.Reason
		}
	}
	if got != said {
		w.t.Errorf("of the resize is said %q, want %q", got, said)
	}
}

func TestWhatIsInForceIsReportedByAnotherLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, grant := resizing(t)
		w.syncAt = time.Time{}
		pod := grant("1")
		w.passes(pod, 1)
		if !w.syncAt.Equal(time.Now()) || b.quota != 100_000 {
			t.Errorf("the next look is at %v, want now; the quota is %d", w.syncAt, b.quota)
		}
		w.syncAt = time.Time{}
		w.passes(pod, 1)
		w.wantResize(pod, "1", "")
		if !w.syncAt.IsZero() {
			t.Error("and one more")
		}
	})
}

// The kernel may refuse the pod's cgroup what it has given the containers.
func TestACgroupThatIsLeftBehindFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, back := range []bool{false, true} {
			w, b, grant := resizing(t)
			b.fail = errors.New("device or resource busy")
			pod := grant("250m")
			if _, err := w.pass(pod); !errors.Is(err, b.fail) {
				t.Fatalf("SyncPod = %v", err)
			}
			if _, err := w.pass(pod); !errors.Is(err, b.fail) {
				t.Fatalf("the second SyncPod = %v", err)
			}
			w.wantResize(pod, "250m", "under way Error")
			b.fail = nil
			want, limit := int64(25_000), "250m"
			if back {
				pod, want, limit = grant("500m"), 50_000, "500m"
			}
			w.passes(pod, 2)
			w.wantResize(pod, limit, "")
			if b.quota != want {
				t.Errorf("the pod's quota is %d, want %d", b.quota, want)
			}
		}
	})
}

// A cgroup that has grown for a container that then could not shrinks again when
// the resize is taken back, although no container changes.
func TestAResizeThatIsTakenBackHalfway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, grant := resizing(t)
		refusal := errors.New("no")
		clear := w.rt.Inject(critest.Fault{Method: "UpdateContainerResources", Err: refusal})
		if _, err := w.pass(grant("1")); err == nil {
			t.Fatal("the resize succeeded")
		}
		clear()
		if b.quota != 100_000 {
			t.Fatalf("the pod's quota is %d", b.quota)
		}
		pod := grant("500m")
		w.passes(pod, 2)
		w.wantResize(pod, "500m", "")
		if b.quota != 50_000 {
			t.Errorf("the pod's quota is %d, want that of before", b.quota)
		}
	})
}

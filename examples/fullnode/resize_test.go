package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

// asking gives the pod's container requests and limits of processor time.
func asking(request, limit string, restarts ...corev1.ResourceName) podOption {
	return func(pod *corev1.Pod) {
		c := &pod.Spec.Containers[0]
		c.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
		}
		for _, name := range restarts {
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
		}
	}
}

// quota is what the runtime has in force for the pod's container, in microseconds.
func (w *world) quota(uid types.UID, name string) int64 {
	w.Helper()
	id, ok := w.running(uid, name)
	if !ok {
		return -1
	}
	w.looking.Store(true)
	defer w.looking.Store(false)
	resp, err := w.rt.ContainerStatus(context.Background(), id, false)
	w.must(err)
	return resp.GetStatus().GetResources().GetLinux().GetCpuQuota()
}

func (w *world) resizeCondition(uid types.UID, kind corev1.PodConditionType) string {
	for _, c := range w.status(uid).Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return "true " + c.Reason
		}
	}
	return ""
}

func (w *world) allocatedCPU(uid types.UID) string {
	st := w.status(uid)
	if len(st.ContainerStatuses) == 0 {
		return ""
	}
	return st.ContainerStatuses[0].AllocatedResources.Cpu().String()
}

// limitInForce is what is reported of the runtime's value.
func (w *world) limitInForce(uid types.UID) string {
	st := w.status(uid)
	if len(st.ContainerStatuses) == 0 || st.ContainerStatuses[0].Resources == nil {
		return ""
	}
	return st.ContainerStatuses[0].Resources.Limits.Cpu().String()
}

func TestResizeOfAPod(t *testing.T) {
	t.Run("a container gets more without a restart", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "200m")))
			w.within(5*time.Second, "running", func() bool { return w.quota("u", "app") == 20_000 })
			before, _ := w.running("u", "app")
			w.static.put(makePod("web", "u", asking("150m", "400m")))
			w.within(5*time.Second, "resized", func() bool { return w.quota("u", "app") == 40_000 })
			w.within(5*time.Second, "reported", func() bool {
				return w.allocatedCPU("u") == "150m" && w.limitInForce("u") == "400m" && w.resizeCondition("u", corev1.PodResizeInProgress) == ""
			})
			if after, _ := w.running("u", "app"); after != before {
				t.Errorf("container %s was replaced by %s", before, after)
			}
		})
	})
	t.Run("a container that asks for it is restarted", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "200m", corev1.ResourceCPU)))
			w.within(5*time.Second, "running", func() bool { return w.quota("u", "app") == 20_000 })
			before, _ := w.running("u", "app")
			w.static.put(makePod("web", "u", asking("100m", "400m", corev1.ResourceCPU)))
			w.within(20*time.Second, "restarted with more", func() bool { return w.quota("u", "app") == 40_000 })
			if after, _ := w.running("u", "app"); after == before {
				t.Error("the container was not restarted")
			}
			w.within(5*time.Second, "counted", func() bool { return w.status("u").ContainerStatuses[0].RestartCount == 1 })
		})
	})
	t.Run("what does not fit waits, also over a restart of the agent, and can be taken back", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "200m")))
			w.within(5*time.Second, "running", func() bool { return w.quota("u", "app") == 20_000 })
			w.static.put(makePod("web", "u", asking("9000", "9000")))
			deferred := func() bool { return w.resizeCondition("u", corev1.PodResizePending) == "true Deferred" }
			w.within(5*time.Second, "deferred", deferred)
			w.end()
			w.start()
			w.within(40*time.Second, "deferred again", deferred)
			if got := w.allocatedCPU("u"); got != "100m" {
				t.Errorf("allocated = %q, want 100m as before", got)
			}
			if got := w.quota("u", "app"); got != 20_000 {
				t.Errorf("quota = %d, want it untouched", got)
			}
			w.static.put(makePod("web", "u", asking("100m", "200m")))
			w.within(5*time.Second, "taken back", func() bool { return w.resizeCondition("u", corev1.PodResizePending) == "" })
		})
	})
	t.Run("the end of another pod makes room, though its manifest stays", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "1")))
			most := fmt.Sprintf("%dm", runtime.NumCPU()*1000-500)
			job := makePod("job", "j", containers(container("app", "exit", "0", "20s")), policy(corev1.RestartPolicyNever), asking(most, most))
			w.static.put(job)
			w.within(5*time.Second, "both run", func() bool { return w.runs("u", "app") && w.runs("j", "app") })
			w.static.put(makePod("web", "u", asking("600m", "1")))
			w.within(5*time.Second, "deferred", func() bool { return w.resizeCondition("u", corev1.PodResizePending) == "true Deferred" })
			more := job.DeepCopy()
			asking("9000", "9000")(more)
			w.static.put(more)
			w.within(5*time.Second, "deferred, too", func() bool { return w.resizeCondition("j", corev1.PodResizePending) == "true Deferred" })
			w.within(30*time.Second, "the job has ended", func() bool { return w.phase("j") == corev1.PodSucceeded })
			w.within(5*time.Second, "granted", func() bool {
				return w.allocatedCPU("u") == "600m" && w.resizeCondition("u", corev1.PodResizePending) == ""
			})
			w.within(time.Second, "all answered", func() bool {
				waiting, underWay := w.agent.handler.alloc.Counts()
				return len(waiting) == 0 && underWay == 0
			})
		})
	})
	t.Run("nothing is granted before everybody who runs here is met", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "1")))
			most := fmt.Sprintf("%dm", runtime.NumCPU()*1000-500)
			w.api.put(makePod("big", "b", asking(most, most)))
			w.within(5*time.Second, "both run", func() bool { return w.runs("u", "app") && w.runs("b", "app") })
			w.end()
			w.api.speaks(false)
			w.start()
			w.within(5*time.Second, "taken over", func() bool { return w.allocatedCPU("u") == "100m" })
			w.static.put(makePod("web", "u", asking("600m", "1")))
			w.always(5*time.Minute, time.Second, "not granted", func() bool { return w.allocatedCPU("u") == "100m" })
			w.api.speaks(true)
			w.within(time.Minute, "deferred", func() bool { return w.resizeCondition("u", corev1.PodResizePending) == "true Deferred" })
			w.always(time.Minute, time.Second, "both go on", func() bool {
				return w.runs("u", "app") && w.runs("b", "app") && w.phase("b") == corev1.PodRunning
			})
		})
	})
	t.Run("a refusal of the runtime is a condition, and tried again", func(t *testing.T) {
		story(t, critest.Config{}, func(t *testing.T, w *world) {
			w.start()
			w.static.put(makePod("web", "u", asking("100m", "200m")))
			w.within(5*time.Second, "running", func() bool { return w.quota("u", "app") == 20_000 })
			clear := w.inject(critest.Fault{Method: "UpdateContainerResources", Err: context.DeadlineExceeded})
			w.static.put(makePod("web", "u", asking("100m", "300m")))
			w.within(5*time.Second, "said", func() bool { return w.resizeCondition("u", corev1.PodResizeInProgress) == "true Error" })
			clear()
			w.within(20*time.Second, "resized", func() bool { return w.quota("u", "app") == 30_000 })
			w.within(5*time.Second, "over", func() bool { return w.resizeCondition("u", corev1.PodResizeInProgress) == "" })
		})
	})
}

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// listing is an observer that remembers what ran at the last relist. The first
// relist is done before the hall opens, so names are known before pods arrive.
type listing struct {
	*criclient.Observer
	// reported is what was reported of a pod before.
	reported func(observed.UID) (corev1.PodStatus, bool)

	last   atomic.Pointer[[]observed.Pod]
	listed chan struct{} // closed at the first list
	once   sync.Once
}

func newListing(o *criclient.Observer, reported func(observed.UID) (corev1.PodStatus, bool)) *listing {
	return &listing{Observer: o, reported: reported, listed: make(chan struct{})}
}

// RunningPods implements pleg.Runtime.
func (l *listing) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	pods, err := l.Observer.RunningPods(ctx)
	if err == nil {
		l.last.Store(&pods)
		l.once.Do(func() { close(l.listed) })
	}
	return pods, err
}

func (l *listing) running() []observed.Pod {
	if pods := l.last.Load(); pods != nil {
		return *pods
	}
	return nil
}

// InspectPod implements pleg.Runtime. The first look after a start knows nothing
// of the pod but what was reported before, and that is asked for by its ID: a
// runtime that was restarted has been seen to answer with empty lists at first
// (rancher/rke2#3723), and a pod that runs must not be taken for one that ended.
func (l *listing) InspectPod(ctx context.Context, last observed.Pod) (observed.Pod, error) {
	if last.Exists() {
		return l.Observer.InspectPod(ctx, last)
	}
	st, _ := l.reported(last.UID)
	for _, statuses := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for _, cs := range statuses {
			if _, id, ok := strings.Cut(cs.ContainerID, "://"); ok && cs.State.Running != nil {
				last.Containers = append(last.Containers, observed.Container{ID: observed.ContainerID(id), Name: cs.Name, State: observed.Running})
			}
		}
	}
	pod, err := l.Observer.InspectPod(ctx, last)
	if err == nil && pod.HasRunning() && len(pod.Sandboxes) == 0 {
		return observed.Pod{}, fmt.Errorf("inspect pod %s: the runtime lists no sandbox, but a container of the pod runs; its lists are not complete yet", last.UID)
	}
	return pod, err
}

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestDescribe(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	looping := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for _, c := range []struct {
		st   corev1.PodStatus
		want string
	}{
		{corev1.PodStatus{}, " Ready=Unknown"},
		{corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, "Failed Ready=Unknown"},
		{corev1.PodStatus{
			Phase:                 corev1.PodRunning,
			Conditions:            []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "first", State: ended}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "a", State: running}, {Name: "b", State: looping}, {Name: "c"}},
		}, "Running Ready=False first=Terminated(3) a=Running b=CrashLoopBackOff c=Waiting"},
	} {
		if got := describe(c.st); got != c.want {
			t.Errorf("describe = %q, want %q", got, c.want)
		}
	}
}

func TestAWarningIsSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		b := &builder{log: funcr.New(func(string, string) { said++ }, funcr.Options{})}
		web, other := makePod("web", "web"), makePod("other", "other")
		for range 120 {
			b.event(web, "", corev1.EventTypeWarning, "NetworkNotReady", "network is not ready")
			b.event(other, "", corev1.EventTypeWarning, "NetworkNotReady", "network is not ready")
			time.Sleep(time.Second)
		}
		b.event(web, "app", corev1.EventTypeWarning, "NetworkNotReady", "network is not ready")
		b.event(nil, "", corev1.EventTypeWarning, "NetworkNotReady", "network is not ready")
		if want := 2*2 + 2; said != want {
			t.Errorf("%d warnings, want %d", said, want)
		}
		time.Sleep(2 * sayAgain)
		b.event(nil, "", corev1.EventTypeWarning, "Other", "another")
		if n := len(b.echoes.mu.said); n != 1 {
			t.Errorf("%d warnings are remembered, want the one of the last minute", n)
		}
	})
}

func TestPullLimits(t *testing.T) {
	for _, c := range []struct {
		name     string
		parallel *int32
		serial   bool
		want     int
	}{
		{"one at a time", nil, true, 1},
		{"no limit", nil, false, -1},
		{"a limit", ptr.To[int32](3), false, 3},
	} {
		var o options
		o.config.MaxParallelImagePulls, o.config.SerializeImagePulls = c.parallel, &c.serial
		if got := maxParallelPulls(o); got != c.want {
			t.Errorf("%s: maxParallelPulls = %d, want %d", c.name, got, c.want)
		}
	}
	for qps, want := range map[int32]float64{0: -1, 7: 7} {
		var o options
		o.config.RegistryPullQPS = &qps
		if got := pullQPS(o); got != want {
			t.Errorf("pullQPS of %d = %v, want %v", qps, got, want)
		}
	}
}

package pleg_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	rt := newFake()
	for _, tt := range []struct {
		name string
		cfg  pleg.Config
		want string
	}{
		{"no runtime", pleg.Config{}, "Runtime is required"},
		{"a negative duration", pleg.Config{Runtime: rt, InspectTimeout: -1}, "InspectTimeout is negative"},
		{"a negative number of inspectors", pleg.Config{Runtime: rt, Inspectors: -1}, "Inspectors is negative"},
		{"slow is faster than fast", pleg.Config{Runtime: rt, RelistEvery: time.Minute, SlowRelistEvery: time.Second}, "SlowRelistEvery"},
		{"never healthy", pleg.Config{Runtime: rt, RelistThreshold: time.Second}, "RelistThreshold"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := pleg.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want an error about %q", err, tt.want)
			}
		})
	}
}

func TestExitIsSeenWithinOnePeriod(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		equal(t, "first look", r.events(), []pleg.PodLifecycleEvent{
			event("a", pleg.ContainerStarted, "c1"), event("a", pleg.ContainerStarted, "a-sb"),
		})
		rt.set("a", container("c1", observed.Exited))
		time.Sleep(time.Second)
		equal(t, "exit", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
		if p, ok := r.Cache().Get("a"); !ok || p.Containers[0].State != observed.Exited {
			t.Errorf("Get = %v, %v, want the exited container", p, ok)
		}
		rt.remove("a")
		time.Sleep(time.Second)
		equal(t, "removal", r.events(), []pleg.PodLifecycleEvent{
			event("a", pleg.ContainerRemoved, "c1"), event("a", pleg.ContainerDied, "a-sb"), event("a", pleg.ContainerRemoved, "a-sb"),
		})
		if p, ok := r.Cache().Get("a"); ok {
			t.Errorf("Get = %v, want nothing for a pod that is gone", p)
		}
	})
}

func TestNothingChangedCostsNoInspection(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c2", observed.Running), container("c1", observed.Exited))
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		time.Sleep(time.Minute)
		if got := rt.looksAt("a"); got != 1 {
			t.Errorf("%d inspections, want 1", got)
		}
		if got := rt.listCount(); got < 60 || got > 61 {
			t.Errorf("%d lists in a minute, want one per second", got)
		}
	})
}

func TestCacheHasTheObservationBeforeTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newFake()
		g, err := pleg.New(pleg.Config{Runtime: rt})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		for _, step := range []struct {
			state  observed.State
			events int
		}{{observed.Running, 2}, {observed.Exited, 1}} {
			rt.set("a", container("c1", step.state))
			for range step.events {
				e := <-g.Watch()
				if p, ok := g.Cache().Get("a"); !ok || p.Containers[0].State != step.state {
					t.Errorf("after %v the cache has %v, %v", e, p, ok)
				}
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestCreatedContainersMakeNoEvent(t *testing.T) {
	rt := newFake()
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		rt.set("a", container("c1", observed.Created))
		time.Sleep(time.Second)
		equal(t, "created", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerStarted, "a-sb")})
		rt.set("a", container("c1", observed.Running))
		time.Sleep(time.Second)
		equal(t, "started", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerStarted, "c1")})
	})
}

func TestFailedListChangesNothing(t *testing.T) {
	rt := newFake()
	rt.set("a", container("c1", observed.Running))
	var relistErr error
	cfg := pleg.Config{Runtime: rt, Hooks: pleg.Hooks{Relisted: func(_ time.Duration, _ int, err error) { relistErr = err }}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		r.events()
		down := errors.New("down")
		rt.do(func() { rt.listErr = down; delete(rt.pods, "a") })
		time.Sleep(3 * time.Minute)
		equal(t, "down", r.events(), nil)
		if _, ok := r.Cache().Get("a"); !ok {
			t.Error("the pod left the cache on a failed list")
		}
		if !errors.Is(relistErr, down) {
			t.Errorf("hook got %v, want %v", relistErr, down)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy = %v before the threshold", err)
		}
		time.Sleep(2 * time.Second)
		if err := r.Healthy(); err == nil || !strings.HasPrefix(err.Error(), "pleg was last seen active 3m") || !strings.HasSuffix(err.Error(), " ago; threshold is 3m0s") {
			t.Errorf("Healthy = %v after the threshold", err)
		}
		if err := r.Relist(t.Context()); !errors.Is(err, down) {
			t.Errorf("Relist = %v, want %v", err, down)
		}
		rt.do(func() { rt.listErr = nil })
		time.Sleep(time.Second)
		if got := len(r.events()); got != 4 {
			t.Errorf("%d events when the list works again, want died and removed twice", got)
		}
		if err := r.Healthy(); err != nil {
			t.Errorf("Healthy = %v", err)
		}
	})
}

func TestHungListHoldsUpNothingElse(t *testing.T) {
	rt := newFake()
	inBubble(t, pleg.Config{Runtime: rt}, func(t *testing.T, r *running) {
		rt.do(func() { rt.listHang = make(chan struct{}) })
		time.Sleep(2 * time.Second)
		rt.set("a", container("c1", observed.Running))
		if p, err := r.Wait(t.Context(), "a", r.MarkDirty("a")); err != nil || !p.HasRunning() {
			t.Errorf("Wait = %v, %v", p, err)
		}
		lists := rt.listCount()
		time.Sleep(2 * time.Minute)
		if got := rt.listCount(); got != lists {
			t.Errorf("%d lists beside one that hangs, want none", got-lists)
		}
		time.Sleep(2 * time.Minute)
		if got := rt.listCount(); got != lists+1 {
			t.Errorf("%d lists after the threshold, want another try", got-lists)
		}
	})
}

func TestNotHealthyBeforeTheFirstList(t *testing.T) {
	g, err := pleg.New(pleg.Config{Runtime: newFake()})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Healthy(); err == nil || err.Error() != "pleg has yet to be successful" {
		t.Errorf("Healthy = %v", err)
	}
}

func TestRelistReturnsWhenTheLooksAreDone(t *testing.T) {
	rt := newFake()
	rt.takes = 3 * time.Second
	inBubble(t, pleg.Config{Runtime: rt, RelistEvery: 30 * time.Second}, func(t *testing.T, r *running) {
		for _, uid := range []observed.UID{"a", "b", "c"} {
			rt.set(uid, container(string(uid), observed.Running))
		}
		if err := r.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(r.Cache().Running()); got != 3 {
			t.Errorf("%d pods in the cache, want 3", got)
		}
		bad := errors.New("bad")
		rt.do(func() { rt.failing["b"] = bad })
		rt.set("b", container("b", observed.Exited))
		if err := r.Relist(t.Context()); !errors.Is(err, bad) || !strings.Contains(err.Error(), "default/pod-b") {
			t.Errorf("Relist = %v, want %v and the pod's name", err, bad)
		}
		rt.do(func() { delete(rt.failing, "b") })
		if err := r.Relist(t.Context()); err != nil {
			t.Error(err)
		}
		if p, _ := r.Cache().Get("b"); p.HasRunning() {
			t.Errorf("after Relist the cache has %v", p)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.MarkDirty("a")
		if err := r.Relist(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Relist = %v, want its ctx's end", err)
		}
	})
}

func TestSlowReaderFindsEventsMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newFake()
		g, err := pleg.New(pleg.Config{Runtime: rt})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- g.Run(ctx) }()
		const times = 1000
		for i := range times { // one container flaps, as no honest runtime does
			state := observed.Running
			if i%2 == 1 {
				state = observed.Exited
			}
			rt.set("a", container("c1", state))
			if _, err := g.Wait(ctx, "a", g.MarkDirty("a")); err != nil {
				t.Fatal(err)
			}
		}
		rt.set("b", container("c2", observed.Running))
		time.Sleep(time.Second)
		if got := rt.looksAt("a"); got < times {
			t.Errorf("%d looks, want %d: nobody reads, and that delays none", got, times)
		}
		var got []pleg.PodLifecycleEvent
		for range 5 {
			got = append(got, <-g.Watch())
		}
		equal(t, "merged", got, []pleg.PodLifecycleEvent{
			event("a", pleg.ContainerStarted, "a-sb"),
			event("a", pleg.ContainerStarted, "c1"), event("a", pleg.ContainerDied, "c1"),
			event("b", pleg.ContainerStarted, "c2"), event("b", pleg.ContainerStarted, "b-sb"),
		})
		select {
		case e := <-g.Watch():
			t.Errorf("another event: %v", e)
		case <-time.After(time.Minute):
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, ok := <-g.Watch(); ok {
			t.Error("Watch is open after Run")
		}
	})
}

func TestRunOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, pleg.Config{Runtime: newFake()})
		synctest.Wait()
		if err := r.Run(t.Context()); err == nil {
			t.Error("a second Run returned nil")
		}
		r.stop(t)
		if err := r.Relist(t.Context()); !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("Relist after Run = %v, want ErrStopped", err)
		}
	})
}

package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestEventLeadsToALookAtOnce(t *testing.T) {
	for name, mark := range map[string]pleg.Mark{
		"by pod":                   {Pod: "a"},
		"by container":             {Container: "c1"},
		"by sandbox":               {Container: "a-sb"},
		"by unknown container":     {Container: "nobody's"},
		"by nothing":               {},
		"by pod before everything": {Pod: "a", Container: "nobody's"},
	} {
		t.Run(name, func(t *testing.T) {
			rt, events := newFake(), &fakeEvents{}
			rt.set("a", container("c1", observed.Running))
			inBubble(t, pleg.Config{Runtime: rt, Events: events}, func(t *testing.T, r *running) {
				r.events()
				time.Sleep(10 * time.Second)
				rt.set("a", container("c1", observed.Exited))
				events.tell(mark)
				equal(t, "exit", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
			})
		})
	}
}

func TestUnknownContainersLeadToOneRelistPerPeriod(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	inBubble(t, pleg.Config{Runtime: rt, Events: events}, func(t *testing.T, r *running) {
		time.Sleep(5 * time.Second)
		before := rt.listCount()
		for i := range 1000 {
			events.tell(pleg.Mark{Container: observed.ContainerID(fmt.Sprint(i))})
			time.Sleep(10 * time.Millisecond)
		}
		if got := rt.listCount() - before; got < 10 || got > 12 {
			t.Errorf("%d lists in 10 s, want one per second", got)
		}
	})
}

func TestHealthyStreamStretchesTheRelist(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	inBubble(t, pleg.Config{Runtime: rt, Events: events}, func(t *testing.T, r *running) {
		before := rt.listCount()
		time.Sleep(5 * time.Minute)
		if got := rt.listCount() - before; got != 10 {
			t.Errorf("%d lists in 5 minutes, want 10", got)
		}
		events.breakOff(errors.New("away"))
		synctest.Wait()
		before = rt.listCount()
		time.Sleep(time.Minute)
		if got := rt.listCount() - before; got < 59 || got > 60 {
			t.Errorf("%d lists in a minute without a stream, want one per second", got)
		}
	})
}

func TestLostEventIsFoundAndCounted(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	rt.set("a", container("c1", observed.Running))
	var unannounced []observed.UID
	cfg := pleg.Config{Runtime: rt, Events: events, Hooks: pleg.Hooks{
		Unannounced: func(uid observed.UID) { unannounced = append(unannounced, uid) },
	}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		r.events()
		time.Sleep(45 * time.Second)
		rt.set("a", container("c1", observed.Exited)) // and no event
		time.Sleep(30 * time.Second)
		equal(t, "within the slow period", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
		time.Sleep(2 * time.Second)
		if len(unannounced) != 1 || unannounced[0] != "a" {
			t.Errorf("unannounced = %v, want a", unannounced)
		}
		before := rt.listCount()
		time.Sleep(10 * time.Second)
		if got := rt.listCount() - before; got != 10 {
			t.Errorf("%d lists in 10 s, want the fast pace", got)
		}
		time.Sleep(time.Minute)
		before = rt.listCount()
		time.Sleep(time.Minute)
		if got := rt.listCount() - before; got != 2 {
			t.Errorf("%d lists in a minute after 60 clean ones, want the slow pace", got)
		}
	})
}

func TestEventOnItsWayIsNotLost(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	rt.set("a", container("c1", observed.Running))
	cfg := pleg.Config{Runtime: rt, Events: events, Hooks: pleg.Hooks{
		Unannounced: func(uid observed.UID) { t.Errorf("%s counted as unannounced", uid) },
	}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		r.events()
		rt.set("a", container("c1", observed.Exited))
		if err := r.Relist(t.Context()); err != nil { // faster than the event
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		events.tell(pleg.Mark{Container: "c1"})
		time.Sleep(time.Minute)
	})
}

func TestChangesWhileTheStreamWasAwayAreNotBlamedOnIt(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	rt.set("a", container("c1", observed.Running))
	cfg := pleg.Config{Runtime: rt, Events: events, Hooks: pleg.Hooks{
		Unannounced: func(uid observed.UID) { t.Errorf("%s counted as unannounced", uid) },
	}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		r.events()
		events.breakOff(nil)
		synctest.Wait()
		rt.set("a", container("c1", observed.Exited))
		time.Sleep(150 * time.Millisecond) // the stream is back, and a relist with it
		equal(t, "back", r.events(), []pleg.PodLifecycleEvent{event("a", pleg.ContainerDied, "c1")})
		time.Sleep(time.Minute)
	})
}

func TestStreamThatBreaksDuringTheGraceIsNotBlamed(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	rt.set("a", container("c1", observed.Running))
	cfg := pleg.Config{Runtime: rt, Events: events, Hooks: pleg.Hooks{
		Unannounced: func(uid observed.UID) { t.Errorf("%s counted as unannounced", uid) },
	}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		r.events()
		rt.set("a", container("c1", observed.Exited))
		if err := r.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		events.breakOff(nil)
		time.Sleep(time.Minute)
	})
}

func TestStreamIsOpenedForEver(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	var connected, ended atomic.Int64
	cfg := pleg.Config{Runtime: rt, Events: events, Hooks: pleg.Hooks{
		StreamConnected: func() { connected.Add(1) },
		StreamEnded:     func(error) { ended.Add(1) },
	}}
	inBubble(t, cfg, func(t *testing.T, r *running) {
		time.Sleep(time.Minute)
		events.breakOff(errors.New("away"))
		time.Sleep(time.Hour)
		opens := events.openings()[1:] // the first was good
		if got := len(opens); got < 100 || got > 250 {
			t.Errorf("%d tries in an hour, want them about 22 s apart", got)
		}
		for i := 1; i < len(opens); i++ {
			if gap := opens[i].Sub(opens[i-1]); gap > 30*time.Second || gap < 50*time.Millisecond {
				t.Errorf("try %d came %v after the one before", i, gap)
			}
		}
		if gap := opens[1].Sub(opens[0]); gap > 200*time.Millisecond {
			t.Errorf("second try %v after the first, want a quick one", gap)
		}
		lists := rt.listCount()
		events.breakOff(nil)
		time.Sleep(31 * time.Second)
		if connected.Load() != 2 || ended.Load() < 100 {
			t.Errorf("connected %d times, ended %d times", connected.Load(), ended.Load())
		}
		if got := rt.listCount() - lists; got > 32 {
			t.Errorf("%d lists", got)
		}
		lists = rt.listCount()
		time.Sleep(2 * time.Minute)
		if got := rt.listCount() - lists; got < 3 || got > 5 {
			t.Errorf("%d lists in 2 minutes, want the slow pace back", got)
		}
	})
}

func TestUnsupportedStreamIsTriedSlowly(t *testing.T) {
	rt, events := newFake(), &fakeEvents{}
	events.breakOff(fmt.Errorf("open: %w", pleg.ErrEventsUnsupported))
	inBubble(t, pleg.Config{Runtime: rt, Events: events}, func(t *testing.T, r *running) {
		time.Sleep(10 * time.Minute)
		if got := len(events.openings()); got < 20 || got > 41 {
			t.Errorf("%d tries in 10 minutes, want about 27", got)
		}
	})
}

type sourceFunc func(ctx context.Context, connected func(), mark func(pleg.Mark)) error

func (f sourceFunc) Stream(ctx context.Context, connected func(), mark func(pleg.Mark)) error {
	return f(ctx, connected, mark)
}

func TestFirstSupported(t *testing.T) {
	broken := errors.New("broken")
	source := func(err error) pleg.EventSource {
		return sourceFunc(func(context.Context, func(), func(pleg.Mark)) error { return err })
	}
	never := sourceFunc(func(context.Context, func(), func(pleg.Mark)) error {
		t.Error("the second source was opened")
		return nil
	})
	unsupported := source(fmt.Errorf("open: %w", pleg.ErrEventsUnsupported))
	for _, tt := range []struct {
		name   string
		source pleg.EventSource
		want   error
	}{
		{"the first breaks", pleg.FirstSupported(source(broken), never), broken},
		{"the first is unsupported", pleg.FirstSupported(unsupported, source(broken)), broken},
		{"none is supported", pleg.FirstSupported(unsupported, unsupported), pleg.ErrEventsUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.source.Stream(t.Context(), nil, nil); !errors.Is(err, tt.want) {
				t.Errorf("Stream = %v, want %v", err, tt.want)
			}
		})
	}
}

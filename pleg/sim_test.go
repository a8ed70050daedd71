package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

// TestSimulation does random things to random pods, with a runtime that fails and
// hangs and a stream that loses, doubles and delays, and then checks what has to
// hold: the cache equals the runtime after quiet and one relist, every end was
// told, and no Wait returned something older than asked for.
func TestSimulation(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &simulation{
					t: t, rnd: rand.New(rand.NewPCG(seed, 1)),
					rt: newFake(), events: &fakeEvents{}, versions: map[observed.UID]int{},
				}
				s.r = start(t, pleg.Config{Runtime: s.rt, Events: s.events, Inspectors: 2})
				for range 300 {
					s.step()
				}
				s.quiet()
				s.check()
				s.r.stop(t)
			})
		})
	}
}

type simulation struct {
	t        *testing.T
	rnd      *rand.Rand
	rt       *fakeRuntime
	events   *fakeEvents
	r        *running
	next     int // container number
	versions map[observed.UID]int
	wg       sync.WaitGroup
}

func (s *simulation) step() {
	uid := observed.UID(string(rune('a' + s.rnd.IntN(6))))
	switch s.rnd.IntN(16) {
	case 0, 1, 2: // our own call: a container is made and started
		s.next++
		id := fmt.Sprint(uid, s.next)
		s.change(uid, func(p *observed.Pod) {
			p.Containers = append([]observed.Container{container(id, observed.Running)}, p.Containers...)
		})
		s.lookAgain(uid)
	case 3: // our own call: the exited ones are removed
		s.change(uid, func(p *observed.Pod) {
			p.Containers = slices.DeleteFunc(p.Containers, func(c observed.Container) bool { return c.State == observed.Exited })
		})
		s.lookAgain(uid)
	case 4: // our own call: the pod is removed
		s.rt.remove(uid)
		s.lookAgain(uid)
	case 5, 6, 7, 8: // containers end by themselves
		if !s.rt.pods[uid].HasRunning() {
			return
		}
		s.change(uid, func(p *observed.Pod) {
			for i := range p.Containers {
				if p.Containers[i].State == observed.Running {
					p.Containers[i].State = observed.Exited
					break
				}
			}
		})
		for range s.rnd.IntN(3) { // lost, told, told twice
			delay := time.Duration(s.rnd.IntN(2)) * 700 * time.Millisecond
			s.wg.Go(func() {
				time.Sleep(delay)
				s.events.tell(pleg.Mark{Pod: uid})
			})
		}
	case 9:
		s.events.tell(pleg.Mark{Container: "someone else's"})
	case 10:
		s.events.breakOff([]error{nil, errors.New("away")}[s.rnd.IntN(2)])
	case 11:
		s.rt.do(func() { s.rt.listErr = []error{nil, errors.New("list")}[s.rnd.IntN(2)] })
	case 12:
		s.rt.do(func() { s.rt.failing[uid] = []error{nil, errors.New("inspect")}[s.rnd.IntN(2)] })
	case 13:
		s.rt.do(func() { s.rt.deaf = s.rnd.IntN(2) == 0 })
		hang := make(chan struct{})
		s.rt.do(func() { s.rt.hanging[uid] = hang })
		s.wg.Go(func() {
			time.Sleep(20 * time.Second)
			close(hang)
		})
	case 14:
		s.rt.do(func() { delete(s.rt.hanging, uid) })
	default:
		time.Sleep(time.Duration(s.rnd.IntN(40)) * 100 * time.Millisecond)
	}
}

// change makes a new version of the pod, and leaves what was handed out alone.
func (s *simulation) change(uid observed.UID, f func(*observed.Pod)) {
	s.rt.do(func() {
		p, ok := s.rt.pods[uid]
		if !ok {
			p = podOf(uid, true)
		}
		p.Containers = slices.Clone(p.Containers)
		f(&p)
		s.versions[uid]++
		p.Name = strconv.Itoa(s.versions[uid])
		s.rt.pods[uid] = p
	})
}

// lookAgain is what a worker does after its own calls.
func (s *simulation) lookAgain(uid observed.UID) {
	seq, version := s.r.MarkDirty(uid), s.versions[uid]
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		p, err := s.r.Wait(ctx, uid, seq)
		if got, _ := strconv.Atoi(p.Name); err == nil && p.Exists() && got < version {
			s.t.Errorf("Wait returned version %d of pod %s, which had version %d before", got, uid, version)
		}
	})
}

func (s *simulation) quiet() {
	s.events.breakOff(nil)
	s.rt.do(func() {
		s.rt.listErr, s.rt.deaf = nil, false
		clear(s.rt.failing)
		clear(s.rt.hanging)
	})
	s.wg.Wait()
	time.Sleep(30 * time.Second)
	if err := s.r.Relist(s.t.Context()); err != nil {
		s.t.Errorf("Relist = %v", err)
	}
}

func (s *simulation) check() {
	have := map[observed.UID]observed.Pod{}
	for _, p := range s.r.Cache().Pods() {
		have[p.UID] = p
	}
	if diff := cmp.Diff(s.rt.pods, have); diff != "" {
		s.t.Errorf("runtime and cache differ (-runtime +cache):\n%s", diff)
	}
	now := map[observed.ContainerID]observed.State{}
	for _, p := range s.rt.pods {
		for _, c := range p.Containers {
			now[c.ID] = c.State
		}
	}
	told := map[observed.ContainerID][]pleg.EventType{}
	for _, e := range s.r.events() {
		if e.Type != pleg.PodSync && string(e.Data) != string(e.ID)+"-sb" {
			told[e.Data] = append(told[e.Data], e.Type)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if len(told[id]) == 0 {
			s.t.Errorf("nothing was told of container %s, which is %v", id, now[id])
		}
	}
	for id, types := range told {
		var want []pleg.EventType
		if types[0] == pleg.ContainerStarted {
			want = append(want, pleg.ContainerStarted)
		}
		if now[id] != observed.Running {
			want = append(want, pleg.ContainerDied)
		}
		if _, exists := now[id]; !exists {
			want = append(want, pleg.ContainerRemoved)
		}
		if !slices.Equal(types, want) {
			s.t.Errorf("told of container %s: %v, want %v", id, types, want)
		}
	}
}

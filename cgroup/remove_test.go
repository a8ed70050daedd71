package cgroup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// stubborn is a kernel whose processes outlive some kills. What it does not have
// the test does not reach.
type stubborn struct {
	kernel
	survive int
	kills   []time.Duration
	began   time.Time
	removed []string
	refuse  error
}

func (k *stubborn) exists(name string) (some, all bool) {
	return strings.Contains(name, "burstable"), false
}

func (k *stubborn) kill(string) ([]int, error) {
	k.kills = append(k.kills, time.Since(k.began))
	if len(k.kills) > k.survive {
		return nil, nil
	}
	return []int{4711}, nil
}

func (k *stubborn) remove(name string) error {
	k.removed = append(k.removed, name)
	return k.refuse
}

func (k *stubborn) set(string, Resources) error { return k.refuse }

func treeOn(k kernel, hooks Hooks) *Tree {
	if hooks.Done == nil {
		hooks.Done = func(string, time.Duration, error) {}
	}
	return &Tree{cfg: Config{PerQOS: true, Log: logr.Discard(), Hooks: hooks}, names: names{driver: Cgroupfs}, kernel: k}
}

func TestRemoveKillsUntilNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &stubborn{survive: tries, began: time.Now()}
		if err := treeOn(k, Hooks{}).Remove(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		if want := []string{"/kubepods/burstable/podu"}; !slices.Equal(k.removed, want) {
			t.Errorf("removed %v, want %v", k.removed, want)
		}
		if last := k.kills[len(k.kills)-1]; len(k.kills) != tries+1 || last > time.Second {
			t.Errorf("killed at %v, want %d times and a last look within a second", k.kills, tries)
		}
	})
}

func TestRemoveSaysWhatDoesNotDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard error
		k := &stubborn{survive: 100, began: time.Now()}
		err := treeOn(k, Hooks{Done: func(op string, _ time.Duration, err error) { heard = err }}).Remove(t.Context(), "u")
		if err == nil || !strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), "/kubepods/burstable/podu") || heard == nil {
			t.Errorf("Remove = %v, want an error with the process and the cgroup", err)
		}
		if len(k.removed) > 0 {
			t.Errorf("removed %v below a process that lives", k.removed)
		}
	})
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		k := &stubborn{survive: 100, began: time.Now()}
		if err := treeOn(k, Hooks{}).Remove(ctx, "u"); !errors.Is(err, context.DeadlineExceeded) || len(k.kills) > 2 {
			t.Errorf("Remove = %v after %d kills, want the deadline's error", err, len(k.kills))
		}
	})
}

func TestErrorsNameTheCgroup(t *testing.T) {
	refuse := errors.New("no")
	tree := treeOn(&stubborn{refuse: refuse}, Hooks{})
	if err := tree.Remove(t.Context(), "u"); !errors.Is(err, refuse) || !strings.Contains(err.Error(), "/kubepods/burstable/podu") {
		t.Errorf("Remove = %v", err)
	}
	if err := tree.UpdateQOS(nil); !errors.Is(err, refuse) || !strings.Contains(err.Error(), "/kubepods") {
		t.Errorf("UpdateQOS = %v", err)
	}
	p := &corev1.Pod{}
	p.UID = "u"
	if err := tree.Update(t.Context(), p, Resources{}); !errors.Is(err, refuse) || !strings.Contains(err.Error(), "podu") {
		t.Errorf("Update = %v", err)
	}
}

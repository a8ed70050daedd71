package podworkers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

func specWith(grace int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace}}
	for _, c := range change {
		c(p)
	}
	return p
}

func deletion(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	}
}

func TestLifeApply(t *testing.T) {
	grace := func(s int64) *KillOptions { return &KillOptions{Grace: &s} }
	stopping := life{phase: Stopping, touched: true, grace: 20, explicit: true}
	with := func(l life, f func(*life)) life { f(&l); return l }
	for name, c := range map[string]struct {
		from life
		u    Update
		want life
		e    effect
	}{
		"a change of a running pod is work": {
			life{phase: Syncing}, Update{Type: Change, Pod: specWith(30)},
			life{phase: Syncing}, effect{work: true, moot: true},
		},
		"kill options of anything but a kill say nothing": {
			life{phase: Syncing}, Update{Type: Change, Pod: specWith(30), Kill: &KillOptions{Evict: true, Grace: new(int64)}},
			life{phase: Syncing}, effect{work: true, moot: true},
		},
		"a kill takes the pod's period": {
			life{phase: Syncing}, Update{Type: Kill, Pod: specWith(30)},
			life{phase: StopRequested, grace: 30, explicit: true}, effect{work: true, interrupt: true},
		},
		"a kill's period counts before the pod's": {
			life{phase: Syncing}, Update{Type: Kill, Pod: specWith(30), Kill: grace(60)},
			life{phase: StopRequested, grace: 60, explicit: true}, effect{work: true, interrupt: true},
		},
		"of the deletion's period and the kill's the shorter counts": {
			life{phase: Syncing}, Update{Type: Kill, Pod: specWith(30, deletion(40)), Kill: grace(50)},
			life{phase: StopRequested, deleted: true, grace: 40, explicit: true}, effect{work: true, interrupt: true},
		},
		"the floor is one second": {
			life{phase: Syncing}, Update{Type: Kill, Pod: specWith(30, deletion(0)), Kill: grace(-5)},
			life{phase: StopRequested, deleted: true, grace: 1, explicit: true}, effect{work: true, interrupt: true},
		},
		"a failed pod ends": {
			life{phase: Syncing}, Update{Type: Change, Pod: specWith(30, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
			life{phase: StopRequested, grace: 30, explicit: true}, effect{work: true, interrupt: true},
		},
		"an eviction is remembered": {
			life{phase: Syncing}, Update{Type: Kill, Pod: specWith(30), Kill: &KillOptions{Evict: true}},
			life{phase: StopRequested, evicted: true, grace: 30, explicit: true}, effect{work: true, interrupt: true},
		},
		"a longer period is ignored": {
			stopping, Update{Type: Kill, Pod: specWith(30), Kill: grace(25)},
			stopping, effect{work: true},
		},
		"a shorter period interrupts": {
			stopping, Update{Type: Change, Pod: specWith(30, deletion(5))},
			with(stopping, func(l *life) { l.deleted, l.grace = true, 5 }), effect{work: true, interrupt: true},
		},
		"a pod that ends by itself keeps its bound": {
			life{phase: Stopping, grace: 30}, Update{Type: Kill, Pod: specWith(30), Kill: grace(60)},
			life{phase: Stopping, grace: 30, explicit: true}, effect{work: true},
		},
		"an end is not taken back": {
			stopping, Update{Type: Sync, Pod: specWith(30)},
			stopping, effect{work: true},
		},
		"a create during the end asks for another life": {
			stopping, Update{Type: Create, Pod: specWith(30)},
			with(stopping, func(l *life) { l.restart = true }), effect{moot: true},
		},
		"a create that brings the end of the pod asks for no other life": {
			stopping, Update{Type: Create, Pod: specWith(30, deletion(30))},
			with(stopping, func(l *life) { l.deleted = true }), effect{work: true},
		},
		"nor does a second find in the runtime": {
			life{phase: Stopping, touched: true, grace: 30}, Update{Orphan: observed.Pod{UID: "a"}},
			life{phase: Stopping, touched: true, deleted: true, grace: 30, explicit: true}, effect{work: true},
		},
		"after the end only another life can be asked for": {
			life{phase: Finished, grace: 1}, Update{Type: Kill, Pod: specWith(30)},
			life{phase: Finished, grace: 1}, effect{moot: true},
		},
		"a pod found in the runtime although it is known is deleted by its spec": {
			life{phase: Syncing, touched: true}, Update{Orphan: observed.Pod{UID: "a"}},
			life{phase: StopRequested, touched: true, deleted: true, grace: 30, explicit: true}, effect{work: true, interrupt: true},
		},
		"an orphan gets one second": {
			life{phase: Syncing, orphan: true}, Update{Orphan: observed.Pod{UID: "a"}},
			life{phase: StopRequested, orphan: true, deleted: true, grace: 1, explicit: true}, effect{work: true, interrupt: true},
		},
		"an orphan that is wanted lives again later": {
			life{phase: Stopping, orphan: true, grace: 1}, Update{Type: Change, Pod: specWith(30)},
			life{phase: Stopping, orphan: true, grace: 1, restart: true}, effect{moot: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, e := c.from.apply(c.u, specWith(30))
			if got != c.want {
				t.Errorf("life = %+v, want %+v", got, c.want)
			}
			if e != c.e {
				t.Errorf("effect = %+v, want %+v", e, c.e)
			}
		})
	}
}

// FuzzLife folds any sequence of news and results into one life.
func FuzzLife(f *testing.F) {
	f.Add([]byte{0, 20, 1, 25, 30, 21, 22, 23})
	f.Add([]byte{200, 3, 100, 9, 41, 60, 20, 21})
	f.Fuzz(func(t *testing.T, script []byte) {
		spec := specWith(30)
		update := func(b byte) Update {
			u := Update{Type: UpdateType(b & 3), Pod: spec}
			if b&4 != 0 {
				u.Pod = specWith(30, deletion(int64(b>>3)))
			}
			if b&8 != 0 {
				grace := int64(b>>4) - 2
				u.Kill = &KillOptions{Evict: b&32 != 0, Grace: &grace}
			}
			if b&0x90 == 0x90 {
				u.Pod, u.Orphan = nil, observed.Pod{UID: "a"}
			}
			return u
		}
		if len(script) == 0 {
			return
		}
		l := born(update(script[0]))
		for i, b := range script {
			was := l
			var e effect
			switch {
			case i == 0 || b%3 == 0:
				l, e = l.apply(update(b), spec)
			case b%3 == 1:
				l, e = l.abandon(spec)
			default:
				l = l.agree().settle(l.agree().phase, b&4 != 0, spec)
			}
			check(t, i, was, l, e)
		}
		for range 4 { // once an end is asked for, good calls lead there
			l = l.agree().settle(l.agree().phase, true, spec)
		}
		if l.phase != Finished {
			t.Errorf("life after good calls = %+v, want Finished", l)
		}
	})
}

func check(t *testing.T, i int, was, l life, e effect) {
	t.Helper()
	switch {
	case l.phase < was.phase:
		t.Errorf("step %d: phase went back: %+v, then %+v", i, was, l)
	case was.grace > 0 && l.grace > was.grace:
		t.Errorf("step %d: grace grew: %+v, then %+v", i, was, l)
	case (l.phase > Syncing) != (l.grace > 0):
		t.Errorf("step %d: grace without an end, or an end without grace: %+v", i, l)
	case was.deleted && !l.deleted, was.evicted && !l.evicted, was.restart && !l.restart, was.explicit && !l.explicit:
		t.Errorf("step %d: something was forgotten: %+v, then %+v", i, was, l)
	case l.phase >= Stopped && e.work:
		t.Errorf("step %d: work for a pod that has stopped: %+v", i, l)
	case e.interrupt && !e.work:
		t.Errorf("step %d: interrupted for nothing: %+v", i, l)
	case l.handed() != nil && l.phase > Syncing && *l.handed() < 1:
		t.Errorf("step %d: grace below the floor: %+v", i, l)
	}
}

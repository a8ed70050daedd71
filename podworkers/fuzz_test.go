package podworkers_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

// FuzzWorkers plays a script on four pods, two of which share a name, over calls
// that fail, hang and lie. Whatever happens: a life moves forward, its calls are
// in order, no two pods of one name run together, every Done is closed, and at
// the end nothing is left.
func FuzzWorkers(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 40, 41, 80, 81, 120, 121, 200, 201})
	f.Add([]byte{0, 0x11, 0x40, 0x31, 0x72, 0xa3, 0x13, 0x51, 0xf0, 0x05})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			return
		}
		bubble(t, func(t *testing.T) { play(t, script) })
	})
}

func play(t *testing.T, script []byte) {
	n := &node{}
	last := map[observed.UID]podworkers.Phase{}
	w := start(t, n, func(c *podworkers.Config) {
		c.Hooks.PhaseChanged = func(_ string, uid observed.UID, from, to podworkers.Phase) {
			if from != last[uid] && last[uid] != podworkers.Gone && from != podworkers.Gone {
				t.Errorf("%s: change from %v, was %v", uid, from, last[uid])
			}
			if to <= from && from != podworkers.Gone {
				t.Errorf("%s went back: %v, then %v", uid, from, to)
			}
			last[uid] = to
		}
	})
	pods := []*corev1.Pod{pod("a"), pod("b"), pod("s1", static("web")), pod("s2", static("web"))}
	var dones []chan struct{}
	for _, b := range script {
		p := pods[b&3]
		switch op := b >> 2; {
		case op < 24:
			u := podworkers.Update{Type: podworkers.UpdateType(op & 3), Pod: p}
			if op&4 != 0 {
				u.Pod = pod(string(p.UID), deleted(int64(op)))
				u.Pod.Name, u.Pod.Annotations = p.Name, p.Annotations
			}
			if op&8 != 0 {
				done := make(chan struct{})
				dones = append(dones, done)
				u.Kill = &podworkers.KillOptions{Done: done, Evict: op&16 != 0, Grace: seconds(int64(op & 7))}
			}
			w.UpdatePod(u)
		case op < 28:
			w.UpdatePod(podworkers.Update{Type: podworkers.Kill, Orphan: observed.Pod{UID: observed.UID(p.UID), Name: "o"}})
		case op < 34:
			known := w.SyncKnownPods(pods[:b&3])
			for _, p := range pods[:b&3] {
				if _, ok := known[observed.UID(p.UID)]; !ok {
					w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: p})
				}
			}
		case op < 44:
			misbehave(n, int(op))
		default:
			time.Sleep(time.Duration(op) * time.Second)
		}
		if b&1 != 0 {
			synctest.Wait()
		}
	}
	n.with(func(n *node) { n.sync, n.stop, n.release, n.lookErr, n.stillRun = nil, nil, nil, nil, 0 })
	w.SyncKnownPods(nil)
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	if known := w.SyncKnownPods(nil); len(known) != 0 {
		t.Errorf("left at the end: %+v", known)
	}
	if both := n.sharedName(); both != nil {
		t.Errorf("%v ran under one name at one time", both)
	}
	for i, done := range dones {
		if !isClosed(done) {
			t.Errorf("Done %d is open", i)
		}
	}
	n.with(func(n *node) {
		for uid, running := range n.running {
			if running {
				t.Errorf("%s runs at the end", uid)
			}
		}
	})
	n.took()
	w.UpdatePod(podworkers.Update{Type: podworkers.Create, Pod: pod("s3", static("web"))})
	synctest.Wait()
	wantCalls(t, n, "sync s3") // the name is free
}

// misbehave makes the node's calls fail, hang or lie from now on.
func misbehave(n *node, how int) {
	bad := errors.New("bad day")
	n.with(func(n *node) {
		switch how % 7 {
		case 0:
			n.sync = func(context.Context, *corev1.Pod) (bool, error) { return false, bad }
		case 1:
			n.sync = func(ctx context.Context, _ *corev1.Pod) (bool, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
				return true, ctx.Err()
			}
		case 2:
			n.stop = func(context.Context, observed.UID, int64) error { return fmt.Errorf("stop: %w", bad) }
		case 3:
			n.stop = func(ctx context.Context, _ observed.UID, grace int64) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(grace) * time.Second):
					return nil
				}
			}
		case 4:
			n.stillRun = 2
		case 5:
			n.lookErr = bad
		default:
			n.release = func(context.Context, *corev1.Pod) error { return bad }
		}
	})
}

package podruntime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

// A call that was begun is not interrupted: what the runtime was half-way through
// would be left behind there. Nothing is begun after it.
func TestACallThatWasBegunIsFinishedWhenThePodIsNotWantedAnyMore(t *testing.T) {
	for _, c := range []struct {
		method  string
		takes   time.Duration
		running string
		made    bool
	}{
		{"RunPodSandbox", 5 * time.Second, "", true},
		{"StartContainer", 5 * time.Second, "a#0", true},
		{"RunPodSandbox", time.Hour, "", false}, // but a runtime that hangs holds nobody up
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.rt.Inject(critest.Fault{Method: c.method, Delay: c.takes})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, cancel)
			begin := time.Now()
			p := pod("Always", "a")
			n.sync(ctx, p) //nolint:errcheck // the context has ended or not; what counts is what is there
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%s of %v: the pass took %v", c.method, c.takes, took)
			}
			n.rt.ClearFaults()
			if _, made := n.rt.FindSandbox(string(p.UID)); made != c.made {
				t.Errorf("%s of %v: sandbox made = %v, want %v", c.method, c.takes, made, c.made)
			}
			n.wantRunning(p, c.running)
		})
	}
}

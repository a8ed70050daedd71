package podruntime_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

func TestAStopSignalThatTheRuntimeDoesNotKnowIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		old    bool
		signal corev1.Signal
		want   string // in the failure; "" when the container runs
	}{
		{"a runtime that knows the field", false, corev1.SIGUSR1, ""},
		{"an old runtime", true, corev1.SIGUSR1, "spec.containers[0].lifecycle.stopSignal: Forbidden: the container runtime knows no stop signals"},
		{"an old runtime, and nothing asked of it", true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNodeWith(t, critest.Config{Registry: critest.AnyImage, OldFields: c.old})
			p := pod("Never", "a")
			if c.signal != "" {
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &c.signal}
			}
			_, result, err := n.sync(t.Context(), p)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				n.wantRunning(p, "a#0")
				return
			}
			f := result.Failures["a"]
			if f.Reason != "CreateContainerConfigError" || !strings.Contains(f.Message, c.want) {
				t.Errorf("failure %s %q, want one with %q", f.Reason, f.Message, c.want)
			}
			if left := n.see(p).Containers; len(left) != 0 {
				t.Errorf("containers left: %v", left)
			}
		})
	}
}

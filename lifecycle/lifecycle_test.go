package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/lifecycle"
)

var (
	_ lifecycle.Exec = (*criclient.Client)(nil)
	_ lifecycle.Exec = (*critest.Runtime)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// execFunc is a command.
type execFunc func(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)

func (f execFunc) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	return f(ctx, id, cmd, timeout)
}

func noExec(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return nil, nil, errors.New("no command is run here")
}

func newRunner(t *testing.T, cfg lifecycle.Config) *lifecycle.Runner {
	t.Helper()
	if cfg.Exec == nil {
		cfg.Exec = execFunc(noExec)
	}
	r, err := lifecycle.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func command(cmd ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: cmd}}
}

func sleep(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

func TestNewNeedsAWayToRunCommands(t *testing.T) {
	if _, err := lifecycle.New(lifecycle.Config{}); err == nil {
		t.Error("New without Exec succeeded")
	}
}

func TestACommand(t *testing.T) {
	failed := errors.New("exit code 3")
	for _, tt := range []struct {
		name           string
		stdout, stderr string
		err            error
		want           string
	}{
		{"that succeeds returns what it wrote", "out", "err", nil, "outerr"},
		{"that fails is an error beside what it wrote", "out", "sorry", failed, "outsorry"},
		{"that writes a lot is cut at the front", strings.Repeat("x", 20<<10), "end", nil, strings.Repeat("x", 10<<10-3) + "end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRunner(t, lifecycle.Config{Exec: execFunc(func(_ context.Context, id string, cmd []string, limit time.Duration) (stdout, stderr []byte, err error) {
				if id != "c1" || fmt.Sprint(cmd) != "[a b]" || limit != 0 {
					t.Errorf("run %v in %s with limit %v", cmd, id, limit)
				}
				return []byte(tt.stdout), []byte(tt.stderr), tt.err
			})})
			out, err := r.Run(t.Context(), lifecycle.Call{ID: "c1", Handler: command("a", "b")})
			if out != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("Run = %q, %v", out, err)
			}
		})
	}
}

func TestACommandGetsTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limit time.Duration
		calls := 0
		r := newRunner(t, lifecycle.Config{Exec: execFunc(func(ctx context.Context, _ string, _ []string, l time.Duration) (stdout, stderr []byte, err error) {
			calls, limit = calls+1, l
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		time.Sleep(5 * time.Second)
		start := time.Now()
		_, err := r.Run(ctx, lifecycle.Call{Handler: command("hang")})
		if limit != 15*time.Second || time.Since(start) != 15*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("limit %v, took %v, %v", limit, time.Since(start), err)
		}
		if _, err := r.Run(ctx, lifecycle.Call{Handler: command("late")}); calls != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d commands, %v; want no second one without time", calls, err)
		}
	})
}

func TestASleep(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds int64
		limit   time.Duration
		want    time.Duration
		cut     bool
	}{
		{"lasts as long as it says", 30, time.Hour, 30 * time.Second, false},
		{"of nothing is over at once", 0, time.Hour, 0, false},
		{"below nothing is over at once", -1, time.Hour, 0, false},
		{"is cut by the end of its context", 30, 10 * time.Second, 10 * time.Second, true},
		{"beyond all time does not overflow", 1<<63 - 1, time.Minute, time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cut := 0
				r := newRunner(t, lifecycle.Config{Hooks: lifecycle.Hooks{SleepCut: func(lifecycle.Call) { cut++ }}})
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start := time.Now()
				_, err := r.Run(ctx, lifecycle.Call{Handler: sleep(tt.seconds)})
				if took := time.Since(start); took != tt.want || (err != nil) != tt.cut || (cut == 1) != tt.cut {
					t.Errorf("took %v, %v, cut %d times", took, err, cut)
				}
				if tt.cut && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error = %v, want the context's", err)
				}
			})
		})
	}
}

func TestHandlersThatNobodyCanRun(t *testing.T) {
	r := newRunner(t, lifecycle.Config{})
	for name, h := range map[string]*corev1.LifecycleHandler{
		"none":      nil,
		"empty":     {},
		"tcpSocket": {TCPSocket: &corev1.TCPSocketAction{}},
	} {
		if _, err := r.Run(t.Context(), lifecycle.Call{Handler: h}); !errors.Is(err, lifecycle.ErrInvalidHandler) {
			t.Errorf("%s: %v, want ErrInvalidHandler", name, err)
		}
	}
}

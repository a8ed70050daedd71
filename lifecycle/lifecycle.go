package lifecycle

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// ErrInvalidHandler is in the error for a handler that no node can run: one that
// names no action, or a tcpSocket, which the API keeps for old pods' sake only.
var ErrInvalidHandler = errors.New("lifecycle: invalid handler")

// Exec runs a command inside a container. Every RuntimeService of k8s.io/cri-api
// is one. It has to end the command when ctx ends. A timeout of 0 is none.
type Exec interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// Call is one hook to run.
type Call struct {
	// Pod is nil when only the runtime knows the container.
	Pod *corev1.Pod
	// Container names the ports that an httpGet may refer to.
	Container *corev1.Container
	ID        observed.ContainerID
	// PodIP is whom an httpGet asks that names no host.
	PodIP   string
	Handler *corev1.LifecycleHandler
}

// Config needs Exec; everything else has a useful zero value.
type Config struct {
	Exec Exec
	// Dial opens the connections of httpGet hooks; the default is a net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent of httpGet hooks that bring none; default kube-lifecycle/1.37.
	UserAgent string
	Log       logr.Logger // default discards
	Hooks     Hooks       // default no-ops
}

// Hooks report what an operator would like to know.
type Hooks struct {
	// Event is a Kubernetes Event about the call's container.
	Event func(call Call, eventType, reason, message string)
	// FellBack counts HTTPS hooks that plain HTTP has answered.
	FellBack func(call Call)
	// SleepCut counts sleeps that did not last as long as they were asked to.
	SleepCut func(call Call)
}

// Runner runs hooks. Its method may be called from many goroutines.
type Runner struct {
	cfg    Config
	client *http.Client
}

// New checks cfg and returns a Runner. It opens nothing.
func New(cfg Config) (*Runner, error) {
	if cfg.Exec == nil {
		return nil, errors.New("lifecycle: Config.Exec is required")
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "kube-lifecycle/1.37"
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Event == nil {
		cfg.Hooks.Event = func(Call, string, string, string) {}
	}
	if cfg.Hooks.FellBack == nil {
		cfg.Hooks.FellBack = func(Call) {}
	}
	if cfg.Hooks.SleepCut == nil {
		cfg.Hooks.SleepCut = func(Call) {}
	}
	return &Runner{cfg: cfg, client: &http.Client{
		CheckRedirect: withinHost,
		Transport: &http.Transport{ // without a proxy: the pod is right here
			DialContext: cfg.Dial,
			// The hook tells a container something; it trusts nothing it hears.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			// A pod is asked once or twice in its life.
			DisableKeepAlives: true,
		},
	}}, nil
}

// Run runs the hook and returns what its command wrote, shortened to the last 10
// KiB. It returns soon after ctx ends, with an error that wraps the context's when
// the hook had not done its work by then. A command that exits with another code
// than 0 is an error, and so is a request without an answer; which status an answer
// has does not matter.
//
// The output may hold secrets of the container. It belongs into no event.
func (r *Runner) Run(ctx context.Context, call Call) (output string, err error) {
	h := call.Handler
	switch {
	case h == nil:
		return "", fmt.Errorf("run hook: %w: there is none", ErrInvalidHandler)
	case h.Exec != nil:
		return r.exec(ctx, call)
	case h.HTTPGet != nil:
		return "", r.get(ctx, call)
	case h.Sleep != nil:
		return "", r.sleep(ctx, call)
	case h.TCPSocket != nil:
		return "", fmt.Errorf("run hook: %w: a hook cannot be a tcpSocket; use exec, httpGet or sleep", ErrInvalidHandler)
	default:
		return "", fmt.Errorf("run hook: %w: it names no action", ErrInvalidHandler)
	}
}

// mostOutput is how much of a command's output is kept.
const mostOutput = 10 << 10

func (r *Runner) exec(ctx context.Context, call Call) (string, error) {
	err := ctx.Err()
	var left time.Duration // 0 is no limit
	if deadline, ok := ctx.Deadline(); ok && err == nil {
		if left = time.Until(deadline); left <= 0 {
			err = context.DeadlineExceeded
		}
	}
	if err != nil {
		return "", fmt.Errorf("run command of hook: %w", err)
	}
	stdout, stderr, err := r.cfg.Exec.ExecSync(ctx, string(call.ID), call.Handler.Exec.Command, left)
	output := string(append(stdout, stderr...))
	output = output[max(0, len(output)-mostOutput):]
	if err != nil {
		return output, fmt.Errorf("run command of hook: %w", err)
	}
	return output, nil
}

func (r *Runner) sleep(ctx context.Context, call Call) error {
	length := time.Duration(min(call.Handler.Sleep.Seconds, int64(1<<63-1)/int64(time.Second))) * time.Second
	if length <= 0 {
		return nil
	}
	done := time.NewTimer(length)
	defer done.Stop()
	select {
	case <-done.C:
		return nil
	case <-ctx.Done():
		r.cfg.Hooks.SleepCut(call)
		return fmt.Errorf("sleep %v in hook: cut short: %w", length, ctx.Err())
	}
}

package critest

import (
	"os"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Exit codes of a process that a signal ended.
const (
	codeKILL = 128 + 9
	codeTERM = 128 + 15
)

// schedule sets what a container that has just started will do by itself.
func (r *Runtime) schedule(c *container) {
	b := c.behavior
	r.schedulePrint(c)
	if !b.Exits {
		return
	}
	code, reason := b.ExitCode, ""
	if b.OOM {
		code, reason = codeKILL, "OOMKilled"
	}
	r.later(c, b.After, func() { r.exit(c, code, reason, !b.OOM) })
}

// schedulePrint prints what is due now and sets a timer for each later line.
func (r *Runtime) schedulePrint(c *container) {
	b := c.behavior
	for _, l := range b.Print {
		if l.After <= 0 {
			r.print(c, l)
			continue
		}
		r.later(c, l.After, func() { r.print(c, l) })
	}
	if b.PrintEvery > 0 && len(b.Print) > 0 {
		r.later(c, b.PrintEvery, func() { r.schedulePrint(c) })
	}
}

// later runs do after d with the lock held, unless the container has ended.
func (r *Runtime) later(c *container, d time.Duration, do func()) {
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		// The timer is among the container's own until it fires or the
		// container ends; a Stop that came too late finds it gone here.
		i := slices.Index(c.timers, t)
		if i < 0 {
			return
		}
		c.timers = slices.Delete(c.timers, i, i+1)
		do()
	})
	c.timers = append(c.timers, t)
}

// term sends TERM, once: a second StopContainer only waits, as in containerd.
func (r *Runtime) term(c *container) {
	b := c.behavior
	if c.termed || b.IgnoreTERM {
		return
	}
	c.termed = true
	code := int32(codeTERM)
	if b.CatchTERM {
		code = 0
	}
	if b.TermAfter > 0 {
		r.later(c, b.TermAfter, func() { r.exit(c, code, "", true) })
		return
	}
	r.exit(c, code, "", true)
}

// kill sends KILL. A container whose state is unknown is taken for dead.
func (r *Runtime) kill(c *container) {
	switch c.state {
	case running:
		r.exit(c, codeKILL, "", false)
	case unknown:
		r.exit(c, 255, "Unknown", false)
	}
}

// exit is the one way from running (or unknown) to exited. orderly tells that
// the process itself ended and could leave a message.
func (r *Runtime) exit(c *container, code int32, reason string, orderly bool) {
	c.finishedAt, c.exitCode = r.now(), code
	switch {
	case reason != "":
		c.reason = reason
	case code == 0:
		c.reason = "Completed"
	default:
		c.reason = "Error"
	}
	if orderly {
		c.leaveMessage()
	}
	c.quiet()
	r.setState(c, exited)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.sandbox, c.id)
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
}

// quiet stops everything that the container would still have done.
func (c *container) quiet() {
	for _, t := range c.timers {
		t.Stop()
	}
	c.timers = nil
	c.closeLog()
}

// leaveMessage writes the termination message where the pod asked for it. A
// file that cannot be written is the container's loss, as in real life.
func (c *container) leaveMessage() {
	if c.behavior.TerminationMessage == "" {
		return
	}
	path := c.config.GetAnnotations()[observed.AnnotationTerminationMessagePath]
	if path == "" {
		path = "/dev/termination-log"
	}
	for _, m := range c.config.GetMounts() {
		if m.GetContainerPath() == path {
			_ = os.WriteFile(m.GetHostPath(), []byte(c.behavior.TerminationMessage), 0o644)
		}
	}
}

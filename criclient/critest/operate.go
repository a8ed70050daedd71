package critest

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/observed"
)

// What follows changes the world behind the agent's back. None of it is a CRI
// call: it is not recorded, meets no fault, and works while the runtime is down.

// Kill ends a running container with an exit code, as if its process had died.
// Its event is sent.
func (r *Runtime) Kill(containerID string, code int32) error {
	return r.withRunning(containerID, func(c *container) { r.exit(c, code, "", false) })
}

// OOM ends a running container the way the kernel does when memory runs out.
func (r *Runtime) OOM(containerID string) error {
	return r.withRunning(containerID, func(c *container) { r.exit(c, codeKILL, "OOMKilled", false) })
}

func (r *Runtime) withRunning(id string, do func(*container)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(id)
	if err != nil {
		return err
	}
	if c.state != running {
		return status.Error(codes.FailedPrecondition, fmt.Sprintf("container %q is in %s state", id, c.state))
	}
	do(c)
	return nil
}

// Vanish forgets a container, or a sandbox with all its containers, without any
// event, as if the runtime had lost its records.
func (r *Runtime) Vanish(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, err := r.findContainer(id); err == nil {
		r.forgetContainer(c)
		return nil
	}
	sb, err := r.findSandbox(id)
	if err != nil {
		return err
	}
	for _, c := range sb.inOrder() {
		r.forgetContainer(c)
	}
	r.forgetSandbox(sb)
	return nil
}

// SetUnknown makes the state of a container unknown, as containerd reports one
// it could not load. Stopping or removing it still works.
func (r *Runtime) SetUnknown(containerID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(containerID)
	if err != nil {
		return err
	}
	c.quiet()
	r.setState(c, unknown)
	return nil
}

// FailSandbox ends the sandbox's own process: it is not ready any more. Its
// containers run on and its address stays until somebody stops it.
func (r *Runtime) FailSandbox(sandboxID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(sandboxID)
	if err != nil {
		return err
	}
	r.exitSandbox(sb)
	return nil
}

// LoseIP takes a ready sandbox's address away. No event says so.
func (r *Runtime) LoseIP(sandboxID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.findSandbox(sandboxID)
	if err != nil {
		return err
	}
	if sb.host != 0 {
		r.ips.release(sb.host)
		sb.host = 0
	}
	return nil
}

// FindContainer returns the newest instance of the named container of a pod,
// by the labels that agents set.
func (r *Runtime) FindContainer(podUID, name string) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *container
	for c := range r.containersUID[podUID] {
		if c.config.GetLabels()[observed.LabelContainerName] == name && (newest == nil || c.seq > newest.seq) {
			newest = c
		}
	}
	if newest == nil {
		return "", false
	}
	return newest.id, true
}

// FindSandbox returns the newest sandbox of a pod.
func (r *Runtime) FindSandbox(podUID string) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var newest *sandbox
	for sb := range r.sandboxesUID[podUID] {
		if newest == nil || sb.seq > newest.seq {
			newest = sb
		}
	}
	if newest == nil {
		return "", false
	}
	return newest.id, true
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// agent is the running fullnode.
type agent struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed after err is set
	err  error
}

func (n *node) startAgent(flags []string) (*agent, error) {
	log, err := os.Create(n.log)
	if err != nil {
		return nil, fmt.Errorf("start fullnode: %w", err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(n.binary, append([]string{
		"--config", n.config, "--root-dir", n.root, "--hostname-override", "devnode",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start fullnode: %w", err)
	}
	a := &agent{cmd: cmd, log: n.log, done: make(chan struct{})}
	go func() { // ends with the process, which stop waits for
		a.err = cmd.Wait()
		close(a.done)
	}()
	return a, nil
}

// stop asks fullnode to end, which leaves its pods running, and waits.
func (a *agent) stop() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-a.done:
		return nil
	case <-time.After(20 * time.Second):
	}
	_ = a.cmd.Process.Kill()
	<-a.done
	return fmt.Errorf("stop fullnode: it ignored SIGTERM for 20 s and was killed; see %s", a.log)
}

// tail is the end of a file, for an error message.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

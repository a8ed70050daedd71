package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/kubeletkit/kubeletkit/test/containerd"
)

// bench is one agent on its containerd, beside another one for direct calls.
type bench struct {
	o      options
	t      *table
	dirs   []string
	under  *containerd.Daemon // the agent's
	bare   *containerd.Daemon // for direct calls
	agent  *agent
	direct *direct
	made   int
}

func (b *bench) seen() runtimeOf { return runtimeOf{b.under.Runtime()} }

// names returns n names that no pod had before.
func (b *bench) names(n int) []string {
	var names []string
	for range n {
		b.made++
		names = append(names, fmt.Sprintf("pod-%d", b.made))
	}
	return names
}

// all is the whole work. The burst leaves its pods for the kills and the removal.
func (b *bench) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		b.binary, b.startAndIdle, b.firstContainer, b.oneAtATime, b.bursts, b.kills, b.removal, b.steadyState, b.restart,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) binary(context.Context) error {
	info, err := os.Stat(b.agent.binary)
	if err != nil {
		return err
	}
	b.t.add(row{what: "binary", agent: fmt.Sprintf("%.1f MB", float64(info.Size())/1e6)})
	return nil
}

// startAndIdle leaves the agent stopped.
func (b *bench) startAndIdle(ctx context.Context) error {
	var healthy times
	for i := range b.o.starts {
		if i > 0 {
			if err := b.agent.stop(); err != nil {
				return err
			}
		}
		begin := time.Now()
		if err := b.startHealthy(ctx); err != nil {
			return err
		}
		healthy = append(healthy, time.Since(begin))
	}
	b.t.add(row{what: "start to healthy", agent: healthy.String(), goal: "200ms"})
	if err := pause(ctx, b.o.settle); err != nil {
		return err
	}
	idle, err := watch(ctx, b.agent.cmd.Process.Pid, b.o.idle)
	if err != nil {
		return err
	}
	b.t.add(row{what: "idle, 0 pods", agent: idle.String(), goal: "0.1 % CPU, 5 switches/s, 30 MiB"})
	return b.agent.stop()
}

func (b *bench) startHealthy(ctx context.Context) error {
	if err := b.agent.start(); err != nil {
		return err
	}
	return b.agent.waitHealthy(ctx)
}

// firstContainer starts the agent on one manifest, again and again. From the
// first of these pods the direct calls learn what to ask for. It leaves the agent
// running.
func (b *bench) firstContainer(ctx context.Context) error {
	var agent, direct times
	for range b.o.starts {
		if err := b.agent.stop(); err != nil {
			return err
		}
		pods := b.names(1)
		if _, err := b.agent.write(pods...); err != nil {
			return err
		}
		begin := time.Now()
		if err := b.agent.start(); err != nil {
			return err
		}
		at, err := b.seen().waitRunning(ctx, 1)
		if err != nil {
			return err
		}
		agent = append(agent, at.Sub(begin))
		if b.direct.container == nil {
			list, err := b.seen().running(ctx, "")
			if err != nil {
				return err
			}
			if err := b.direct.learn(ctx, b.seen(), list[0]); err != nil {
				return err
			}
		}
		if err := b.agent.waitHealthy(ctx); err != nil {
			return err
		}
		if err := b.removeAgentPods(ctx, pods); err != nil {
			return err
		}
		took, err := b.directPods(ctx, 1, 1)
		if err != nil {
			return err
		}
		direct = append(direct, took)
		if _, err := b.direct.removeAll(ctx, 1); err != nil {
			return err
		}
	}
	b.t.add(row{
		what: "process start to first container", agent: agent.String(), direct: direct.String(),
		compared: more(agent.at(50), direct.at(50)), goal: "+150ms",
	})
	return nil
}

func (b *bench) directPods(ctx context.Context, n, parallel int) (time.Duration, error) {
	begin, last, err := b.direct.run(ctx, n, parallel)
	return last.Sub(begin), err
}

// removeAgentPods takes manifests away and waits until nothing of theirs runs, and
// a while longer for what is left, so that clearing away does not get into the next
// measurement.
func (b *bench) removeAgentPods(ctx context.Context, pods []string) error {
	if _, err := b.agent.remove(pods...); err != nil {
		return err
	}
	var stopped time.Time
	return wait(ctx, 5*time.Minute, 25*time.Millisecond, func() (bool, error) {
		ready, all, err := b.seen().sandboxes(ctx)
		if ready == 0 && stopped.IsZero() {
			stopped = time.Now()
		}
		// The kubelet clears away once a minute: that is not waited for.
		return all == 0 || ready == 0 && time.Since(stopped) > 10*time.Second, err
	})
}

// oneAtATime takes turns between the agent and direct calls.
func (b *bench) oneAtATime(ctx context.Context) error {
	var agent, direct times
	all := b.names(b.o.singles)
	one := func(i int) error {
		begin, err := b.agent.write(all[i])
		if err != nil {
			return err
		}
		at, err := b.seen().waitRunning(ctx, i+1)
		agent = append(agent, at.Sub(begin))
		return err
	}
	other := func(int) error {
		took, err := b.directPods(ctx, 1, 1)
		direct = append(direct, took)
		return err
	}
	for i := range all {
		turns := []func(int) error{one, other}
		if i%2 == 1 {
			turns[0], turns[1] = other, one
		}
		for _, turn := range turns {
			if err := pause(ctx, 700*time.Millisecond); err != nil {
				return err
			}
			if err := turn(i); err != nil {
				return err
			}
		}
	}
	b.t.add(row{
		what: "manifest to started, one at a time", agent: agent.String(), direct: direct.String(),
		compared: ratio(agent, direct), goal: "1.05",
	})
	if err := b.removeAgentPods(ctx, all); err != nil {
		return err
	}
	_, err := b.direct.removeAll(ctx, 2)
	return err
}

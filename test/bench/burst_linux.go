package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// fastest finds out how many direct calls at once are the fastest here.
func (b *bench) fastest(ctx context.Context) (int, error) {
	n := b.o.burst
	tried := map[int]times{}
	for range b.o.calibrations {
		for _, parallel := range b.o.parallel {
			took, err := b.directPods(ctx, n, parallel)
			if err != nil {
				return 0, err
			}
			tried[parallel] = append(tried[parallel], took)
			if _, err := b.direct.removeAll(ctx, 2); err != nil {
				return 0, err
			}
		}
	}
	best := b.o.parallel[0]
	var rates []string
	for _, parallel := range b.o.parallel {
		rates = append(rates, fmt.Sprintf("%.2f at %d", perSecond(n, tried[parallel]), parallel))
		if total(tried[parallel]) < total(tried[best]) {
			best = parallel
		}
	}
	b.t.add(row{what: "direct calls at once, to find the best", direct: strings.Join(rates, ", ") + " pods/s"})
	return best, nil
}

// bursts has many pods started at once, by the agent and by the best number of
// direct calls in turns. That number is found before, so that the choice is not made
// by the luck of the rounds that count. The pods of the last round stay.
func (b *bench) bursts(ctx context.Context) error {
	best, err := b.fastest(ctx)
	if err != nil {
		return err
	}
	b.direct.best = best
	n := b.o.burst
	var agent, direct times
	turns := []func(context.Context) error{
		func(ctx context.Context) error {
			took, err := b.agentBurst(ctx)
			agent = append(agent, took)
			return err
		},
		func(ctx context.Context) error {
			took, err := b.directPods(ctx, n, best)
			direct = append(direct, took)
			return err
		},
	}
	for round := range b.o.bursts {
		if round > 0 {
			if err := b.removeAgentPods(ctx, b.written()); err != nil {
				return err
			}
			if _, err := b.direct.removeAll(ctx, 2); err != nil {
				return err
			}
		}
		slices.Reverse(turns) // the second has more pods beside it
		for _, turn := range turns {
			if err := pause(ctx, 2*time.Second); err != nil {
				return err
			}
			if err := turn(ctx); err != nil {
				return err
			}
		}
	}
	var pairs []float64
	for i := range agent {
		pairs = append(pairs, float64(direct[i])/float64(agent[i]))
	}
	b.t.add(row{
		what:  fmt.Sprintf("%d pods at once", n),
		agent: fmt.Sprintf("%.2f pods/s", perSecond(n, agent)), direct: fmt.Sprintf("%.2f pods/s at %d in parallel", perSecond(n, direct), best),
		compared: fmt.Sprintf("%.2f of the rate (median of pairs %.2f)", perSecond(n, agent)/perSecond(n, direct), middle(pairs)), goal: "0.95",
	})
	return nil
}

// agentBurst writes many manifests at once.
func (b *bench) agentBurst(ctx context.Context) (time.Duration, error) {
	begin, err := b.agent.write(b.names(b.o.burst)...)
	if err != nil {
		return 0, err
	}
	at, err := b.seen().waitRunning(ctx, b.o.burst)
	return at.Sub(begin), err
}

func perSecond(n int, took times) float64 { return float64(n*len(took)) / total(took).Seconds() }

// written are the pods whose manifests are there.
func (b *bench) written() []string {
	files, _ := filepath.Glob(b.agent.file("*"))
	var pods []string
	for _, f := range files {
		pods = append(pods, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	return pods
}

func total(t times) time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum
}

// kills ends containers from behind, each once, so that no back-off counts.
func (b *bench) kills(ctx context.Context) error {
	running, err := b.seen().running(ctx, "")
	if err != nil {
		return err
	}
	var agent, direct, start times
	for i, c := range running[:min(b.o.kills, len(running))] {
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		took, err := b.killOne(ctx, c)
		if err != nil {
			return err
		}
		agent = append(agent, took)
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
		whole, alone, err := b.direct.restart(ctx, b.direct.pods[i])
		if err != nil {
			return err
		}
		direct, start = append(direct, whole), append(start, alone)
	}
	b.t.add(row{
		what: "container killed to restarted", agent: agent.String(), direct: direct.String() + ", of it create and start p50 " + short(start.at(50)),
		compared: more(agent.at(50), direct.at(50)) + ", over create and start " + more(agent.at(50), start.at(50)), goal: "+50ms",
	})
	b.t.expect(agent.at(100) < 5*time.Second, "a killed container took %v to come back", agent.at(100))
	return nil
}

// killOne returns the time from the signal to the start of the next instance.
func (b *bench) killOne(ctx context.Context, c *cri.Container) (time.Duration, error) {
	info, err := b.seen().container(ctx, c.Id)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := syscall.Kill(info.Pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	next := ""
	err = wait(ctx, time.Minute, 20*time.Millisecond, func() (bool, error) {
		now, err := b.seen().running(ctx, c.Labels[observed.LabelPodUID])
		for _, n := range now {
			if n.Id != c.Id {
				next = n.Id
			}
		}
		return next != "", err
	})
	if err != nil {
		return 0, fmt.Errorf("a killed container does not come back: %w", err)
	}
	at, err := b.seen().startedAt(ctx, next)
	return at.Sub(begin), err
}

// removal takes all manifests away at once.
func (b *bench) removal(ctx context.Context) error {
	pods := b.written()
	begin, err := b.agent.remove(pods...)
	if err != nil {
		return err
	}
	var stopped time.Duration
	gone := "nothing left "
	err = wait(ctx, 5*time.Minute, 25*time.Millisecond, func() (bool, error) {
		ready, all, err := b.seen().sandboxes(ctx)
		if ready == 0 && stopped == 0 {
			stopped = time.Since(begin)
		}
		return all == 0, err
	})
	took := time.Since(begin)
	if err == nil {
		gone += short(took)
	} else {
		gone += err.Error()
	}
	b.t.expect(stopped > 0, "not all pods of removed manifests end")
	direct, err := b.direct.removeAll(ctx, b.direct.best)
	if err != nil {
		return err
	}
	b.t.add(row{
		what: fmt.Sprintf("%d manifests removed", len(pods)), agent: "nothing runs " + short(stopped) + ", " + gone,
		direct: short(direct), compared: more(took, direct), goal: "+1s",
	})
	return nil
}

// steadyState is measured with probes only if they were asked for.
func (b *bench) steadyState(ctx context.Context) error {
	if _, err := b.agent.write(b.names(b.o.pods)...); err != nil {
		return err
	}
	if _, err := b.seen().waitRunning(ctx, b.o.pods); err != nil {
		return err
	}
	if err := pause(ctx, b.o.settle); err != nil {
		return err
	}
	steady, err := watch(ctx, b.agent.cmd.Process.Pid, b.o.steady)
	if err != nil {
		return err
	}
	what := "no probes"
	if b.o.probes {
		what = "two probes each at 2 s"
	}
	b.t.add(row{what: fmt.Sprintf("steady, %d pods, %s", b.o.pods, what), agent: steady.String()})
	return nil
}

// restart ends the agent and starts it again over running pods, then takes all
// pods down.
func (b *bench) restart(ctx context.Context) error {
	before, err := b.running(ctx)
	if err != nil {
		return err
	}
	if err := b.agent.stop(); err != nil {
		return err
	}
	begin := time.Now()
	if err := b.startHealthy(ctx); err != nil {
		return err
	}
	healthy := time.Since(begin)
	if err := pause(ctx, b.o.settle); err != nil {
		return err
	}
	after, err := b.running(ctx)
	if err != nil {
		return err
	}
	kept := 0
	for id := range before {
		if after[id] {
			kept++
		}
	}
	b.t.add(row{
		what:  fmt.Sprintf("agent restart over %d pods", b.o.pods),
		agent: fmt.Sprintf("healthy after %s, %d of %d containers kept", short(healthy), kept, len(before)), goal: "all",
	})
	b.t.expect(kept == len(before) && len(after) == len(before), "an agent's restart kept %d of %d containers, %d run now", kept, len(before), len(after))
	return b.removeAgentPods(ctx, b.written())
}

func (b *bench) running(ctx context.Context) (map[string]bool, error) {
	list, err := b.seen().running(ctx, "")
	ids := map[string]bool{}
	for _, c := range list {
		ids[c.Id] = true
	}
	return ids, err
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/containerd"
	"github.com/kubeletkit/kubeletkit/test/repo"
)

// options are the flags, and the amounts of work that follow from them.
type options struct {
	agents     []string
	containerd string
	pods       int
	quick      bool
	probes     bool
	cgroupRoot string
	out        string

	starts   int // of the agent, without pods and with one
	singles  int // pods one at a time
	burst    int
	bursts   int   // rounds
	parallel []int // direct calls at once
	// calibrations is how often each parallelism is tried.
	calibrations int
	kills        int
	settle       time.Duration // before a steady state is measured
	idle         time.Duration // how long it is measured, without pods
	steady       time.Duration // and with: agents look at every pod again every 60 to 90 s
}

func main() {
	// Children ask to be ended when the thread that started them ends.
	runtime.LockOSThread()
	o := options{}
	flag.Func("agent", "agent `binary`, may come several times (default: fullnode, built from this tree)", func(s string) error {
		o.agents = append(o.agents, s)
		return nil
	})
	flag.StringVar(&o.containerd, "containerd", "system", "system, or v2 for a current 2.x")
	flag.IntVar(&o.pods, "pods", 100, "pods of the steady state")
	flag.BoolVar(&o.quick, "quick", false, "a check in two minutes: few rounds, 8 pods, short steady states")
	flag.BoolVar(&o.probes, "probes", false, "two probes per container, each every 2 s")
	flag.StringVar(&o.cgroupRoot, "cgroup-root", "/", "cgroupRoot of the configuration; made, and removed afterwards")
	flag.StringVar(&o.out, "o", "", "write the tables to this `file`, as Markdown")
	flag.Parse()
	o.amounts()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o *options) amounts() {
	o.starts, o.singles, o.burst, o.bursts, o.calibrations, o.kills = 5, 30, 20, 6, 2, 20
	o.parallel = []int{1, 2, 4, 8}
	o.settle, o.idle, o.steady = 15*time.Second, time.Minute, 3*time.Minute
	if o.quick {
		o.starts, o.singles, o.burst, o.bursts, o.calibrations, o.kills = 2, 3, 6, 1, 1, 3
		o.parallel = []int{2, 4}
		o.settle, o.idle, o.steady = 5*time.Second, 10*time.Second, 10*time.Second
		o.pods = min(o.pods, 8)
	}
}

func run(ctx context.Context, o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("containerd needs root")
	}
	binary, err := chosen(ctx, o.containerd)
	if err != nil {
		return err
	}
	if len(o.agents) == 0 {
		fullnode, err := repo.Dev("bench", "fullnode")
		if err != nil {
			return err
		}
		if err := repo.Build(ctx, ".", fullnode, "./examples/fullnode"); err != nil {
			return err
		}
		o.agents = []string{fullnode}
	}
	removeRoot, err := makeCgroupRoot(o.cgroupRoot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeRoot()) }()
	report := &report{machine: machine(binary.Version), options: o}
	for _, agent := range o.agents {
		table := report.table(filepath.Base(agent))
		if err := measure(ctx, o, binary, agent, table); err != nil {
			return fmt.Errorf("measure %s: %w", agent, err)
		}
	}
	if o.out != "" {
		if err := os.WriteFile(o.out, []byte(report.markdown()), 0o644); err != nil {
			return err
		}
	}
	return report.broken()
}

func chosen(ctx context.Context, name string) (containerd.Binary, error) {
	switch name {
	case "system":
		return containerd.System(ctx)
	case "v2":
		return containerd.V2(ctx)
	}
	return containerd.Binary{}, fmt.Errorf("-containerd %s: must be system or v2", name)
}

// measure takes one agent through all the work, on two fresh containerds.
func measure(ctx context.Context, o options, binary containerd.Binary, agentBinary string, t *table) (err error) {
	b := &bench{o: o, t: t}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, d := range []struct {
		name string
		to   **containerd.Daemon
	}{{"agent", &b.under}, {"direct", &b.bare}} {
		dir, err := repo.Dev("bench", d.name+"-"+binary.Name)
		if err != nil {
			return err
		}
		b.dirs = append(b.dirs, dir)
		if *d.to, err = containerd.Start(ctx, containerd.Config{Dir: dir, Binary: binary.Path}); err != nil {
			return err
		}
	}
	work, err := repo.Dev("bench", "work")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if b.agent, err = newAgent(agentBinary, filepath.Join(work, "agent"), b.under, o); err != nil {
		return err
	}
	b.direct = &direct{dir: filepath.Join(work, "direct"), runtime: runtimeOf{b.bare.Runtime()}}
	if err := b.all(ctx); err != nil {
		return fmt.Errorf("%w\nthe agent's last words:\n%s", err, b.agent.tail())
	}
	return nil
}

// close takes everything down and says what is left of it.
func (b *bench) close() error {
	var errs []error
	if b.agent != nil {
		errs = append(errs, b.agent.stop())
	}
	for _, d := range []*containerd.Daemon{b.under, b.bare} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	if b.agent != nil {
		errs = append(errs, b.agent.cleanUp())
	}
	for _, dir := range b.dirs {
		if left := containerd.Leftovers(dir); len(left) > 0 {
			errs = append(errs, fmt.Errorf("left on the machine:\n  %s", strings.Join(left, "\n  ")))
		}
	}
	return errors.Join(errs...)
}

// makeCgroupRoot makes the cgroup in every hierarchy of cgroup v1, or in the one
// of v2. The function it returns removes it, with what an agent made in it.
func makeCgroupRoot(root string) (remove func() error, err error) {
	if filepath.Clean(root) == "/" {
		return func() error { return nil }, nil
	}
	var made []string
	for _, at := range hierarchies() {
		dir := filepath.Join(at, root)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the cgroup root: %w", err)
		}
		made = append(made, dir)
	}
	return func() error {
		var errs []error
		for _, dir := range made {
			errs = append(errs, removeCgroups(dir))
		}
		return errors.Join(errs...)
	}, nil
}

func hierarchies() []string {
	const at = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(at, "cgroup.controllers")); err == nil {
		return []string{at}
	}
	entries, _ := os.ReadDir(at)
	var all []string
	for _, e := range entries {
		if e.IsDir() { // the others are links to these
			all = append(all, filepath.Join(at, e.Name()))
		}
	}
	return all
}

func removeCgroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

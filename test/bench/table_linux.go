package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// report is one table for each agent.
type report struct {
	machine string
	options options
	tables  []*table
}

type table struct {
	agent  string
	rows   []row
	broken []string
}

// row is one measurement. direct and compared may be empty.
type row struct{ what, agent, direct, compared, goal string }

func (r *report) table(agent string) *table {
	t := &table{agent: agent}
	r.tables = append(r.tables, t)
	return t
}

// add keeps the row and prints it, since the next one may take minutes.
func (t *table) add(r row) {
	t.rows = append(t.rows, r)
	line := fmt.Sprintf("%-10s %-46s %s", t.agent, r.what, r.agent)
	for _, more := range []string{prefixed("direct ", r.direct), r.compared, prefixed("goal ", r.goal)} {
		if more != "" {
			line += "; " + more
		}
	}
	fmt.Println(line)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// expect notes a promise that must hold on any machine.
func (t *table) expect(holds bool, format string, args ...any) {
	if !holds {
		t.broken = append(t.broken, t.agent+": "+fmt.Sprintf(format, args...))
	}
}

func (r *report) broken() error {
	var errs []error
	for _, t := range r.tables {
		for _, b := range t.broken {
			errs = append(errs, errors.New("broken promise: "+b))
		}
	}
	return errors.Join(errs...)
}

func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. p50 of %d starts, %d single pods, %d bursts, %d kills; idle for %.0f s, steady for %.0f s.\n",
		r.machine, r.options.starts, r.options.singles, r.options.bursts, r.options.kills, r.options.idle.Seconds(), r.options.steady.Seconds())
	for _, t := range r.tables {
		fmt.Fprintf(&b, "\n### %s\n\n| | agent | direct calls | compared | goal |\n|---|---|---|---|---|\n", t.agent)
		for _, row := range t.rows {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.what, row.agent, row.direct, row.compared, row.goal)
		}
		for _, broken := range t.broken {
			fmt.Fprintf(&b, "\n**Broken promise:** %s\n", broken)
		}
	}
	return b.String()
}

// machine tells what matters of this one, and not whose it is.
func machine(containerd string) string {
	kernel := "?"
	var u syscall.Utsname
	if err := syscall.Uname(&u); err == nil {
		text := make([]byte, 0, len(u.Release))
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			text = append(text, byte(c))
		}
		kernel = string(text)
	}
	cgroup := "v1"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroup = "v2"
	}
	return fmt.Sprintf("%d CPUs, Linux %s, cgroup %s, containerd %s, %s", runtime.NumCPU(), kernel, cgroup, containerd, runtime.Version())
}

// times are measurements of one kind.
type times []time.Duration

func (t times) at(percent int) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[(len(sorted)-1)*percent/100]
}

func (t times) String() string {
	return fmt.Sprintf("p50 %s, max %s", short(t.at(50)), short(t.at(100)))
}

// short shows three digits.
func short(d time.Duration) string {
	unit := time.Millisecond
	switch {
	case d.Abs() >= 10*time.Second:
		unit = 100 * time.Millisecond
	case d.Abs() >= time.Second:
		unit = 10 * time.Millisecond
	case d.Abs() < 10*time.Millisecond:
		unit = 100 * time.Microsecond
	}
	return d.Round(unit).String()
}

// more is a difference with its sign.
func more(a, b time.Duration) string {
	if a < b {
		return short(a - b)
	}
	return "+" + short(a-b)
}

// ratio compares two series of one run by their medians, and pair by pair: the
// machine is never equally fast for long, but it is so for two neighbours.
func ratio(agent, direct times) string {
	var pairs []float64
	for i := range agent {
		pairs = append(pairs, float64(agent[i])/float64(direct[i]))
	}
	return fmt.Sprintf("%.2f (median of pairs %.2f)", float64(agent.at(50))/float64(direct.at(50)), middle(pairs))
}

func middle(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

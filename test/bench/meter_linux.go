package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used so far, as the kernel counts it.
type usage struct {
	cpu      time.Duration
	switches int // voluntary ones of all threads: each is a wake-up
	rss      int // bytes
}

// clockTick is the unit of CPU times in /proc, the same on all Linux machines.
const clockTick = time.Second / 100

func usageOf(pid int) (usage, error) {
	var u usage
	dir := fmt.Sprintf("/proc/%d", pid)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	// The name, in brackets, may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, i := range []int{11, 12} { // user and system time
		ticks, err := strconv.Atoi(fields[i])
		if err != nil {
			return u, fmt.Errorf("read %s/stat: %w", dir, err)
		}
		u.cpu += time.Duration(ticks) * clockTick
	}
	kib, err := statusNumber(filepath.Join(dir, "status"), "VmRSS")
	if err != nil {
		return u, err
	}
	u.rss = kib << 10
	threads, err := filepath.Glob(filepath.Join(dir, "task/*/status"))
	if err != nil {
		return u, err
	}
	for _, t := range threads {
		n, err := statusNumber(t, "voluntary_ctxt_switches")
		if err != nil {
			continue // the thread has ended since
		}
		u.switches += n
	}
	return u, nil
}

func statusNumber(file, name string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.Atoi(strings.Fields(value)[0])
		}
	}
	return 0, fmt.Errorf("read %s: no %s", file, name)
}

// rate is what a process uses while nothing is asked of it.
type rate struct {
	cpu      float64 // percent of one CPU
	switches float64 // per second
	rss      float64 // MiB
}

func (r rate) String() string {
	return fmt.Sprintf("%.2f %% CPU, %.1f switches/s, %.0f MiB", r.cpu, r.switches, r.rss)
}

// watch measures a process for a while.
func watch(ctx context.Context, pid int, during time.Duration) (rate, error) {
	before, err := usageOf(pid)
	if err != nil {
		return rate{}, err
	}
	begin := time.Now()
	if err := pause(ctx, during); err != nil {
		return rate{}, err
	}
	after, err := usageOf(pid)
	if err != nil {
		return rate{}, err
	}
	seconds := time.Since(begin).Seconds()
	return rate{
		cpu:      100 * (after.cpu - before.cpu).Seconds() / seconds,
		switches: float64(after.switches-before.switches) / seconds,
		rss:      float64(after.rss) / (1 << 20),
	}, nil
}

package main

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMeminfo(t *testing.T) {
	got := meminfo("MemTotal:       16384 kB\nSwapTotal:       0 kB\nHugePages_Total:  3\n\nbroken\nBad: x kB\n")
	if diff := cmp.Diff(map[string]int64{"MemTotal": 16384 << 10, "SwapTotal": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLookAtMachine(t *testing.T) {
	m := lookAtMachine(t.TempDir() + "/not/there/yet")
	if got := m.capacity.Cpu().Value(); got != int64(runtime.NumCPU()) {
		t.Errorf("%d processors, want %d", got, runtime.NumCPU())
	}
	if runtime.GOOS != "linux" {
		return // nothing else is known there
	}
	if m.memory() <= 0 || m.capacity.StorageEphemeral().Value() <= 0 || m.kernel == "" {
		t.Errorf("memory %d, disk %d, kernel %q: want all known", m.memory(), m.capacity.StorageEphemeral().Value(), m.kernel)
	}
}

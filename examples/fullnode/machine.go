package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// machine is what the node is made of. It is looked at once: processors and
// memory that come and go while the agent runs are for its restart.
type machine struct {
	// capacity has cpu, memory, ephemeral-storage and hugepages-<size>, as far as
	// they could be found out.
	capacity corev1.ResourceList
	swap     int64 // bytes
	// swapControlled is true when the kernel can bound swap per cgroup.
	swapControlled bool
	kernel         string // release, for example 6.1.0-13-amd64
	cgroupV2       bool
	appArmor       bool
}

// lookAtMachine asks the kernel. What it does not tell is left out.
func lookAtMachine(rootDir string) machine {
	m := machine{capacity: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)}}
	memory := meminfo(readLine("/proc/meminfo"))
	if n := memory["MemTotal"]; n > 0 {
		m.capacity[corev1.ResourceMemory] = *resource.NewQuantity(n, resource.BinarySI)
	}
	m.swap = memory["SwapTotal"]
	if n := diskSize(rootDir); n > 0 {
		m.capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(n, resource.BinarySI)
	}
	pools, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB") // the pattern is well formed
	for _, pool := range pools {
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(pool), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, _ := strconv.ParseInt(readLine(filepath.Join(pool, "nr_hugepages")), 10, 64) // none, if it can't be read
		size := resource.NewQuantity(kib<<10, resource.BinarySI)
		m.capacity[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kib<<10, resource.BinarySI)
	}
	m.kernel = readLine("/proc/sys/kernel/osrelease")
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	m.cgroupV2 = err == nil
	// The root of v2 has no such file, but every cgroup below it.
	for _, pattern := range []string{"/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "/sys/fs/cgroup/*/memory.swap.max"} {
		found, _ := filepath.Glob(pattern) // the patterns are well formed
		m.swapControlled = m.swapControlled || len(found) > 0
	}
	m.appArmor = strings.HasPrefix(readLine("/sys/module/apparmor/parameters/enabled"), "Y")
	return m
}

func (m machine) memory() int64 { return m.capacity.Memory().Value() }

// meminfo reads lines like "MemTotal:  16384 kB" into bytes.
func meminfo(text string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		number, isKiB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err == nil && isKiB {
			all[name] = n << 10
		}
	}
	return all
}

// readLine is the file without blanks at its ends, empty if it can't be read.
func readLine(file string) string {
	data, _ := os.ReadFile(file)
	return strings.TrimSpace(string(data))
}

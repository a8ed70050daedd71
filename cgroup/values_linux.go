package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
)

// native are the values in the library's words. There 0 is what nil is here, and
// no value of ours is 0 but those of v2, which go the way of a text.
func (k *linux) native(r Resources) *cgroups.Resources {
	n := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true, PidsLimit: r.Pids}
	if r.CPUShares != nil {
		n.CpuShares = uint64(*r.CPUShares)
		n.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(n.CpuShares)
	}
	if r.CPUQuota != nil {
		n.CpuQuota = *r.CPUQuota
		if r.CPUPeriod != nil {
			n.CpuPeriod = uint64(*r.CPUPeriod)
		}
	}
	if r.Memory != nil {
		n.Memory = *r.Memory
	}
	for _, size := range slices.Sorted(maps.Keys(r.Hugepages)) {
		n.HugetlbLimit = append(n.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: uint64(r.Hugepages[size])})
	}
	if !k.v2 {
		return n
	}
	n.CpuShares = 0
	for file, bytes := range map[string]*int64{"memory.min": r.MemoryMin, "memory.low": r.MemoryLow, "memory.high": r.MemoryHigh} {
		if bytes == nil {
			continue
		}
		if n.Unified == nil {
			n.Unified = map[string]string{}
		}
		n.Unified[file] = "max"
		if *bytes != Unlimited {
			n.Unified[file] = strconv.FormatInt(*bytes, 10)
		}
	}
	return n
}

func (k *linux) usage(name string) (int64, error) {
	dir, err := k.path(name, "memory")
	if err != nil {
		return 0, err
	}
	file := "memory.usage_in_bytes"
	if k.v2 {
		file = "memory.current"
	}
	n, err := number(dir, file)
	if n == nil && err == nil {
		err = fmt.Errorf("%s/%s: %w", dir, file, fs.ErrNotExist)
	}
	if err != nil {
		return 0, err
	}
	return *n, nil
}

func (k *linux) read(name string) (Resources, error) {
	if k.v2 {
		return k.readV2(name)
	}
	var r Resources
	var errs []error
	for _, v := range []struct {
		controller, file string
		to               **int64
	}{
		{"cpu", "cpu.shares", &r.CPUShares},
		{"cpu", "cpu.cfs_quota_us", &r.CPUQuota},
		{"cpu", "cpu.cfs_period_us", &r.CPUPeriod},
		{"memory", "memory.limit_in_bytes", &r.Memory},
		{"pids", "pids.max", &r.Pids},
	} {
		dir, err := k.path(name, v.controller)
		if err == nil {
			*v.to, err = number(dir, v.file)
		}
		errs = append(errs, err)
	}
	// The kernel's word for no limit is the largest number of whole pages.
	if r.Memory != nil && *r.Memory >= unbounded {
		r.Memory = new(Unlimited)
	}
	return r, errors.Join(errs...)
}

func (k *linux) readV2(name string) (Resources, error) {
	dir, err := k.path(name, "")
	if err != nil {
		return Resources{}, err
	}
	var r Resources
	var errs []error
	for file, to := range map[string]**int64{
		"cpu.weight":  &r.CPUShares,
		"memory.max":  &r.Memory,
		"memory.min":  &r.MemoryMin,
		"memory.low":  &r.MemoryLow,
		"memory.high": &r.MemoryHigh,
		"pids.max":    &r.Pids,
	} {
		n, err := number(dir, file)
		*to = n
		errs = append(errs, err)
	}
	if r.CPUShares != nil {
		r.CPUShares = new(sharesOf(*r.CPUShares))
	}
	text, err := cgroups.ReadFile(dir, "cpu.max")
	if quota, period, ok := strings.Cut(strings.TrimSpace(text), " "); ok {
		q, errQ := parse(quota)
		p, errP := parse(period)
		r.CPUQuota, r.CPUPeriod = &q, &p
		err = errors.Join(err, errQ, errP)
	}
	return r, errors.Join(append(errs, err)...)
}

// sharesOf are the fewest shares that become the weight.
func sharesOf(weight int64) int64 {
	const most = 262144
	return leastShares + int64(sort.Search(most-int(leastShares), func(i int) bool {
		return cgroups.ConvertCPUSharesToCgroupV2Value(uint64(leastShares)+uint64(i)) >= uint64(weight)
	}))
}

// number reads a file of one number. A file that this kernel lacks is nil.
func number(dir, file string) (*int64, error) {
	text, err := cgroups.ReadFile(dir, file)
	if errors.Is(err, fs.ErrNotExist) && cgroups.PathExists(dir) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := parse(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", dir, file, err)
	}
	return &n, nil
}

func parse(text string) (int64, error) {
	if text == "max" {
		return Unlimited, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

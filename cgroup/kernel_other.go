//go:build !linux

package cgroup

import (
	"fmt"
	"runtime"
)

func openKernel(Config) (kernel, error) {
	return nil, fmt.Errorf("cgroup: %s has no cgroups; set Config.PerQOS to false (cgroupsPerQOS)", runtime.GOOS)
}

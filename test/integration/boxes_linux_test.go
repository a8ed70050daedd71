package integration_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const cgroups = "/sys/fs/cgroup"

// unified is true on a machine with cgroup v2.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
	return err == nil
}

// box is a cgroup, by its path below the mount points.
type box string

// kubepods is the cgroup of all pods of an agent.
func kubepods(parts ...string) box {
	return box(path.Join(append([]string{the.daemon.CgroupRoot(), "kubepods"}, parts...)...))
}

// Box is where the pod has to be, by the kubelet's names.
func (s sight) Box(tier ...string) box {
	return kubepods(append(tier, "pod"+string(s.Pod.UID))...)
}

// exists reports whether any hierarchy has the cgroup.
func (b box) exists() bool {
	pattern := filepath.Join(cgroups, "*", string(b))
	if unified() {
		pattern = filepath.Join(cgroups, string(b))
	}
	found, _ := filepath.Glob(pattern)
	return len(found) > 0
}

func (b box) read(t *testing.T, controller, file string) string {
	t.Helper()
	if unified() {
		controller = ""
	}
	data, err := os.ReadFile(filepath.Join(cgroups, controller, string(b), file))
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

// number reads a limit; none is -1.
func number(t *testing.T, text string) int64 {
	t.Helper()
	if text == "max" {
		return -1
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	if n > 1<<60 { // cgroup v1's word for no limit of memory
		return -1
	}
	return n
}

// limits are what the kernel was told. Without is -1.
type limits struct {
	shares        int64 // 0 is not compared
	quota, period int64 // period 0 is not compared
	memory        int64
}

// wantLimits compares the kernel's values with those of a manifest.
func (b box) wantLimits(t *testing.T, want limits) {
	t.Helper()
	var quota, period, memory int64
	if unified() {
		q, p, _ := strings.Cut(b.read(t, "", "cpu.max"), " ")
		quota, period = number(t, q), number(t, p)
		memory = number(t, b.read(t, "", "memory.max"))
	} else {
		quota, period = number(t, b.read(t, "cpu", "cpu.cfs_quota_us")), number(t, b.read(t, "cpu", "cpu.cfs_period_us"))
		memory = number(t, b.read(t, "memory", "memory.limit_in_bytes"))
	}
	if want.shares != 0 {
		b.wantShares(t, want.shares)
	}
	require.Equal(t, want.quota, quota, "CPU quota of %s", b)
	if want.period != 0 {
		require.Equal(t, want.period, period, "CPU period of %s", b)
	}
	require.Equal(t, want.memory, memory, "memory limit of %s", b)
}

func (b box) shares(t *testing.T) int64 {
	t.Helper()
	return number(t, b.read(t, "cpu", "cpu.shares"))
}

// wantShares compares cpu.shares. On cgroup v2 they become a weight, by one of two
// formulas: the old one is a straight line, the new one keeps 1024 at 100.
func (b box) wantShares(t *testing.T, want int64) {
	t.Helper()
	if !unified() {
		require.Equal(t, want, b.shares(t), "cpu.shares of %s", b)
		return
	}
	weight := number(t, b.read(t, "", "cpu.weight"))
	line := 1 + (want-2)*9999/262142
	l := math.Log2(float64(want))
	curve := int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
	require.Contains(t, []int64{line, curve}, weight, "cpu.weight of %s", b)
}

// pids is the number of processes that may be in the cgroup.
func (b box) pids(t *testing.T) int64 {
	t.Helper()
	return number(t, b.read(t, "pids", "pids.max"))
}

// pods are the names of the pods' cgroups in this one, in any hierarchy.
func (b box) pods() []string {
	pattern := filepath.Join(cgroups, "*", string(b), "pod*")
	if unified() {
		pattern = filepath.Join(cgroups, string(b), "pod*")
	}
	found, _ := filepath.Glob(pattern)
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// asked is what the runtime was told of a container, and what it made of it.
type asked struct {
	Pid         int
	Config      cri.ContainerConfig
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int `json:"oomScoreAdj"`
		}
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		}
	} `json:"runtimeSpec"`
}

// Asked is the container's configuration as the agent gave it.
func (s sight) Asked(t *testing.T, name string) *asked {
	t.Helper()
	answer, err := the.daemon.Runtime().ContainerStatus(look(t), &cri.ContainerStatusRequest{ContainerId: s.Container(t, name).Id, Verbose: true})
	require.NoError(t, err)
	a := &asked{}
	require.NoError(t, json.Unmarshal([]byte(answer.Info["info"]), a))
	return a
}

// OOMScore is what the agent asked for. The tests' runtime may not go below its
// own score, so it can't be seen from inside.
func (s sight) OOMScore(t *testing.T, name string) int64 {
	t.Helper()
	return s.Asked(t, name).Config.GetLinux().GetResources().GetOomScoreAdj()
}

// SandboxAsked is the sandbox's configuration as the agent gave it.
func (s sight) SandboxAsked(t *testing.T) *cri.PodSandboxConfig {
	t.Helper()
	answer, err := the.daemon.Runtime().PodSandboxStatus(look(t), &cri.PodSandboxStatusRequest{PodSandboxId: s.Sandbox(t).Id, Verbose: true})
	require.NoError(t, err)
	var info struct{ Config cri.PodSandboxConfig }
	require.NoError(t, json.Unmarshal([]byte(answer.Info["info"]), &info))
	return &info.Config
}

// ContainerBox is the container's cgroup: by its name as the runtime has it, and
// inside the pod's.
func (s sight) ContainerBox(t *testing.T, name string) box {
	t.Helper()
	b := box(s.Asked(t, name).RuntimeSpec.Linux.CgroupsPath)
	require.Contains(t, string(b), "/pod"+string(s.Pod.UID)+"/", "the container's cgroup")
	return b
}

// nodeMemory is the machine's, in bytes.
func nodeMemory(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	require.NoError(t, err)
	var kib int64
	_, err = fmt.Sscanf(string(data), "MemTotal: %d kB", &kib)
	require.NoError(t, err)
	return kib << 10
}

// runs waits for a pod that runs, with all its containers started.
func runs(p corev1.Pod) error {
	if err := inPhase(corev1.PodRunning)(p); err != nil {
		return err
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil {
			return fmt.Errorf("container %s does not run: %s", c.Name, states(p))
		}
	}
	return nil
}

package integration_test

import (
	"fmt"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const mib = 1 << 20

// sleeps is a container with these resources. Requests are small: all pods of a
// table have to fit on the node together.
func sleeps(name, resources string) string {
	return "  - {name: " + name + ", image: KK, args: [sleep, forever], resources: " + resources + "}\n"
}

// resources is an observation of the limits of a pod that runs.
func resources(name, spec string, qos corev1.PodQOSClass, check func(t *testing.T, s sight, pod box)) observation {
	return observation{name: name, spec: spec, until: runs, check: func(t *testing.T, s sight) {
		require.Equal(t, qos, s.Pod.Status.QOSClass)
		tier := map[corev1.PodQOSClass][]string{corev1.PodQOSBurstable: {"burstable"}, corev1.PodQOSBestEffort: {"besteffort"}}[qos]
		pod := s.Box(tier...)
		require.Equal(t, string(pod), s.SandboxAsked(t).GetLinux().GetCgroupParent())
		require.True(t, pod.exists(), "cgroup %s is not there", pod)
		check(t, s, pod)
	}}
}

func TestObserveResources(t *testing.T) {
	const apps = "  containers:\n"
	observe(t, Options{Config: map[string]any{"podPidsLimit": 700}}, []observation{
		resources("a Guaranteed pod is in kubepods itself, and bounded as its container is", apps+
			sleeps("c", "{limits: {cpu: 50m, memory: 32Mi}, requests: {cpu: 50m, memory: 32Mi}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				want := limits{shares: 51, quota: 5000, period: 100_000, memory: 32 * mib}
				pod.wantLimits(t, want)
				s.ContainerBox(t, "c").wantLimits(t, want)
			}),
		resources("limits alone are requests, too", apps+sleeps("c", "{limits: {cpu: 40m, memory: 16Mi}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 40, quota: 4000, memory: 16 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 40, quota: 4000, memory: 16 * mib})
				require.Equal(t, "40m", s.Status(t, "c").Resources.Requests.Cpu().String())
			}),
		resources("a Burstable pod has weight and no bounds by its requests", apps+sleeps("c", "{requests: {cpu: 100m, memory: 16Mi}}"),
			corev1.PodQOSBurstable, func(t *testing.T, s sight, pod box) {
				want := limits{shares: 102, quota: -1, memory: -1}
				pod.wantLimits(t, want)
				s.ContainerBox(t, "c").wantLimits(t, want)
			}),
		resources("a BestEffort pod has the least weight", apps+sleeps("c", "{}"),
			corev1.PodQOSBestEffort, func(t *testing.T, s sight, pod box) {
				want := limits{shares: 2, quota: -1, memory: -1}
				pod.wantLimits(t, want)
				s.ContainerBox(t, "c").wantLimits(t, want)
			}),
		resources("a resource of zero is none", apps+sleeps("c", "{requests: {cpu: 0, memory: 0}}"),
			corev1.PodQOSBestEffort, func(t *testing.T, s sight, pod box) { pod.wantLimits(t, limits{shares: 2, quota: -1, memory: -1}) }),
		resources("a pod is bounded only if each of its containers is", apps+
			sleeps("c", "{limits: {cpu: 30m, memory: 20Mi}, requests: {cpu: 10m, memory: 10Mi}}")+
			sleeps("d", "{limits: {memory: 20Mi}, requests: {cpu: 10m, memory: 10Mi}}"),
			corev1.PodQOSBurstable, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 20, quota: -1, memory: 40 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 10, quota: 3000, memory: 20 * mib})
				s.ContainerBox(t, "d").wantLimits(t, limits{shares: 10, quota: -1, memory: 20 * mib})
			}),
		resources("an init container counts for the pod when it needs more than the others", `
  initContainers:
  - {name: i, image: KK, args: [exit, "0"], resources: {limits: {cpu: 60m, memory: 48Mi}}}
  containers:
`+sleeps("c", "{limits: {cpu: 20m, memory: 16Mi}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 61, quota: 6000, memory: 48 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 20, quota: 2000, memory: 16 * mib})
			}),
		resources("a sidecar counts beside the containers it serves", `
  initContainers:
  - {name: side, image: KK, restartPolicy: Always, args: [sleep, forever], resources: {limits: {cpu: 30m, memory: 16Mi}}}
  containers:
`+sleeps("c", "{limits: {cpu: 20m, memory: 16Mi}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 51, quota: 5000, memory: 32 * mib})
				s.ContainerBox(t, "side").wantLimits(t, limits{shares: 30, quota: 3000, memory: 16 * mib})
			}),
		resources("the kernel takes no less than a millisecond of each period, and two shares", apps+
			sleeps("c", "{limits: {cpu: 5m, memory: 16Mi}, requests: {cpu: 1m, memory: 16Mi}}"),
			corev1.PodQOSBurstable, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 2, quota: 1000, memory: 16 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 2, quota: 1000, memory: 16 * mib})
			}),
		resources("the pod's overhead is the pod's and no container's", "  overhead: {cpu: 20m, memory: 8Mi}\n"+apps+
			sleeps("c", "{limits: {cpu: 20m, memory: 16Mi}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 40, quota: 4000, memory: 24 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 20, quota: 2000, memory: 16 * mib})
				linux := s.SandboxAsked(t).GetLinux()
				require.EqualValues(t, 16*mib, linux.GetResources().GetMemoryLimitInBytes())
				require.EqualValues(t, 2000, linux.GetResources().GetCpuQuota())
				require.EqualValues(t, 8*mib, linux.GetOverhead().GetMemoryLimitInBytes())
				require.EqualValues(t, 20, linux.GetOverhead().GetCpuShares())
			}),
		resources("limits of the pod bound all its containers together", "  resources: {limits: {cpu: 60m, memory: 40Mi}, requests: {cpu: 30m, memory: 20Mi}}\n"+apps+
			sleeps("c", "{}")+sleeps("d", "{limits: {memory: 10Mi}}"),
			corev1.PodQOSBurstable, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 30, quota: 6000, memory: 40 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{quota: 6000, memory: 40 * mib})
				s.ContainerBox(t, "d").wantLimits(t, limits{quota: 6000, memory: 10 * mib})
			}),
		resources("the pod's own resources decide its class", "  resources: {limits: {cpu: 40m, memory: 40Mi}, requests: {cpu: 40m, memory: 40Mi}}\n"+apps+
			sleeps("c", "{requests: {cpu: 10m}}"),
			corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
				pod.wantLimits(t, limits{shares: 40, quota: 4000, memory: 40 * mib})
				s.ContainerBox(t, "c").wantLimits(t, limits{shares: 10, quota: 4000, memory: 40 * mib})
				require.EqualValues(t, -997, s.OOMScore(t, "c"))
			}),
		resources("podPidsLimit bounds the processes of each pod", apps+sleeps("c", "{}"),
			corev1.PodQOSBestEffort, func(t *testing.T, s sight, pod box) { require.EqualValues(t, 700, pod.pids(t)) }),
		{
			name: "a container sees itself in its pod's cgroup",
			spec: "  containers: [{name: c, image: KK, args: [look], resources: {requests: {cpu: 10m}}}]\n",
			check: func(t *testing.T, s sight) {
				want := string(s.Box("burstable")) + "/"
				got := s.Report.Cgroups["memory"]
				if unified() {
					want, got = "/", s.Report.Cgroups[""] // a namespace of its own
				}
				require.True(t, strings.HasPrefix(got, want), "cgroup %s, want it in %s", got, want)
			},
		},

		resources("the kernel kills BestEffort first", apps+sleeps("c", "{}"), corev1.PodQOSBestEffort, func(t *testing.T, s sight, _ box) {
			require.EqualValues(t, 1000, s.OOMScore(t, "c"))
			adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.Asked(t, "c").Pid))
			require.NoError(t, err)
			require.Equal(t, "1000", strings.TrimSpace(string(adj)))
		}),
		resources("the kernel kills Guaranteed last", apps+sleeps("c", "{limits: {cpu: 10m, memory: 16Mi}}"), corev1.PodQOSGuaranteed,
			func(t *testing.T, s sight, _ box) { require.EqualValues(t, -997, s.OOMScore(t, "c")) }),
		resources("the more a Burstable container requests, the longer it lives", apps+
			sleeps("c", "{requests: {memory: 2Gi}}")+sleeps("d", "{requests: {memory: 16Mi}}")+sleeps("e", "{requests: {cpu: 1m}}"),
			corev1.PodQOSBurstable, func(t *testing.T, s sight, _ box) {
				want := 1000 - 1000*(2<<30)/nodeMemory(t)
				require.Equal(t, want, s.OOMScore(t, "c"))
				adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.Asked(t, "c").Pid))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(want), strings.TrimSpace(string(adj)))
				require.EqualValues(t, 999, s.OOMScore(t, "d"))
				require.EqualValues(t, 999, s.OOMScore(t, "e"))
			}),
		resources("a sidecar is no easier victim than whom it serves", `
  initContainers:
  - {name: side, image: KK, restartPolicy: Always, args: [sleep, forever], resources: {requests: {memory: 8Mi}}}
  containers:
`+sleeps("c", "{requests: {memory: 1Gi}}"), corev1.PodQOSBurstable, func(t *testing.T, s sight, _ box) {
			require.Equal(t, 1000-1000*(1<<30)/nodeMemory(t), s.OOMScore(t, "c"))
			require.Equal(t, s.OOMScore(t, "c"), s.OOMScore(t, "side"))
		}),
		resources("what keeps the node going is killed last, whatever it requests", "  priorityClassName: system-node-critical\n  priority: 2000001000\n"+apps+
			sleeps("c", "{requests: {memory: 8Mi}}"), corev1.PodQOSBurstable,
			func(t *testing.T, s sight, _ box) { require.EqualValues(t, -997, s.OOMScore(t, "c")) }),

		{
			name:  "a container that uses more than its memory limit is ended by the kernel",
			spec:  "  containers: [{name: c, image: KK, args: [eat, \"100\"], resources: {limits: {memory: 24Mi}}}]\n",
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				end := s.Status(t, "c").State.Terminated
				// The kernel's kill and the exit are two events of containerd's; the
				// exit may be told of first, and then the reason is not known yet.
				require.Contains(t, []string{"OOMKilled", "Error"}, end.Reason)
				require.EqualValues(t, 137, end.ExitCode)
				require.Empty(t, s.Lines(t, "c"))
			},
		},
		{
			name:  "a container without a limit may not use more than its pod's",
			spec:  "  resources: {limits: {memory: 24Mi}}\n  containers: [{name: c, image: KK, args: [eat, \"100\"]}]\n",
			until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				require.EqualValues(t, 137, s.Status(t, "c").State.Terminated.ExitCode)
				require.Empty(t, s.Lines(t, "c"))
			},
		},
		{
			name: "a pod that has ended keeps no cgroup",
			spec: "  containers: [{name: c, image: KK, args: [exit, \"0\"], resources: {requests: {cpu: 10m}}}]\n",
			check: func(t *testing.T, s sight) {
				Eventually(t, 10*time.Second, func() error {
					if s.Box("burstable").exists() {
						return fmt.Errorf("cgroup %s is still there", s.Box("burstable"))
					}
					return nil
				})
			},
		},
	})
}

func TestObserveResourcesWithoutQuota(t *testing.T) {
	observe(t, Options{Config: map[string]any{"cpuCFSQuota": false}}, []observation{
		resources("without cpuCFSQuota a CPU limit stops nobody, and memory is bounded as ever", "  containers:\n"+
			sleeps("c", "{limits: {cpu: 50m, memory: 32Mi}}"), corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
			pod.wantLimits(t, limits{shares: 51, quota: -1, memory: 32 * mib})
			s.ContainerBox(t, "c").wantLimits(t, limits{shares: 51, quota: -1, memory: 32 * mib})
		}),
	})
}

func TestObserveResourcesWithAnotherPeriod(t *testing.T) {
	observe(t, Options{Config: map[string]any{"cpuCFSQuotaPeriod": "20ms"}}, []observation{
		resources("cpuCFSQuotaPeriod is the span that quotas are counted over", "  containers:\n"+
			sleeps("c", "{limits: {cpu: 500m, memory: 32Mi}}"), corev1.PodQOSGuaranteed, func(t *testing.T, s sight, pod box) {
			pod.wantLimits(t, limits{shares: 512, quota: 10_000, period: 20_000, memory: 32 * mib})
			s.ContainerBox(t, "c").wantLimits(t, limits{shares: 512, quota: 10_000, period: 20_000, memory: 32 * mib})
		}),
		resources("podPidsLimit is none unless it is given", "  containers:\n"+sleeps("c", "{}"),
			corev1.PodQOSBestEffort, func(t *testing.T, s sight, pod box) { require.EqualValues(t, -1, pod.pids(t)) }),
	})
}

func TestObserveResourcesWithoutPodCgroups(t *testing.T) {
	observe(t, Options{Config: map[string]any{"cgroupsPerQOS": false}}, []observation{
		{
			name: "without cgroupsPerQOS containers have their own limits alone",
			spec: "  containers:\n" + sleeps("c", "{limits: {cpu: 50m, memory: 32Mi}}"), until: runs,
			check: func(t *testing.T, s sight) {
				b := box(s.Asked(t, "c").RuntimeSpec.Linux.CgroupsPath)
				require.Equal(t, the.daemon.CgroupRoot(), path.Dir(string(b)))
				b.wantLimits(t, limits{shares: 51, quota: 5000, memory: 32 * mib})
				require.False(t, s.Box().exists())
				require.Equal(t, corev1.PodQOSGuaranteed, s.Pod.Status.QOSClass)
			},
		},
	})
}

func TestObserveTheTiers(t *testing.T) {
	a := StartAgent(t, Options{})
	burstable, besteffort := kubepods("burstable"), kubepods("besteffort")
	weighs := func(want int64) {
		t.Helper()
		Eventually(t, 10*time.Second, func() error {
			if unified() {
				burstable.wantShares(t, want)
				return nil
			}
			if got := burstable.shares(t); got != want {
				return fmt.Errorf("the tier weighs %d, want %d", got, want)
			}
			return nil
		})
		besteffort.wantShares(t, 2)
	}
	gone := func(name string) {
		t.Helper()
		Eventually(t, 20*time.Second, func() error {
			if _, err := a.Pod(name); err == nil {
				return fmt.Errorf("pod %s is still there", name)
			}
			return nil
		})
	}
	for name, cpu := range map[string]string{"one": "{requests: {cpu: 300m}}", "two": "{requests: {cpu: 200m}}", "none": "{}"} {
		a.Write(name+".yaml", sleeper(name)+"    resources: "+cpu+"\n")
		a.WaitPhase(30*time.Second, name, corev1.PodRunning)
	}
	weighs(512) // 500m
	a.Remove("two.yaml")
	gone("two")
	weighs(307) // 300m
	require.Len(t, burstable.pods(), 1)
	a.Remove("one.yaml")
	gone("one")
	weighs(2)
	require.Empty(t, burstable.pods(), "cgroups of pods that are gone")
	a.Remove("none.yaml")
	a.NothingLeft(30 * time.Second)
}

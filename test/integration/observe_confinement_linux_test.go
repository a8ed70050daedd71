package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Numbers of capabilities (capability.h), and those that containerd gives to a
// container that asks for none.
const (
	capChown, capKill, capNetBindService, capNetAdmin, capSysAdmin, capSysTime = 0, 5, 10, 12, 21, 25

	defaultCaps = 0xa80425fb
)

// caps is an observation of a container's capabilities; adjust makes the wanted set
// of the default one.
func caps(name, container string, want func(all uint64) uint64) observation {
	return observation{name: name, spec: looks("", container), check: func(t *testing.T, s sight) {
		set := want(allCaps(t))
		require.Equal(t, fmt.Sprintf("%016x", set), s.Report.Status["CapBnd"], "what it may get")
		require.Equal(t, fmt.Sprintf("%016x", set), s.Report.Status["CapEff"], "what it has")
	}}
}

func these(set uint64) func(uint64) uint64 { return func(uint64) uint64 { return set } }

// allCaps is all that the machine gives to root.
func allCaps(t *testing.T) uint64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(status), "CapBnd:")
	set, err := strconv.ParseUint(strings.Fields(after)[0], 16, 64)
	require.NoError(t, err)
	return set
}

// secured is a container's securityContext.
func secured(fields string) string { return "    securityContext: {" + fields + "}\n" }

// Values of Seccomp in /proc/self/status (proc(5)).
const seccompOff, seccompFilter = "0", "2"

func seccomp(name, spec, want string) observation {
	return observation{name: name, spec: spec, check: func(t *testing.T, s sight) {
		require.Equal(t, want, s.Report.Status["Seccomp"])
	}}
}

// noGroups allows everything but one system call, whose failure a report shows.
const noGroups = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["getgroups"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`

// maskedPaths are those of the default procMount; which of them exist is the
// kernel's matter.
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func TestObserveCapabilities(t *testing.T) {
	observe(t, Options{}, []observation{
		caps("without a word a container has the runtime's capabilities", "", these(defaultCaps)),
		caps("capabilities are added", secured("capabilities: {add: [NET_ADMIN, SYS_TIME]}"), these(defaultCaps|1<<capNetAdmin|1<<capSysTime)),
		caps("one is dropped", secured("capabilities: {drop: [CHOWN]}"), these(defaultCaps&^(1<<capChown))),
		caps("all are dropped", secured("capabilities: {drop: [ALL]}"), these(0)),
		caps("all are dropped but one", secured("capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}"), these(1<<capNetBindService)),
		caps("all are added", secured("capabilities: {add: [ALL]}"), func(all uint64) uint64 { return all }),
		caps("all are added but one", secured("capabilities: {add: [ALL], drop: [SYS_ADMIN]}"), func(all uint64) uint64 { return all &^ (1 << capSysAdmin) }),
		caps("one is dropped and another one added", secured("capabilities: {drop: [KILL], add: [SYS_TIME]}"), these(defaultCaps&^(1<<capKill)|1<<capSysTime)),
		{
			name: "a user that is not root may get capabilities, and has none",
			spec: looks("  securityContext: {runAsUser: 4000}", secured("capabilities: {add: [NET_ADMIN]}")),
			check: func(t *testing.T, s sight) {
				require.Equal(t, fmt.Sprintf("%016x", uint64(defaultCaps|1<<capNetAdmin)), s.Report.Status["CapBnd"])
				require.Equal(t, fmt.Sprintf("%016x", 0), s.Report.Status["CapEff"])
			},
		},
		{
			name: "each container has its own",
			spec: looks("  initContainers: [{name: i, image: KK, args: [look], securityContext: {capabilities: {drop: [ALL]}}}]", "  - {name: d, image: KK, args: [look], securityContext: {privileged: true}}\n"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, fmt.Sprintf("%016x", 0), s.Reports["i"].Status["CapEff"])
				require.Equal(t, fmt.Sprintf("%016x", defaultCaps), s.Report.Status["CapEff"])
				require.Equal(t, fmt.Sprintf("%016x", allCaps(t)), s.Reports["d"].Status["CapEff"])
			},
		},
		{
			name: "names of capabilities mean the same with CAP_ and without",
			spec: looks("", secured("capabilities: {add: [NET_ADMIN, CAP_SYS_TIME], drop: [CAP_CHOWN]}")),
			check: func(t *testing.T, s sight) {
				got := s.CRIConfig(t, "c").Linux.SecurityContext.Capabilities
				require.Equal(t, []string{"NET_ADMIN", "SYS_TIME"}, got.GetAddCapabilities())
				require.Equal(t, []string{"CHOWN"}, got.GetDropCapabilities())
				const chown, sysTime = 1 << 0, 1 << 25
				has, err := strconv.ParseUint(s.Report.Status["CapEff"], 16, 64)
				require.NoError(t, err)
				require.Equal(t, allCaps(t)&sysTime, has&(chown|sysTime))
			},
		},

		{
			name: "a privileged container has all capabilities, the node's devices, and hides nothing",
			spec: looks("", secured("privileged: true, seccompProfile: {type: RuntimeDefault}")+"    args: [look, /dev, /proc/sys, /proc/kcore]\n"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, fmt.Sprintf("%016x", allCaps(t)), s.Report.Status["CapEff"])
				require.Equal(t, seccompOff, s.Report.Status["Seccomp"], "runtimes do not confine it")
				require.Contains(t, s.Report.Files["/dev"].List, "kmsg")
				_, masked := s.Report.Mount("/proc/kcore")
				require.False(t, masked)
				_, readonly := s.Report.Mount("/proc/sys")
				require.False(t, readonly)
				sys, ok := s.Report.Mount("/sys")
				require.True(t, ok)
				require.Contains(t, sys.Options, "rw")
				require.True(t, s.SandboxInfo(t).Config.Linux.SecurityContext.Privileged)
			},
		},
		{
			name: "another one does not",
			spec: looks("", "    args: [look, /dev]\n"),
			check: func(t *testing.T, s sight) {
				require.NotContains(t, s.Report.Files["/dev"].List, "kmsg")
				sys, ok := s.Report.Mount("/sys")
				require.True(t, ok)
				require.Contains(t, sys.Options, "ro")
				require.False(t, s.SandboxInfo(t).Config.Linux.SecurityContext.Privileged)
			},
		},
		{
			name: "readOnlyRootFilesystem",
			spec: looks("  volumes: [{name: v, emptyDir: {}}]", secured("readOnlyRootFilesystem: true")+
				"    args: [look, /, /tmp, /v, /dev/shm]\n    volumeMounts: [{name: v, mountPath: /v}]\n"),
			check: func(t *testing.T, s sight) {
				root, _ := s.Report.Mount("/")
				require.Contains(t, root.Options, "ro")
				require.False(t, s.Report.Files["/tmp"].Writable)
				require.True(t, s.Report.Files["/v"].Writable)
				require.True(t, s.Report.Files["/dev/shm"].Writable)
			},
		},
		{
			name: "a container may write to its root file system otherwise",
			spec: looks("", secured("readOnlyRootFilesystem: false")+"    args: [look, /tmp]\n"),
			check: func(t *testing.T, s sight) {
				root, _ := s.Report.Mount("/")
				require.Contains(t, root.Options, "rw")
				require.True(t, s.Report.Files["/tmp"].Writable)
			},
		},
		privileges("allowPrivilegeEscalation: false", secured("allowPrivilegeEscalation: false"), "1"),
		privileges("allowPrivilegeEscalation: true", secured("allowPrivilegeEscalation: true"), "0"),
		privileges("without a word privileges may be gained", secured("runAsUser: 4000"), "0"),
		{
			name: "the default procMount hides what tells of the node, and protects the rest",
			spec: looks("", secured("procMount: Default")+"    args: ["+strings.Join(append(append([]string{"look"}, maskedPaths()...), readonlyPaths()...), ", ")+"]\n"),
			check: func(t *testing.T, s sight) {
				sc := s.CRIConfig(t, "c").Linux.SecurityContext
				require.Subset(t, sc.MaskedPaths, maskedPaths())
				require.Equal(t, readonlyPaths(), sc.ReadonlyPaths)
				seen := 0
				for _, path := range maskedPaths() {
					f := s.Report.Files[path]
					if f.Mode == "" {
						continue // this kernel does not have it
					}
					seen++
					require.Empty(t, f.List, path)
					require.Contains(t, "dD", f.Mode[:1], "%s is %s, neither an empty folder nor a device", path, f.Mode)
					_, over := s.Report.Mount(path)
					require.True(t, over, "nothing is mounted over %s", path)
				}
				require.NotZero(t, seen)
				for _, path := range readonlyPaths() {
					if s.Report.Files[path].Mode == "" {
						require.NotEqual(t, "/proc/sys", path)
						continue // nor this
					}
					m, ok := s.Report.Mount(path)
					require.True(t, ok && m.Has("ro"), "%s is %+v", path, m)
					require.False(t, s.Report.Files[path].Writable)
				}
			},
		},
	})
}

// privileges is an observation of no_new_privs.
func privileges(name, container, want string) observation {
	return observation{name: name, spec: looks("", container), check: func(t *testing.T, s sight) {
		require.Equal(t, want, s.Report.Status["NoNewPrivs"])
	}}
}

func TestObserveProfiles(t *testing.T) {
	const pod = "  securityContext: {seccompProfile: {type: RuntimeDefault}}"
	_, err := os.Stat("/sys/module/apparmor")
	require.ErrorIs(t, err, os.ErrNotExist, "this table is for a machine without AppArmor")
	observe(t, Options{RootFiles: map[string]string{"seccomp/team/no-groups.json": noGroups}}, []observation{
		seccomp("without a word no system call is filtered", looks("", ""), seccompOff),
		seccomp("RuntimeDefault of the pod", looks(pod, ""), seccompFilter),
		seccomp("RuntimeDefault of the container", looks("", secured("seccompProfile: {type: RuntimeDefault}")), seccompFilter),
		seccomp("Unconfined of the container goes before the pod's", looks(pod, secured("seccompProfile: {type: Unconfined}")), seccompOff),
		{
			name: "Localhost is a file in the agent's own directory, and is what counts",
			spec: looks("  securityContext: {supplementalGroups: [4005]}", secured("seccompProfile: {type: Localhost, localhostProfile: team/no-groups.json}")),
			check: func(t *testing.T, s sight) {
				require.Equal(t, seccompFilter, s.Report.Status["Seccomp"])
				require.Contains(t, strings.Fields(s.Report.Status["Groups"]), "4005")
				require.Empty(t, s.Report.Groups, "getgroups(2) was let through")
				require.Equal(t, filepath.Join(s.agent.Root, "seccomp/team/no-groups.json"), s.CRIConfig(t, "c").Linux.SecurityContext.GetSeccomp().GetLocalhostRef())
			},
		},
		{
			name:  "a Localhost profile that is not there",
			spec:  looks("  securityContext: {seccompProfile: {type: Localhost, localhostProfile: none.json}}", ""),
			until: waiting("c", "CreateContainerError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, filepath.Join(s.agent.Root, "seccomp/none.json"))
				s.Warned(t, "Failed", "none.json")
				require.Empty(t, s.Report.Args, "it ran without a profile")
			},
		},
		{
			name: "each container has a profile of its own, the sandbox always the runtime's",
			spec: looks("  initContainers: [{name: i, image: KK, args: [look], securityContext: {seccompProfile: {type: RuntimeDefault}}}]",
				secured("seccompProfile: {type: Unconfined}")+"    args: [sleep, forever]\n"),
			until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				require.Equal(t, seccompFilter, s.Reports["i"].Status["Seccomp"])
				require.Equal(t, seccompOff, processStatus(t, pidOf(t, s.Container(t, "c").Id), "Seccomp"))
				require.Equal(t, seccompFilter, processStatus(t, s.SandboxInfo(t).Pid, "Seccomp"))
			},
		},

		refusal("AppArmor RuntimeDefault on a node without AppArmor", looks("  securityContext: {appArmorProfile: {type: RuntimeDefault}}", ""),
			"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
		refusal("an AppArmor profile of the node on one that has none", looks("", secured("appArmorProfile: {type: Localhost, localhostProfile: mine}")),
			"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"),
		annotated("an AppArmor profile in an annotation", "", "AppArmor", "container c has profile localhost/mine"),
		annotated("an annotation about the container goes before the pod's field", "  securityContext: {appArmorProfile: {type: Unconfined}}", "AppArmor", "container c has profile localhost/mine"),
		{
			name: "AppArmor Unconfined asks for nothing that the node does not have, and reaches the runtime",
			spec: looks("", secured("appArmorProfile: {type: Unconfined}")),
			check: func(t *testing.T, s sight) {
				sc := s.CRIConfig(t, "c").Linux.SecurityContext
				require.Equal(t, cri.SecurityProfile_Unconfined, sc.GetApparmor().GetProfileType())
			},
		},
		{
			name:  "without a word AppArmor is left to the runtime",
			spec:  looks("", ""),
			check: func(t *testing.T, s sight) { require.Nil(t, s.CRIConfig(t, "c").Linux.SecurityContext.Apparmor) },
		},
		{
			name: "seLinuxOptions reach the runtime, the pod's for the sandbox, the container's for the container",
			spec: looks("  securityContext: {seLinuxOptions: {user: u, role: r, type: t, level: \"s0:c1,c2\"}}",
				secured("seLinuxOptions: {level: \"s0:c3,c4\"}")+"  - {name: d, image: KK, args: [look]}\n"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, "u r t s0:c1,c2", label(s.SandboxInfo(t).Config.Linux.SecurityContext.SelinuxOptions))
				require.Equal(t, "   s0:c3,c4", label(s.CRIConfig(t, "c").Linux.SecurityContext.SelinuxOptions))
				require.Equal(t, "u r t s0:c1,c2", label(s.CRIConfig(t, "d").Linux.SecurityContext.SelinuxOptions))
			},
		},
		{
			name: "without a word there are no seLinuxOptions",
			spec: looks("", ""),
			check: func(t *testing.T, s sight) {
				require.Empty(t, strings.TrimSpace(label(s.CRIConfig(t, "c").Linux.SecurityContext.SelinuxOptions)))
			},
		},
	})
}

func label(o *cri.SELinuxOption) string {
	return strings.Join([]string{o.GetUser(), o.GetRole(), o.GetType(), o.GetLevel()}, " ")
}

// annotated is a refusal of a pod whose container c has an annotation about AppArmor.
func annotated(name, spec, reason, message string) observation {
	o := refusal(name, looks(spec, ""), reason, message)
	o.meta = "  annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/mine}\n"
	return o
}

// processStatus is a line of /proc/PID/status.
func processStatus(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if key, value, _ := strings.Cut(line, ":"); key == name {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("process %d has no %s", pid, name)
	return ""
}

func TestObserveSeccompDefault(t *testing.T) {
	observe(t, Options{Config: map[string]any{"seccompDefault": true}}, []observation{
		seccomp("where the node says so, a container without a word has the runtime's profile", looks("", ""), seccompFilter),
		seccomp("Unconfined goes before it", looks("  securityContext: {seccompProfile: {type: Unconfined}}", ""), seccompOff),
		seccomp("a privileged container has none, whatever the node says", looks("", secured("privileged: true")), seccompOff),
	})
}

// TestObserveRefusedManifests are pods that the API would not take. The log names
// the field, in the API's words, and no pod is made.
func TestObserveRefusedManifests(t *testing.T) {
	a := StartAgent(t, Options{})
	manifests := []struct{ spec, want string }{
		{looks("  hostname: Not_A_Label", ""), `spec.hostname: Invalid value: "Not_A_Label"`},
		{looks("  hostNetwork: true\n  hostnameOverride: x", ""), "spec.hostnameOverride: Forbidden: may not be set together with hostNetwork"},
		{looks("  hostUsers: false\n  hostNetwork: true", ""), "spec.hostNetwork: Forbidden: may not be true when hostUsers is false"},
		{looks("  hostPID: true\n  shareProcessNamespace: true", ""), "spec.shareProcessNamespace"},
		{looks("  dnsPolicy: None", ""), "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when dnsPolicy is None"},
		{looks("  hostAliases: [{ip: one, hostnames: [x]}]", ""), `spec.hostAliases[0].ip: Invalid value: "one"`},
		{looks("  hostNetwork: true\n  securityContext: {sysctls: [{name: net.core.somaxconn, value: \"1\"}]}", ""),
			"spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be set with 'hostNetwork' enabled"},
		{looks("", secured("runAsUser: 2147483648")), "spec.containers[0].securityContext.runAsUser: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive"},
		{looks("", secured("privileged: true, allowPrivilegeEscalation: false")),
			"spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"},
		{looks("  securityContext: {seccompProfile: {type: Localhost}}", ""), "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"},
		{looks("  securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}}", ""), "spec.securityContext.seccompProfile.localhostProfile: Invalid value"},
		{looks("", secured("procMount: Unmasked")), "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
	}
	for i, m := range manifests {
		a.Write(observationName(i)+".yaml", observation{spec: m.spec}.manifest(observationName(i)))
	}
	for i, m := range manifests {
		t.Run(m.want, func(t *testing.T) {
			a.waitLog(t, observationName(i)+".yaml", m.want)
			_, err := a.Pod(observationName(i))
			require.ErrorContains(t, err, "does not know pod")
		})
	}
	require.Empty(t, sandboxes(t, ""))
}

package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// looks is the spec of a pod with a container c that looks around, unless its own
// lines have args. more is YAML of the pod's spec, container of the container's.
func looks(more, container string) string {
	first, _, _ := strings.Cut(container, "  - ")
	if !strings.Contains(first, "    args:") {
		container = "    args: [look]\n" + container
	}
	return more + "\n  containers:\n  - name: c\n    image: KK\n" + container
}

// ownNamespace is the test's own namespace, which is the node's.
func ownNamespace(t *testing.T, kind string) string {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	require.NoError(t, err)
	return link
}

// sandboxInfo is what the runtime was asked for, and the process it made of it.
type sandboxInfo struct {
	Pid    int
	Config cri.PodSandboxConfig
}

// SandboxInfo is [sight.Sandbox], with what `crictl inspectp` shows beyond it.
func (s sight) SandboxInfo(t *testing.T) *sandboxInfo {
	t.Helper()
	answer, err := the.daemon.Runtime().PodSandboxStatus(look(t), &cri.PodSandboxStatusRequest{PodSandboxId: s.Sandbox(t).Id, Verbose: true})
	require.NoError(t, err)
	info := new(sandboxInfo)
	require.NoError(t, json.Unmarshal([]byte(answer.Info["info"]), info))
	return info
}

// CRIConfig is what the runtime was asked for, as `crictl inspect` shows it.
func (s sight) CRIConfig(t *testing.T, name string) *cri.ContainerConfig {
	t.Helper()
	answer, err := the.daemon.Runtime().ContainerStatus(look(t), &cri.ContainerStatusRequest{ContainerId: s.Container(t, name).Id, Verbose: true})
	require.NoError(t, err)
	var info struct{ Config *cri.ContainerConfig }
	require.NoError(t, json.Unmarshal([]byte(answer.Info["info"]), &info))
	require.NotNil(t, info.Config)
	return info.Config
}

// Warned waits for an event of the pod in the agent's log.
func (s sight) Warned(t *testing.T, reason, text string) {
	t.Helper()
	s.agent.waitLog(t, "pod=default/"+s.Name+"-"+nodeName+" ", "reason="+reason+" ", text)
}

// waitLog waits for a line of the agent's log that has all of the texts.
func (a *Agent) waitLog(t *testing.T, texts ...string) {
	t.Helper()
	Eventually(t, 20*time.Second, func() error {
		if !a.logHas(t, texts...) {
			return fmt.Errorf("no line of the log has %q", texts)
		}
		return nil
	})
}

func (a *Agent) logHas(t *testing.T, texts ...string) bool {
	t.Helper()
	data, err := os.ReadFile(a.LogFile)
	require.NoError(t, err)
lines:
	for line := range strings.Lines(string(data)) {
		line = strings.ReplaceAll(line, `\"`, `"`)
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		return true
	}
	return false
}

// rejected waits for a pod that admission refused.
func rejected(reason, message string) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != reason || !strings.Contains(p.Status.Message, message) {
			return fmt.Errorf("phase %q, reason %q, message %q, want a refusal %q %q", p.Status.Phase, p.Status.Reason, p.Status.Message, reason, message)
		}
		return nil
	}
}

// refusal is an observation of a pod that is not admitted: the runtime never hears
// of it.
func refusal(name, spec, reason, message string) observation {
	return observation{name: name, spec: spec, until: rejected(reason, message), check: func(t *testing.T, s sight) {
		require.Empty(t, sandboxes(t, s.Name))
		require.Empty(t, s.Pod.Status.ContainerStatuses)
		s.Warned(t, reason, message)
	}}
}

// pending waits for a pod that can't start; the events say why.
func pending(p corev1.Pod) error { return inPhase(corev1.PodPending)(p) }

// can are the features of the runtime's default handler.
func can(t *testing.T) *cri.RuntimeHandlerFeatures {
	t.Helper()
	answer, err := the.daemon.Runtime().Status(look(t), &cri.StatusRequest{})
	require.NoError(t, err)
	for _, h := range answer.RuntimeHandlers {
		if h.Name == "" && h.Features != nil {
			return h.Features
		}
	}
	return new(cri.RuntimeHandlerFeatures)
}

func TestObserveNamespaces(t *testing.T) {
	observe(t, Options{Config: map[string]any{"allowedUnsafeSysctls": []string{"net.core.somaxconn", "fs.mqueue.*"}}}, []observation{
		{
			name: "by default a pod has its own network and IPC, and each container its own processes and mounts",
			// They live at the same time: the kernel gives the number of a namespace to the next one.
			spec: looks("", "    args: &both [seq, look, \",\", sleep, 4s]\n  - {name: d, image: KK, args: *both}\n"),
			check: func(t *testing.T, s sight) {
				c, d := s.Reports["c"].Namespaces, s.Reports["d"].Namespaces
				for _, kind := range []string{"net", "ipc", "uts"} {
					require.Equal(t, c[kind], d[kind], kind)
					require.NotEqual(t, ownNamespace(t, kind), c[kind], kind)
				}
				for _, kind := range []string{"pid", "mnt"} {
					require.NotEqual(t, c[kind], d[kind], kind)
					require.NotEqual(t, ownNamespace(t, kind), c[kind], kind)
				}
				require.Equal(t, ownNamespace(t, "user"), c["user"])
			},
		},
		{
			name: "hostNetwork: the node's network and addresses",
			spec: looks("  hostNetwork: true", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, ownNamespace(t, "net"), s.Report.Namespaces["net"])
				require.NotEqual(t, ownNamespace(t, "ipc"), s.Report.Namespaces["ipc"])
				require.Equal(t, cri.NamespaceMode_NODE, s.Sandbox(t).Linux.Namespaces.Options.Network)
				require.NotEmpty(t, s.Pod.Status.PodIP)
				require.Equal(t, s.Pod.Status.HostIP, s.Pod.Status.PodIP)
			},
		},
		{
			name: "hostNetwork: the node's host name, whatever the pod wants to be called",
			spec: looks("  hostNetwork: true\n  hostname: somebody", ""),
			check: func(t *testing.T, s sight) {
				own, err := os.Hostname()
				require.NoError(t, err)
				require.Equal(t, own, s.Report.Hostname)
			},
		},
		{
			name: "hostPID: the node's processes",
			spec: looks("  hostPID: true", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, ownNamespace(t, "pid"), s.Report.Namespaces["pid"])
				require.Contains(t, s.Report.Processes, s.agent.Pid())
				require.NotEqual(t, ownNamespace(t, "net"), s.Report.Namespaces["net"])
			},
		},
		{
			name: "hostIPC: the node's IPC",
			spec: looks("  hostIPC: true", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, ownNamespace(t, "ipc"), s.Report.Namespaces["ipc"])
				require.NotEqual(t, ownNamespace(t, "pid"), s.Report.Namespaces["pid"])
			},
		},
		{
			name: "shareProcessNamespace: one set of processes, whose first is the sandbox's",
			spec: looks("  shareProcessNamespace: true", "  - {name: d, image: KK, args: [look]}\n"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, s.Reports["c"].Namespaces["pid"], s.Reports["d"].Namespaces["pid"])
				require.NotEqual(t, ownNamespace(t, "pid"), s.Report.Namespaces["pid"])
				require.Contains(t, s.Report.Processes, 1)
				require.NotEqual(t, "1", s.Report.Status["Pid"])
				require.Equal(t, cri.NamespaceMode_POD, s.Sandbox(t).Linux.Namespaces.Options.Pid)
			},
		},
		{
			name: "hostUsers: true is what a pod has anyway",
			spec: looks("  hostUsers: true", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, ownNamespace(t, "user"), s.Report.Namespaces["user"])
				require.Equal(t, "0 0 4294967295", s.Report.UIDMap)
			},
		},
		{
			name: "a safe sysctl",
			spec: looks("  securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"77\"}]}",
				"    args: [look, /proc/sys/net/ipv4/ip_unprivileged_port_start]\n"),
			check: func(t *testing.T, s sight) { sysctlIs(t, s, "net/ipv4/ip_unprivileged_port_start", "77") },
		},
		{
			name: "a sysctl of the IPC namespace, written with slashes",
			spec: looks("  securityContext: {sysctls: [{name: kernel/shm_rmid_forced, value: \"1\"}]}", "    args: [look, /proc/sys/kernel/shm_rmid_forced]\n"),
			check: func(t *testing.T, s sight) {
				sysctlIs(t, s, "kernel/shm_rmid_forced", "1")
				require.Equal(t, "1", s.SandboxInfo(t).Config.Linux.Sysctls["kernel.shm_rmid_forced"])
			},
		},
		{
			name: "unsafe sysctls that the node allows by name and by pattern",
			spec: looks("  securityContext: {sysctls: [{name: net.core.somaxconn, value: \"77\"}, {name: fs.mqueue.msg_max, value: \"33\"}]}",
				"    args: [look, /proc/sys/net/core/somaxconn, /proc/sys/fs/mqueue/msg_max]\n"),
			check: func(t *testing.T, s sight) {
				sysctlIs(t, s, "net/core/somaxconn", "77")
				sysctlIs(t, s, "fs/mqueue/msg_max", "33")
			},
		},
		refusal("an unsafe sysctl that the node does not allow", looks("  securityContext: {sysctls: [{name: net.ipv4.conf.all.log_martians, value: \"1\"}]}", ""),
			"SysctlForbidden", `forbidden sysctl: "net.ipv4.conf.all.log_martians" not allowlisted`),
		refusal("a sysctl of the whole host", looks("  securityContext: {sysctls: [{name: kernel.pid_max, value: \"99999\"}]}", ""),
			"SysctlForbidden", `forbidden sysctl: "kernel.pid_max" not allowlisted`),
		{
			name:  "runtimeClassName: a handler that the runtime does not have",
			spec:  looks("  runtimeClassName: nobodys", ""),
			until: pending,
			check: func(t *testing.T, s sight) {
				s.Warned(t, "FailedCreatePodSandBox", "nobodys")
				require.Empty(t, sandboxes(t, s.Name))
			},
		},
		{
			name: "runtimeClassName: a handler that it has",
			spec: looks("  runtimeClassName: runc", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, "runc", sandboxes(t, s.Name)[0].RuntimeHandler)
			},
		},
		{
			name:  "a port of the container is a port of the node",
			spec:  looks("", fmt.Sprintf("    args: [serve, ':80']\n    ports: [{containerPort: 80, hostPort: %d}]\n", hostPorts[0])),
			until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				require.Equal(t, "hello from "+s.Pod.Name, greeting(t, s.Pod.Status.PodIP+":80"))
				require.Equal(t, "hello from "+s.Pod.Name, greeting(t, net.JoinHostPort(s.Pod.Status.HostIP, strconv.Itoa(hostPorts[0]))))
			},
		},
		{
			name:  "a port of the node on one of its addresses",
			spec:  looks("", fmt.Sprintf("    args: [serve, ':80']\n    ports: [{containerPort: 80, hostPort: %d, hostIP: 127.0.0.1}]\n", hostPorts[1])),
			until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				require.Equal(t, "hello from "+s.Pod.Name, greeting(t, fmt.Sprintf("127.0.0.1:%d", hostPorts[1])))
				_, err := net.DialTimeout("tcp", net.JoinHostPort(s.Pod.Status.HostIP, strconv.Itoa(hostPorts[1])), 2*time.Second)
				require.Error(t, err)
			},
		},
		{
			name: "ports of every protocol reach the runtime, of equal ones the first",
			spec: looks("", `    ports:
    - {name: a, containerPort: 53, protocol: UDP}
    - {name: b, containerPort: 53}
  - {name: d, image: KK, args: [look], ports: [{containerPort: 53}]}
`),
			check: func(t *testing.T, s sight) {
				var got []string
				for _, m := range s.SandboxInfo(t).Config.PortMappings {
					got = append(got, fmt.Sprintf("%s %d %d", m.Protocol, m.ContainerPort, m.HostPort))
				}
				require.Equal(t, []string{"UDP 53 0", "TCP 53 0"}, got)
			},
		},
		{
			name: "labels and annotations of the container are the kubelet's",
			meta: "  labels: {app: web}\n  annotations: {example.com/note: x}\n",
			spec: looks("", "    ports: [{containerPort: 80}]\n    terminationMessagePath: /tmp/end\n"),
			check: func(t *testing.T, s sight) {
				c := s.Container(t, "c")
				require.Equal(t, map[string]string{
					observed.LabelPodName: s.Pod.Name, observed.LabelPodNamespace: "default",
					observed.LabelPodUID: string(s.Pod.UID), observed.LabelContainerName: "c",
				}, c.Labels)
				require.Equal(t, "0", c.Annotations[observed.AnnotationRestartCount])
				require.Equal(t, "/tmp/end", c.Annotations[observed.AnnotationTerminationMessagePath])
				require.Equal(t, "File", c.Annotations[observed.AnnotationTerminationMessagePolicy])
				require.Equal(t, "2", c.Annotations[observed.AnnotationTerminationGracePeriod])
				require.JSONEq(t, `[{"containerPort": 80, "protocol": "TCP"}]`, c.Annotations[observed.AnnotationContainerPorts])
				require.NotEmpty(t, c.Annotations[observed.AnnotationHash])
				require.NotContains(t, c.Annotations, "example.com/note")
			},
		},
		{
			name: "the sandbox has the pod's name, folder of logs, and its own labels beside the pod's",
			meta: "  labels: {app: web, io.kubernetes.pod.name: forged}\n",
			spec: looks("", ""),
			check: func(t *testing.T, s sight) {
				sb := s.Sandbox(t)
				require.Equal(t, s.Pod.Name, sb.Metadata.Name)
				require.Equal(t, "default", sb.Metadata.Namespace)
				require.Equal(t, string(s.Pod.UID), sb.Metadata.Uid)
				require.Equal(t, s.Pod.Name, sb.Labels[observed.LabelPodName])
				require.Equal(t, "web", sb.Labels["app"])
				require.Equal(t, filepath.Join(s.agent.PodLogs, "default_"+s.Pod.Name+"_"+string(s.Pod.UID)), s.SandboxInfo(t).Config.LogDirectory)
			},
		},
	})
}

// hostPorts are two that nobody else has; CNI only forwards them.
var hostPorts = [2]int{23981, 23982}

func sysctlIs(t *testing.T, s sight, name, want string) {
	t.Helper()
	require.Equal(t, want, strings.TrimSpace(s.Report.Files["/proc/sys/"+name].Content), "%+v", s.Report.Files)
	own, err := os.ReadFile("/proc/sys/" + name)
	require.NoError(t, err)
	require.NotEqual(t, want, strings.TrimSpace(string(own)), "the node has %s itself", name)
}

// greeting asks a `kk serve`. The answer ends with a line break.
func greeting(t *testing.T, address string) string {
	t.Helper()
	var words string
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	Eventually(t, 10*time.Second, func() error { // Running is before it listens
		answer, err := client.Get("http://" + address)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		words = strings.TrimSpace(string(body))
		return err
	})
	return words
}

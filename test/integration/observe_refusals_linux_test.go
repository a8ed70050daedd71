package integration_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// refused is an observation of a pod that the node does not take. words are in its
// message; nothing of it may exist.
func refused(name, spec, reason string, words ...string) observation {
	return observation{name: name, spec: spec, until: inPhase(corev1.PodFailed), check: func(t *testing.T, s sight) {
		require.Equal(t, reason, s.Pod.Status.Reason)
		for _, w := range words {
			require.Contains(t, s.Pod.Status.Message, w)
		}
		require.Empty(t, sandboxes(t, s.Name))
		require.Empty(t, s.Pod.Status.ContainerStatuses)
		require.Empty(t, s.Pod.Status.PodIP)
		require.False(t, s.Box().exists() || s.Box("burstable").exists() || s.Box("besteffort").exists(), "it has a cgroup")
	}}
}

// unmapped is a pod with a field that this version would have to ignore.
func unmapped(name, spec, path string) observation {
	return refused(name, spec, "PodFeatureUnsupported", path)
}

func TestObserveRefusals(t *testing.T) {
	one := func(fields string) string {
		return "  containers: [{name: c, image: KK, args: [look], " + fields + "}]\n"
	}
	const plain = "  containers: [{name: c, image: KK, args: [look]}]\n"
	observe(t, Options{Flags: []string{"--node-labels", "disk=fast"}}, []observation{
		unmapped("options for Windows are named", one("securityContext: {windowsOptions: {runAsUserName: u}}"), "spec.containers[0].securityContext.windowsOptions"),
		unmapped("options for Windows of the pod are named", "  securityContext: {windowsOptions: {hostProcess: false, runAsUserName: u}}\n"+plain, "spec.securityContext.windowsOptions"),
		unmapped("a network volume is named", "  volumes: [{name: w, emptyDir: {}}, {name: v, nfs: {server: s, path: /p}}]\n"+plain, "spec.volumes[1].nfs"),
		unmapped("a liveness probe is named", one("livenessProbe: {exec: {command: [/kk]}}"), "spec.containers[0].livenessProbe"),
		unmapped("a readiness probe is named", one("readinessProbe: {tcpSocket: {port: 80}}"), "spec.containers[0].readinessProbe"),
		unmapped("a startup probe of a sidecar is named", "  initContainers: [{name: s, image: KK, restartPolicy: Always, startupProbe: {httpGet: {port: 80}}}]\n"+plain, "spec.initContainers[0].startupProbe"),
		unmapped("a limit of storage is named", one("resources: {limits: {ephemeral-storage: 1Gi}}"), "spec.containers[0].resources.limits[ephemeral-storage]"),
		unmapped("a limit of a directory on disk is named", "  volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]\n"+plain, "spec.volumes[0].emptyDir.sizeLimit"),
		unmapped("a device of a plug-in is named", one("resources: {limits: {example.com/gpu: 1}}"), "spec.containers[0].resources.limits[example.com/gpu]"),
		{
			name: "all fields that would be ignored are named together", until: inPhase(corev1.PodFailed),
			spec: "  volumes: [{name: v, nfs: {server: s, path: /p}}]\n" + one("livenessProbe: {exec: {command: [/kk]}}, resources: {limits: {ephemeral-storage: 1Gi}}"),
			check: func(t *testing.T, s sight) {
				for _, path := range []string{"spec.volumes[0].nfs", "spec.containers[0].livenessProbe", "spec.containers[0].resources.limits[ephemeral-storage]"} {
					require.Contains(t, s.Pod.Status.Message, path)
				}
			},
		},

		refused("more processors than the node has", one("resources: {requests: {cpu: 4k}}"), "OutOfcpu", "cpu", "requested: 4000000", "capacity: "),
		refused("more memory than the node has", one("resources: {requests: {memory: 900Ti}}"), "OutOfmemory", "memory"),
		refused("more than the node has, all containers together", "  containers:\n"+sleeps("c", "{requests: {memory: 500Ti}}")+sleeps("d", "{requests: {memory: 500Ti}}"), "OutOfmemory"),
		refused("more than the node has with its overhead", "  overhead: {memory: 900Ti}\n"+plain, "OutOfmemory"),
		refused("more huge pages than the node has", one("resources: {limits: {hugepages-2Mi: 2Ti, memory: 16Mi, cpu: 10m}}"), "OutOfhugepages-2Mi"),
		refused("a pod for another system", "  os: {name: windows}\n"+plain, "PodOSNotSupported", "windows", "linux"),
		refused("a pod for nodes with other labels", "  nodeSelector: {disk: slow}\n"+plain, "NodeAffinity"),
		refused("a pod that requires other nodes", "  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: NotIn, values: [fast]}]}]}}}\n"+plain, "NodeAffinity"),
		{
			name:  "a pod for nodes like this one runs",
			spec:  "  nodeSelector: {disk: fast}\n" + plain,
			check: func(t *testing.T, s sight) { require.Equal(t, "node", s.Pod.Spec.NodeName) },
		},
		refused("a sysctl that is not the pod's own", "  securityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}\n"+plain, "SysctlForbidden", "kernel.msgmax"),
	})
}

func TestObserveTwoPodsThatWantOnePort(t *testing.T) {
	a := StartAgent(t, Options{})
	port := freePorts(t, 1)[0]
	for _, name := range []string{"first", "second"} {
		a.Write(name+".yaml", sleeper(name)+fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]\n", port))
		if name == "first" {
			a.WaitPhase(30*time.Second, name, corev1.PodRunning)
		}
	}
	second := a.WaitPhase(10*time.Second, "second", corev1.PodFailed)
	require.Equal(t, "NodePorts", second.Status.Reason)
	require.Contains(t, second.Status.Message, fmt.Sprintf("hostPort %d/TCP is held by pod default/first-node", port))
	for _, name := range []string{"first", "second"} {
		a.Remove(name + ".yaml")
	}
	a.NothingLeft(30 * time.Second)
}

// Each is a file of its own, and a pod that is not: the log says why in the API's
// words, and the pod beside them goes on.
func TestObserveBadValues(t *testing.T) {
	const image = "  containers: [{name: c, image: KK}]\n"
	c := func(fields string) string { return "  containers: [{name: c, image: KK, " + fields + "}]\n" }
	a := StartAgent(t, Options{})
	a.Write("good.yaml", sleeper("good"))
	good := WaitRunning(t, 30*time.Second, "good", "main")
	bad := []struct{ name, meta, spec, words string }{
		{"a name in capitals", "  name: Big\n", image, `metadata.name: Invalid value: "Big`},
		{"a namespace that is none", "  namespace: a.b\n", image, `metadata.namespace: Invalid value: "a.b"`},
		{"a label that is none", "  labels: {\"a b\": c}\n", image, `metadata.labels: Invalid value: "a b"`},
		{"no containers", "", "  containers: []\n", "spec.containers: Required value"},
		{"two containers of one name", "", "  containers: [{name: c, image: KK}, {name: c, image: KK}]\n", `spec.containers[1].name: Duplicate value: "c"`},
		{"a container without a name", "", "  containers: [{image: KK}]\n", "spec.containers[0].name: Required value"},
		{"a container without an image", "", "  containers: [{name: c}]\n", "spec.containers[0].image: Required value"},
		{"a policy that is none", "", "  restartPolicy: Sometimes\n" + image, `spec.restartPolicy: Unsupported value: "Sometimes"`},
		{"a pull policy that is none", "", c("imagePullPolicy: Maybe"), `spec.containers[0].imagePullPolicy: Unsupported value: "Maybe"`},
		{"a deadline of zero", "", "  activeDeadlineSeconds: 0\n" + image, "spec.activeDeadlineSeconds: Invalid value: 0"},
		{"a negative grace period", "", "  terminationGracePeriodSeconds: -1\n" + image, "spec.terminationGracePeriodSeconds: Invalid value: -1"},
		{"a request above the limit", "", c("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), `spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		{"negative memory", "", c("resources: {limits: {memory: -1}}"), `spec.containers[0].resources.limits[memory]: Invalid value: "-1"`},
		{"a quantity that is none", "", c("resources: {limits: {memory: lots}}"), "quantities must match the regular expression"},
		{"a volume that nobody has", "", c("volumeMounts: [{name: nobody, mountPath: /v}]"), `spec.containers[0].volumeMounts[0].name: Not found: "nobody"`},
		{"two mounts at one place", "", "  volumes: [{name: v, emptyDir: {}}]\n" + c("volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v}]"), `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v": must be unique`},
		{"a port out of range", "", c("ports: [{containerPort: 70000}]"), "spec.containers[0].ports[0].containerPort: Invalid value: 70000"},
		{"two hooks in one", "", c("lifecycle: {preStop: {sleep: {seconds: 1}, exec: {command: [a]}}}"), "spec.containers[0].lifecycle.preStop"},
		{"a signal without a system", "", c("lifecycle: {stopSignal: SIGUSR1}"), "spec.containers[0].lifecycle.stopSignal"},
		{"rules without a policy", "", c("restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]"), "spec.containers[0].restartPolicy: Required value"},
		{"a termination message policy that is none", "", c("terminationMessagePolicy: Tail"), `spec.containers[0].terminationMessagePolicy: Unsupported value: "Tail"`},
		{"a field that is none", "", c("argz: [a]"), "spec.containers[0].argz: unknown field"},
		{"a persistent volume", "", "  volumes: [{name: v, persistentVolumeClaim: {claimName: p}}]\n" + image, "spec.volumes[0].persistentVolumeClaim: Forbidden: static pods may not reference persistentvolumeclaims"},
		{"a volume of a plug-in", "", "  volumes: [{name: v, csi: {driver: d.example.com}}]\n" + image, "spec.volumes[0].csi: Forbidden: static pods may not reference csidrivers"},
		{"a token of the API server", "", "  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n" + image, "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden"},
		{"a claim of a device", "", "  resourceClaims: [{name: r, resourceClaimName: x}]\n" + image, "spec.resourceClaims"},
	}
	for i, one := range bad {
		meta := one.meta
		if !strings.Contains(meta, "  name:") {
			meta += fmt.Sprintf("  name: bad%d\n", i)
		}
		a.Write(fmt.Sprintf("bad%d.yaml", i), "apiVersion: v1\nkind: Pod\nmetadata:\n"+meta+"spec:\n"+one.spec)
	}
	for i, one := range bad {
		t.Run(one.name, func(t *testing.T) {
			file := fmt.Sprintf("/bad%d.yaml", i)
			Eventually(t, 10*time.Second, func() error {
				data, err := os.ReadFile(a.LogFile)
				require.NoError(t, err)
				var about []string
				for line := range strings.Lines(string(data)) {
					if strings.Contains(line, file) {
						about = append(about, line)
						if strings.Contains(strings.ReplaceAll(line, `\"`, `"`), one.words) {
							return nil
						}
					}
				}
				return fmt.Errorf("the log does not say %q of %s but:\n%s", one.words, file, strings.Join(about, ""))
			})
			_, err := a.Pod(fmt.Sprintf("bad%d", i))
			require.Error(t, err, "it is a pod all the same")
		})
	}
	require.Equal(t, good.Id, WaitRunning(t, time.Second, "good", "main").Id)
	require.Len(t, sandboxes(t, ""), 1)
	for i := range bad {
		a.Remove(fmt.Sprintf("bad%d.yaml", i))
	}
	a.Remove("good.yaml")
	a.NothingLeft(30 * time.Second)
}

package podsource_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
)

// faultsOf decodes a pod with the given spec lines and returns its faults as
// "field: message", in order.
func faultsOf(t *testing.T, text string) []string {
	t.Helper()
	_, err := podsource.Decode([]byte(text), from)
	if err == nil {
		return nil
	}
	all, ok := err.(podsource.DecodeErrors)
	require.True(t, ok, "%T", err)
	var faults []string
	for _, e := range all {
		faults = append(faults, e.Err.Error())
	}
	return faults
}

func TestValidationOfTheContainer(t *testing.T) {
	for name, c := range map[string]struct{ container, want string }{
		"no name":                        {"image: x", `spec.containers[0].name: Required value`},
		"a name that is no label":        {"name: A, image: x", `spec.containers[0].name: Invalid value: "A"`},
		"no image":                       {"name: a", `spec.containers[0].image: Required value`},
		"an image with blanks":           {"name: a, image: 'x '", `spec.containers[0].image: Invalid value: "x "`},
		"a pull policy":                  {"name: a, image: x, imagePullPolicy: Sometimes", `spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes"`},
		"a termination message policy":   {"name: a, image: x, terminationMessagePolicy: Mail", `spec.containers[0].terminationMessagePolicy: Unsupported value: "Mail"`},
		"a port out of range":            {"name: a, image: x, ports: [{containerPort: 65536}]", `spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive`},
		"a host port out of range":       {"name: a, image: x, ports: [{containerPort: 1, hostPort: -1}]", `spec.containers[0].ports[0].hostPort: Invalid value: -1`},
		"a protocol":                     {"name: a, image: x, ports: [{containerPort: 1, protocol: tcp}]", `spec.containers[0].ports[0].protocol: Unsupported value: "tcp"`},
		"a port name twice":              {"name: a, image: x, ports: [{containerPort: 1, name: p}, {containerPort: 2, name: p}]", `spec.containers[0].ports[1].name: Duplicate value: "p"`},
		"a host port twice":              {"name: a, image: x, ports: [{containerPort: 1, hostPort: 3}, {containerPort: 2, hostPort: 3}]", `spec.containers[0].ports[1].hostPort: Duplicate value`},
		"a host address":                 {"name: a, image: x, ports: [{containerPort: 1, hostIP: here}]", `spec.containers[0].ports[0].hostIP: Invalid value: "here"`},
		"an env without a name":          {"name: a, image: x, env: [{value: v}]", `spec.containers[0].env[0].name: Required value`},
		"an env name with =":             {"name: a, image: x, env: [{name: A=B}]", `spec.containers[0].env[0].name: Invalid value: "A=B"`},
		"an env with two sources":        {"name: a, image: x, env: [{name: A, value: v, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", `spec.containers[0].env[0].valueFrom: Invalid value`},
		"an env from nothing":            {"name: a, image: x, env: [{name: A, valueFrom: {}}]", `spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of`},
		"a field that does not exist":    {"name: a, image: x, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.foo}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.foo"`},
		"a resource that does not exist": {"name: a, image: x, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.disk}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.disk"`},
		"a request above its limit":      {"name: a, image: x, resources: {requests: {cpu: 2}, limits: {cpu: 1}}", `spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		"a negative request":             {"name: a, image: x, resources: {requests: {memory: -1}}", `spec.containers[0].resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0`},
		"an unknown resource":            {"name: a, image: x, resources: {limits: {disk: 1}}", `spec.containers[0].resources.limits[disk]: Invalid value: "disk"`},
		"half a device":                  {"name: a, image: x, resources: {limits: {example.com/gpu: 500m}}", `spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer`},
		"a device without a limit":       {"name: a, image: x, resources: {requests: {example.com/gpu: 1}}", `spec.containers[0].resources.requests[example.com/gpu]: Required value: limit must be set for non overcommitable resources`},
		"huge pages alone":               {"name: a, image: x, resources: {limits: {hugepages-2Mi: 2Mi}}", `spec.containers[0].resources: Forbidden: HugePages require cpu or memory`},
		"a mount of no volume":           {"name: a, image: x, volumeMounts: [{name: nope, mountPath: /a}]", `spec.containers[0].volumeMounts[0].name: Not found: "nope"`},
		"a mount without a path":         {"name: a, image: x, volumeMounts: [{name: v}]", `spec.containers[0].volumeMounts[0].mountPath: Required value`},
		"a mount path twice":             {"name: a, image: x, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]", `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`},
		"a sub path that leaves":         {"name: a, image: x, volumeMounts: [{name: v, mountPath: /a, subPath: a/../..}]", `spec.containers[0].volumeMounts[0].subPath: Invalid value: "a/../..": must not contain '..'`},
		"an absolute sub path":           {"name: a, image: x, volumeMounts: [{name: v, mountPath: /a, subPath: /etc}]", `spec.containers[0].volumeMounts[0].subPath: Invalid value: "/etc": must be a relative path`},
		"mounting back, unprivileged":    {"name: a, image: x, volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]", `spec.containers[0].volumeMounts[0].mountPropagation: Forbidden`},
		"a probe of nothing":             {"name: a, image: x, livenessProbe: {}", `spec.containers[0].livenessProbe: Required value: must specify a handler type`},
		"a probe of two things":          {"name: a, image: x, livenessProbe: {tcpSocket: {port: 1}, exec: {command: [x]}}", `spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type`},
		"a probe's negative delay":       {"name: a, image: x, readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1}", `spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1`},
		"a liveness that needs two":      {"name: a, image: x, livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}", `spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1`},
		"a readiness with a grace":       {"name: a, image: x, readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}", `spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes`},
		"a hook without a command":       {"name: a, image: x, lifecycle: {preStop: {exec: {}}}", `spec.containers[0].lifecycle.preStop.exec.command: Required value`},
		"a hook's port":                  {"name: a, image: x, lifecycle: {preStop: {httpGet: {port: 0}}}", `spec.containers[0].lifecycle.preStop.httpGet.port: Invalid value: 0`},
		"a sleep beyond the grace":       {"name: a, image: x, lifecycle: {preStop: {sleep: {seconds: 31}}}", `spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)`},
		"a stop signal without an OS":    {"name: a, image: x, lifecycle: {stopSignal: SIGUSR1}", `spec.containers[0].lifecycle.stopSignal: Forbidden`},
		"rules without a policy":         {"name: a, image: x, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]", `spec.containers[0].restartPolicy: Required value`},
		"a negative user":                {"name: a, image: x, securityContext: {runAsUser: -1}", `spec.containers[0].securityContext.runAsUser: Invalid value: -1`},
		"privileged and not escalating":  {"name: a, image: x, securityContext: {privileged: true, allowPrivilegeEscalation: false}", `spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false`},
		"a local profile without a name": {"name: a, image: x, securityContext: {seccompProfile: {type: Localhost}}", `spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value`},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(t, manifest("a", "volumes: [{name: v}]", "containers: [{"+c.container+"}]"))
			require.Len(t, got, 1, "%q", got)
			require.True(t, strings.HasPrefix(got[0], c.want), "got %q, want %q first", got[0], c.want)
		})
	}
}

func TestValidationOfThePod(t *testing.T) {
	const containers = "containers: [{name: app, image: x}]"
	for name, c := range map[string]struct {
		spec []string
		want string
	}{
		"no container":                 {[]string{"containers: []"}, "spec.containers: Required value"},
		"a container name twice":       {[]string{"initContainers: [{name: app, image: x}]", containers}, `spec.containers[0].name: Duplicate value: "app"`},
		"a restart policy":             {[]string{"restartPolicy: Maybe", containers}, `spec.restartPolicy: Unsupported value: "Maybe"`},
		"a negative grace":             {[]string{"terminationGracePeriodSeconds: -1", containers}, "spec.terminationGracePeriodSeconds: Invalid value: -1"},
		"a deadline of zero":           {[]string{"activeDeadlineSeconds: 0", containers}, "spec.activeDeadlineSeconds: Invalid value: 0"},
		"a DNS policy":                 {[]string{"dnsPolicy: Guess", containers}, `spec.dnsPolicy: Unsupported value: "Guess"`},
		"DNS from nobody":              {[]string{"dnsPolicy: None", containers}, "spec.dnsConfig.nameservers: Required value"},
		"a host name":                  {[]string{"hostname: a.b", containers}, `spec.hostname: Invalid value: "a.b"`},
		"a host alias":                 {[]string{"hostAliases: [{ip: x, hostnames: [a]}]", containers}, `spec.hostAliases[0].ip: Invalid value: "x"`},
		"a toleration without a key":   {[]string{"tolerations: [{operator: Equal}]", containers}, `spec.tolerations[0].operator: Invalid value: "Equal"`},
		"ephemeral containers":         {[]string{"ephemeralContainers: [{name: e, image: x}]", containers}, "spec.ephemeralContainers: Forbidden"},
		"scheduling gates":             {[]string{"schedulingGates: [{name: g}]", containers}, "spec.schedulingGates: Forbidden"},
		"an unlike host port":          {[]string{"hostNetwork: true", "containers: [{name: app, image: x, ports: [{containerPort: 1, hostPort: 2}]}]"}, "spec.containers[0].ports[0].hostPort: Invalid value: 2"},
		"a volume name twice":          {[]string{"volumes: [{name: v}, {name: v}]", containers}, `spec.volumes[1].name: Duplicate value: "v"`},
		"two volume sources":           {[]string{"volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]", containers}, "spec.volumes[0].emptyDir: Forbidden: may not specify more than 1 volume type"},
		"a host path without a path":   {[]string{"volumes: [{name: v, hostPath: {}}]", containers}, "spec.volumes[0].hostPath.path: Required value"},
		"a host path that goes up":     {[]string{"volumes: [{name: v, hostPath: {path: /a/../b}}]", containers}, `spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`},
		"a host path type":             {[]string{"volumes: [{name: v, hostPath: {path: /a, type: Disk}}]", containers}, `spec.volumes[0].hostPath.type: Unsupported value: "Disk"`},
		"a negative size":              {[]string{"volumes: [{name: v, emptyDir: {sizeLimit: -1}}]", containers}, "spec.volumes[0].emptyDir.sizeLimit: Invalid value"},
		"a medium":                     {[]string{"volumes: [{name: v, emptyDir: {medium: Tape}}]", containers}, `spec.volumes[0].emptyDir.medium: Unsupported value: "Tape"`},
		"a mode":                       {[]string{"volumes: [{name: v, downwardAPI: {defaultMode: 512}}]", containers}, "spec.volumes[0].downwardAPI.defaultMode: Invalid value: 512"},
		"a downward path that goes up": {[]string{"volumes: [{name: v, downwardAPI: {items: [{path: ../a, fieldRef: {fieldPath: metadata.name}}]}}]", containers}, `spec.volumes[0].downwardAPI.items[0].path: Invalid value: "../a"`},
		"a probe before the start":     {[]string{"initContainers: [{name: i, image: x, readinessProbe: {tcpSocket: {port: 1}}}]", containers}, "spec.initContainers[0].readinessProbe: Forbidden"},
		"a hook before the start":      {[]string{"initContainers: [{name: i, image: x, lifecycle: {preStop: {sleep: {seconds: 1}}}}]", containers}, "spec.initContainers[0].lifecycle: Forbidden"},
		"less for all than for each":   {[]string{"resources: {requests: {cpu: 1}}", "containers: [{name: app, image: x, resources: {requests: {cpu: 2}}}]"}, `spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`},
		"a sysctl":                     {[]string{"securityContext: {sysctls: [{name: 'A b'}]}", containers}, `spec.securityContext.sysctls[0].name: Invalid value: "A b"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(t, manifest("a", c.spec...))
			require.Len(t, got, 1, "%q", got)
			require.True(t, strings.HasPrefix(got[0], c.want), "got %q, want %q first", got[0], c.want)
		})
	}
}

func TestValidationOfMetadata(t *testing.T) {
	for name, c := range map[string]struct{ metadata, want string }{
		"no name":                 {"{}", "metadata.name: Required value"},
		"a name that is none":     {"{name: A_b}", `metadata.name: Invalid value: "A_b-node-1"`},
		"a namespace":             {"{name: a, namespace: a.b}", `metadata.namespace: Invalid value: "a.b"`},
		"a label":                 {"{name: a, labels: {x: 'a b'}}", `metadata.labels`},
		"an annotation":           {"{name: a, annotations: {'a b': x}}", `metadata.annotations`},
		"a UID that is a path":    {"{name: a, uid: ../../etc}", `metadata.uid: Invalid value: "../../etc"`},
		"a UID that is no file":   {"{name: a, uid: ..}", `metadata.uid: Invalid value: ".."`},
		"a UID that is too long":  {"{name: a, uid: " + strings.Repeat("a", 129) + "}", `metadata.uid: Invalid value`},
		"a name that is too long": {"{name: " + strings.Repeat("a", 250) + "}", "metadata.name: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			got := faultsOf(t, "apiVersion: v1\nkind: Pod\nmetadata: "+c.metadata+"\nspec: {containers: [{name: app, image: x}]}\n")
			require.Len(t, got, 1, "%q", got)
			require.True(t, strings.HasPrefix(got[0], c.want), "got %q, want %q first", got[0], c.want)
		})
	}
}

func TestValidationTakesAPodThatUsesMuch(t *testing.T) {
	require.Empty(t, faultsOf(t, manifest("a",
		"priorityClassName: system-node-critical",
		"priority: 2000001000",
		"hostAliases: [{ip: '::1', hostnames: [a.b]}]",
		"dnsPolicy: None",
		"dnsConfig: {nameservers: [10.0.0.10], searches: [svc.cluster.local, .], options: [{name: ndots, value: '5'}]}",
		"os: {name: linux}",
		"securityContext: {runAsNonRoot: true, runAsUser: 1, fsGroup: 2, sysctls: [{name: net.core.somaxconn, value: '1'}]}",
		"volumes:",
		"- {name: v, emptyDir: {medium: HugePages-2Mi}}",
		"- {name: d, projected: {sources: [{downwardAPI: {items: [{path: a/b, fieldRef: {fieldPath: \"metadata.labels['example.com/x']\"}}]}}]}}",
		"initContainers:",
		"- {name: s, image: x, restartPolicy: Always, startupProbe: {exec: {command: [x]}}, ports: [{containerPort: 1, hostPort: 7}]}",
		"containers:",
		"- name: app",
		"  image: x",
		"  restartPolicy: Never",
		"  restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]",
		"  resources: {limits: {cpu: 100m, hugepages-2Mi: 4Mi, example.com/gpu: 1}}",
		"  env: [{name: a.b-c, value: x}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: s}}}]",
		"  ports: [{containerPort: 1, hostPort: 7, name: one}, {containerPort: 1, hostPort: 7, protocol: UDP}]",
		"  lifecycle: {stopSignal: SIGUSR1, preStop: {sleep: {seconds: 0}}}",
		"  livenessProbe: {httpGet: {port: one, httpHeaders: [{name: X-A, value: b}]}}",
		"  volumeMounts: [{name: v, mountPath: /a, subPathExpr: $(A)/b}, {name: d, mountPath: /b, readOnly: true, recursiveReadOnly: Enabled}]",
	)))
}

package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const envObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default}
data: {color: blue, size: "7", "not.an-identifier": odd}
binaryData: {blob: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: default}
stringData: {password: s3cret, color: red}
`

// env is an observation of one container's environment.
func env(name, objects, container string, check func(t *testing.T, env map[string]string)) observation {
	return observation{
		name: name, objects: objects,
		meta: "  labels: {app: web, tier: front}\n  annotations: {note: \"a \\\"quoted\\\" word\"}\n",
		spec: "  containers:\n  - name: c\n    image: KK\n    args: [look]\n" + container,
		check: func(t *testing.T, s sight) {
			check(t, s.Report.Env)
		},
	}
}

// wants compares some variables; one that is empty must be set to nothing.
func wants(pairs ...string) func(t *testing.T, env map[string]string) {
	return func(t *testing.T, env map[string]string) {
		for i := 0; i < len(pairs); i += 2 {
			value, ok := env[pairs[i]]
			require.True(t, ok, "variable %s is not set in %v", pairs[i], env)
			require.Equal(t, pairs[i+1], value, "variable %s", pairs[i])
		}
	}
}

// lacks wants variables not to be set.
func lacks(names ...string) func(t *testing.T, env map[string]string) {
	return func(t *testing.T, env map[string]string) {
		for _, name := range names {
			require.NotContains(t, env, name)
		}
	}
}

func both(a, b func(t *testing.T, env map[string]string)) func(t *testing.T, env map[string]string) {
	return func(t *testing.T, env map[string]string) { a(t, env); b(t, env) }
}

func TestObserveTheEnvironment(t *testing.T) {
	observe(t, Options{}, []observation{
		env("a variable sees those before it and not those after", "", `    env: [{name: A, value: "1"}, {name: B, value: "$(A)-$(C)"}, {name: C, value: "3"}]`,
			wants("B", "1-$(C)")),
		env("two dollar signs are one, and no expansion", "", `    env: [{name: A, value: "1"}, {name: B, value: "$$(A) $ ${A}"}]`,
			wants("B", "$(A) $ ${A}")),
		env("the last of two variables of one name wins", "", `    env: [{name: A, value: "1"}, {name: A, value: "2$(A)"}]`, wants("A", "21")),
		env("an empty value is a variable", "", `    env: [{name: EMPTY, value: ""}]`, wants("EMPTY", "")),
		env("the image's own variables are there", "", ``, wants("PATH", "/")),
		env("HOSTNAME is the pod's name", "", ``, func(t *testing.T, env map[string]string) { require.NotEmpty(t, env["HOSTNAME"]) }),
		env("no service variables without services", "", ``, lacks("KUBERNETES_SERVICE_HOST")),

		env("downward API: name, namespace and UID", "", `    env:
    - {name: OWN, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}`,
			func(t *testing.T, env map[string]string) {
				require.Regexp(t, "^o[0-9]+-node$", env["OWN"])
				require.Equal(t, "default", env["NS"])
				require.NotEmpty(t, env["UID"])
			}),
		env("downward API: one label, one annotation, and one that is missing", "", `    env:
    - {name: L, valueFrom: {fieldRef: {fieldPath: "metadata.labels['tier']"}}}
    - {name: A, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: NONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['none']"}}}`,
			wants("L", "front", "A", `a "quoted" word`, "NONE", "")),
		env("downward API: node name", "", `    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]`, wants("NODE", nodeName)),
		env("downward API: addresses of pod and host", "", `    env:
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    - {name: HOSTS, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}`,
			func(t *testing.T, env map[string]string) {
				require.Regexp(t, `^\d+\.\d+\.\d+\.\d+$`, env["IP"])
				require.Equal(t, env["IP"], env["IPS"])
				require.NotEmpty(t, env["HOST"])
				require.NotEmpty(t, env["HOSTS"])
			}),
		env("downward API: requests and limits, rounded up by the divisor", "", `    resources: {requests: {cpu: 150m, memory: 20Mi}, limits: {cpu: 1500m, memory: 33Mi}}
    env:
    - {name: RC, valueFrom: {resourceFieldRef: {resource: requests.cpu}}}
    - {name: RCM, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: LC, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: RM, valueFrom: {resourceFieldRef: {resource: requests.memory}}}
    - {name: LM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}`,
			wants("RC", "1", "RCM", "150", "LC", "2", "RM", "20971520", "LM", "33")),
		env("downward API: without a limit it is what the node has", "", `    env: [{name: LC, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: LM, valueFrom: {resourceFieldRef: {resource: limits.memory}}}]`,
			func(t *testing.T, env map[string]string) {
				require.NotEqual(t, "0", env["LC"])
				require.NotEqual(t, "0", env["LM"])
			}),

		env("a key of a config map and of a secret", envObjects, `    env:
    - {name: C, valueFrom: {configMapKeyRef: {name: NAME, key: color}}}
    - {name: S, valueFrom: {secretKeyRef: {name: NAME, key: password}}}
    - {name: B, value: "$(C)/$(S)"}`,
			wants("C", "blue", "S", "s3cret", "B", "blue/s3cret")),
		env("all of a config map with a prefix, whatever its keys look like", envObjects, `    envFrom: [{prefix: P_, configMapRef: {name: NAME}}]`,
			both(wants("P_color", "blue", "P_size", "7", "P_not.an-identifier", "odd"), lacks("P_blob"))),
		env("of two sources the later one wins, and env wins over both", envObjects, `    envFrom: [{configMapRef: {name: NAME}}, {secretRef: {name: NAME}}]
    env: [{name: size, value: "8"}]`,
			wants("color", "red", "password", "s3cret", "size", "8")),
		env("what is optional and missing is left out", "", `    envFrom: [{configMapRef: {name: nobody, optional: true}}]
    env:
    - {name: A, valueFrom: {configMapKeyRef: {name: nobody, key: x, optional: true}}}
    - {name: B, valueFrom: {secretKeyRef: {name: nobody, key: x, optional: true}}}`, lacks("A", "B")),
		env("a missing optional key of an object that is there is left out", envObjects, `    env: [{name: A, valueFrom: {configMapKeyRef: {name: NAME, key: x, optional: true}}}]`, lacks("A")),
		{
			name: "a pod waits for a config map that is missing, and says so",
			spec: `
  containers:
  - name: c
    image: KK
    args: [look]
    envFrom: [{configMapRef: {name: nobody}}]
`,
			until: waiting("c", "CreateContainerConfigError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, `"nobody" not found`)
			},
		},
		{
			name:    "a pod waits for a key that is missing, and says so",
			objects: envObjects,
			spec: `
  containers:
  - name: c
    image: KK
    args: [look]
    env: [{name: A, valueFrom: {secretKeyRef: {name: NAME, key: nokey}}}]
`,
			until: waiting("c", "CreateContainerConfigError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "couldn't find key nokey in Secret default/"+s.Name)
				require.NotContains(t, s.agent.LogTail(), "s3cret")
			},
		},
		{
			name: "a variable from a file that an init container wrote",
			spec: `
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - name: j
    image: KK
    args: [write, /v/vars, "TOKEN='from a file'\nOTHER='x'\n"]
    volumeMounts: [{name: v, mountPath: /v}]
  containers:
  - name: c
    image: KK
    args: [look]
    env:
    - {name: T, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: TOKEN}}}
    - {name: NONE, valueFrom: {fileKeyRef: {volumeName: v, path: vars, key: NONE, optional: true}}}
`,
			check: func(t *testing.T, s sight) {
				wants("T", "from a file")(t, s.Report.Env)
				lacks("NONE")(t, s.Report.Env)
			},
		},
		{
			name: "command and args see all variables",
			spec: `
  containers:
  - name: c
    image: KK
    command: [/kk, look]
    args: ["$(POD)", "$(LATE)", "$$(LATE)", "$(NONE)"]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}, {name: LATE, value: x}]
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"/kk", "look", "default", "x", "$(LATE)", "$(NONE)"}, s.Report.Args)
			},
		},
		{
			name: "every container has variables of its own",
			spec: `
  initContainers:
  - {name: i, image: KK, args: [look], env: [{name: WHO, value: init}]}
  containers:
  - {name: c, image: KK, args: [look], env: [{name: WHO, value: c}]}
  - {name: d, image: KK, args: [look]}
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, "init", s.Reports["i"].Env["WHO"])
				require.Equal(t, "c", s.Reports["c"].Env["WHO"])
				require.NotContains(t, s.Reports["d"].Env, "WHO")
				require.Equal(t, corev1.PodSucceeded, s.Pod.Status.Phase)
			},
		},
	})
}

package podsource_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func decodeObjects(t *testing.T, text string) *podsource.Manifest {
	t.Helper()
	m, err := podsource.DecodeManifest([]byte(text), from)
	require.NoError(t, err)
	return m
}

func TestDecodeManifestTakesObjectsOfEveryForm(t *testing.T) {
	m := decodeObjects(t, configMap("a", "1")+"---\n"+
		"{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: b}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}\n---\n"+
		`{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"s"}}]}`+"\n---\n"+
		"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: s2}}, {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}]}\n")
	var names []string
	for _, c := range m.ConfigMaps {
		names = append(names, c.Kind+"/"+c.Namespace+"/"+c.Name)
	}
	for _, s := range m.Secrets {
		names = append(names, s.Kind+"/"+s.Namespace+"/"+s.Name)
	}
	for _, p := range m.Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	require.Equal(t, []string{"ConfigMap/default/a", "ConfigMap/default/b", "ConfigMap/default/c",
		"Secret/default/s", "Secret/default/s2", "default/p-node-1"}, names)
}

func TestDecodeManifestDoesWhatTheAPIServerDoesOnWrite(t *testing.T) {
	s := decodeObjects(t, secret("s",
		"immutable: true",
		"data: {a: "+base64.StdEncoding.EncodeToString([]byte("old"))+", b: aGk=}",
		"stringData: {a: new, c: more}")).Secrets[0]
	require.Equal(t, map[string][]byte{"a": []byte("new"), "b": []byte("hi"), "c": []byte("more")}, s.Data)
	require.Nil(t, s.StringData)
	require.Equal(t, corev1.SecretTypeOpaque, s.Type)

	c := decodeObjects(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop, uid: x, resourceVersion: "7", creationTimestamp: 2026-01-01T00:00:00Z, labels: {a: b}}
data: {text: "line"}
binaryData: {bytes: AAEC}
`).ConfigMaps[0]
	require.Equal(t, "shop", c.Namespace)
	require.Empty(t, c.UID)
	require.Empty(t, c.ResourceVersion)
	require.True(t, c.CreationTimestamp.IsZero())
	require.Equal(t, map[string][]byte{"bytes": {0, 1, 2}}, c.BinaryData)
	require.Equal(t, map[string]string{"a": "b"}, c.Labels)
}

func TestPodsMayReferToObjects(t *testing.T) {
	require.Len(t, decodeObjects(t, manifest("a",
		"imagePullSecrets: [{name: s}]",
		"volumes: [{name: v, secret: {secretName: s}}, {name: w, configMap: {name: c}}, {name: p, projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}]}}]",
		"initContainers: [{name: i, image: x, envFrom: [{secretRef: {name: s}}]}]",
		"containers: [{name: app, image: x, envFrom: [{configMapRef: {name: c}}], env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]",
	)).Pods, 1)
	for _, spec := range []string{"serviceAccountName: robot", "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p}}]}}]"} {
		_, err := podsource.DecodeManifest([]byte(manifest("a", spec, "containers: [{name: app, image: x}]")), from)
		require.ErrorContains(t, err, "static pods may not reference serviceaccounts")
	}
}

func typedSecret(kind string, lines ...string) string {
	return secret("s", append([]string{"type: " + kind}, lines...)...)
}

var mebibyte = strings.Repeat("x", 1<<20)

// objectRules has what is wrong with an object, and the beginnings of its faults.
var objectRules = map[string]struct {
	text string
	want []string
}{
	"no name":                       {"apiVersion: v1\nkind: ConfigMap\n", []string{"metadata.name: Required value"}},
	"a name that is none":           {configMap("A_b", "1"), []string{`metadata.name: Invalid value: "A_b"`}},
	"a namespace":                   {"apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: a.b}\n", []string{`metadata.namespace: Invalid value: "a.b"`}},
	"a key with a slash":            {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a/b: x}\n", []string{`data[a/b]: Invalid value: "a/b": a valid config key must consist of`}},
	"a key that goes up":            {secret("s", "data: {..: aHVudGVyMg==}"), []string{`data[..]: Invalid value: ".."`}},
	"a key of both kinds of data":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: x}\nbinaryData: {a: aGk=}\n", []string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`}},
	"a config map of 1 MiB":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + mebibyte + "}\n", nil},
	"a config map beyond 1 MiB":     {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + mebibyte + "}\nbinaryData: {b: aGk=}\n", []string{"data: Too long: may not be more than 1048576 bytes"}},
	"a secret beyond 1 MiB":         {secret("s", "stringData: {a: "+mebibyte+"x}"), []string{"data: Too long: may not be more than 1048576 bytes"}},
	"the same object twice":         {configMap("a", "1") + "---\n" + configMap("a", "2"), []string{`metadata.name: Duplicate value: "ConfigMap default/a"`}},
	"a number for a text":           {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {port: 80}\n", []string{"data.port: Invalid value: 80: want a string, have number; put it in quotes"}},
	"a list that holds another":     {"apiVersion: v1\nkind: SecretList\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]\n", []string{`kind: Unsupported value: "ConfigMap": supported values: "Secret"`}},
	"another version":               {"apiVersion: v2\nkind: Secret\n", []string{`kind: Unsupported value: "v2/Secret": supported values: "v1/Pod"`}},
	"an unknown field of a secret":  {secret("s", "stringdata: {a: hunter2}"), []string{"stringdata: unknown field"}},
	"a secret's number":             {secret("s", "stringData: {pin: 1234567}"), []string{"stringData.pin: Invalid value: want a string, have number; put it in quotes"}},
	"a secret that is not base64":   {secret("s", "data: {a: hunter2!}"), []string{"data.a: Invalid value: illegal base64 data at input byte"}},
	"a secret as a list":            {secret("s", "data: [hunter2]"), []string{"data: Invalid value: want an object, have array"}},
	"a secret's key twice":          {secret("s", "stringData: {a: hunter2, a: hunter2}"), []string{`yaml: line 4: key "a" already set in map`}},
	"a secret with a star":          {secret("s", "stringData: {a: *hunter2}"), []string{"yaml: unknown anchor; a value that begins with '*' needs quotes"}},
	"a secret with a tag":           {secret("s", "stringData: {a: !!int hunter2}"), []string{"yaml: cannot decode !!str a value as a !!int"}},
	"a secret in a map as a key":    {secret("s", "stringData: {{hunter2: hunter2}: hunter2}"), []string{"yaml: a map stands where a key or a value is wanted"}},
	"a secret whose key is null":    {secret("s", "stringData: {~: hunter2}"), []string{"unsupported map key of type: "}},
	"what is left of a secret":      {"hunter2", []string{"not an object but a text"}},
	"a list of secrets that is one": {`{"apiVersion":"v1","kind":"SecretList","items":["hunter2", 3, ["hunter2"], {"kind": 3}]}`, []string{"not an object but a text", "not an object but a number", "not an object but a list", "kind: Invalid value: apiVersion and kind are strings"}},

	"a service account's token": {typedSecret("kubernetes.io/service-account-token"), []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
	"docker config, old":        {typedSecret("kubernetes.io/dockercfg"), []string{"data[.dockercfg]: Required value"}},
	"docker config":             {typedSecret("kubernetes.io/dockerconfigjson"), []string{"data[.dockerconfigjson]: Required value"}},
	"docker config, no JSON":    {typedSecret("kubernetes.io/dockerconfigjson", "stringData: {.dockerconfigjson: hunter2}"), []string{"data[.dockerconfigjson]: Invalid value: must be valid JSON"}},
	"docker config, good":       {typedSecret("kubernetes.io/dockerconfigjson", "stringData: {.dockerconfigjson: '{}'}"), nil},
	"basic auth":                {typedSecret("kubernetes.io/basic-auth"), []string{"data[password]: Required value: a Secret of type kubernetes.io/basic-auth has it"}},
	"basic auth, one is enough": {typedSecret("kubernetes.io/basic-auth", "stringData: {username: me}"), nil},
	"an SSH key":                {typedSecret("kubernetes.io/ssh-auth"), []string{"data[ssh-privatekey]: Required value"}},
	"a TLS pair":                {typedSecret("kubernetes.io/tls"), []string{"data[tls.crt]: Required value", "data[tls.key]: Required value"}},
	"a type of somebody's own":  {typedSecret("example.com/x", "stringData: {a: b}"), nil},
}

func TestObjectsAreChecked(t *testing.T) {
	for name, c := range objectRules {
		t.Run(name, func(t *testing.T) {
			m, err := podsource.DecodeManifest([]byte(c.text), from)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.Nil(t, m)
			all, ok := err.(podsource.DecodeErrors)
			require.True(t, ok, "%T", err)
			require.Len(t, all, len(c.want), "%v", err)
			for i, e := range all {
				require.True(t, strings.HasPrefix(e.Err.Error(), c.want[i]), "got %q, want %q first", e.Err, c.want[i])
			}
			for _, secret := range []string{"hunter", "1234567"} {
				require.NotContains(t, fmt.Sprintf("%v %+v", err, all), secret)
			}
		})
	}
}

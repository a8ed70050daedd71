package podsource_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

var from = podsource.Origin{Kind: podsource.SourceFile, Name: "/m/web.yaml", Node: "Node-1"}

// manifest is a pod with the given name and lines of its spec.
func manifest(name string, spec ...string) string {
	if len(spec) == 0 {
		spec = []string{"containers: [{name: app, image: example.com/app:1}]"}
	}
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  " + strings.Join(spec, "\n  ") + "\n"
}

func decodeOne(t *testing.T, text string, from podsource.Origin) *corev1.Pod {
	t.Helper()
	pods, err := podsource.Decode([]byte(text), from)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	return pods[0]
}

func TestDecodeFindsThePodsOfEveryForm(t *testing.T) {
	asJSON := func(text string) string {
		data, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		return string(data)
	}
	list := func(kind, item string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"items":[%s,%s]}`, kind, item, strings.Replace(item, `"a"`, `"b"`, 1))
	}
	item := asJSON(manifest("a"))
	bare := strings.NewReplacer(`"apiVersion":"v1",`, "", `"kind":"Pod",`, "").Replace(item)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a YAML document":                      {manifest("a"), []string{"a"}},
		"a JSON document":                      {item, []string{"a"}},
		"a YAML document in braces":            {"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: app, image: x}]}} # end", []string{"a"}},
		"several YAML documents, in order":     {manifest("b") + "---\n" + manifest("a"), []string{"b", "a"}},
		"several JSON documents":               {item + "\n" + strings.Replace(item, `"a"`, `"b"`, 1), []string{"a", "b"}},
		"JSON and YAML documents":              {item + "\n---\n" + manifest("b"), []string{"a", "b"}},
		"empty documents and comments between": {"# top\n---\n\n---\n# nothing\n" + "---\n" + manifest("a") + "---\n---\n", []string{"a"}},
		"a document on the boundary's line":    {"--- {apiVersion: v1, kind: List, items: []}\n--- # second\n" + manifest("a"), []string{"a"}},
		"an end marker and a directive":        {"%YAML 1.1\n---\n" + manifest("a") + "...\n" + manifest("b"), []string{"a", "b"}},
		"carriage returns":                     {strings.ReplaceAll(manifest("a")+"---\n"+manifest("b"), "\n", "\r\n"), []string{"a", "b"}},
		"a byte order mark":                    {"\ufeff" + manifest("a"), []string{"a"}},
		"a List":                               {list("List", item), []string{"a", "b"}},
		"a PodList whose items name no kind":   {list("PodList", bare), []string{"a", "b"}},
		"an empty PodList":                     {`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[]}`, nil},
		"an indented document":                 {"  " + strings.ReplaceAll(strings.TrimSpace(manifest("a")), "\n", "\n  ") + "\n", []string{"a"}},
		"a boundary inside a block of text is none when it is indented": {manifest("a", "containers:", "- name: app", "  image: x", "  args:", "  - |", "    ---", "    ..."), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := podsource.Decode([]byte(c.text), from)
			require.NoError(t, err)
			var got []string
			for _, pod := range pods {
				got = append(got, strings.TrimSuffix(pod.Name, "-node-1"))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestDecodeErrorsNameFileDocumentAndField(t *testing.T) {
	container := func(lines ...string) string {
		return manifest("a", append([]string{"containers:", "- name: app", "  image: x"}, lines...)...)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing at all":                 {"", "/m/web.yaml: no pod in it; remove it to remove its pods"},
		"only comments":                  {"# pods to come\n---\n", "/m/web.yaml: no pod in it; remove it to remove its pods"},
		"another kind":                   {"apiVersion: apps/v1\nkind: Deployment\n", `/m/web.yaml document 1: kind: Unsupported value: "apps/v1/Deployment": supported values: "v1/Pod", "v1/PodList", "v1/List"`},
		"no kind":                        {"metadata: {name: a}\n", "/m/web.yaml document 1: kind: Required value: a manifest holds apiVersion v1 and kind Pod, PodList or List"},
		"a scalar":                       {"hello", "/m/web.yaml document 1: not an object but a text; apiVersion and kind are missing"},
		"a fault in the second document": {manifest("a") + "---\n" + manifest("b", "containers: [{name: app}]"), "/m/web.yaml document 2: spec.containers[0].image: Required value"},
		"a fault in a list's item":       {`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service"}]}`, `/m/web.yaml document 1 item 1: kind: Unsupported value: "v1/Service": supported values: "v1/Pod", "v1/PodList", "v1/List"`},
		"a list of lists":                {`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[]}]}`, `/m/web.yaml document 1 item 1: kind: Unsupported value: "v1/List": supported values: "v1/Pod", "v1/PodList", "v1/List"`},
		"items of a wrong type":          {`{"apiVersion":"v1","kind":"List","items":{}}`, `/m/web.yaml document 1: items: Invalid value: "{...}": want a list, have object`},
		"an unknown field":               {container("  imagee: y"), "/m/web.yaml document 1: spec.containers[0].imagee: unknown field"},
		"a field in the wrong case":      {container("  workingdir: /"), "/m/web.yaml document 1: spec.containers[0].workingdir: unknown field"},
		"a repeated key in YAML":         {container("  image: y"), `/m/web.yaml document 1: yaml: line 9: key "image" already set in map`},
		"a repeated key in JSON":         {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"x","image":"y","image":"z"}]}}`, "/m/web.yaml document 1: spec.containers[0].image: duplicate field"},
		"a number for a string":          {container("  env: [{name: A, value: x}, {name: B, value: 1}]"), "/m/web.yaml document 1: spec.containers[0].env[1].value: Invalid value: 1: want a string, have number; put it in quotes"},
		"a quantity":                     {container("  resources: {limits: {cpu: much}}"), `/m/web.yaml document 1: spec.containers[0].resources.limits.cpu: Invalid value: "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"a time":                         {"apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: soon}\n", `/m/web.yaml document 1: metadata.creationTimestamp: Invalid value: "soon": parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"`},
		"an object for a list":           {manifest("a", "containers: {name: app}"), `/m/web.yaml document 1: spec.containers: Invalid value: "{...}": want a list, have object`},
		"YAML that is none, with the line of the file": {manifest("a") + "---\n" + "a:\n  b: c\n d: e\n", "/m/web.yaml document 2: yaml: line 9: did not find expected key"},
		"content after an object in braces":            {"{a: 1}\nb: 2\n", "/m/web.yaml document 1: yaml: line 1: did not find expected ',' or ']'"},
		"two objects in braces":                        {"{a: 1},\n{b: 2}\n", `/m/web.yaml document 1: more than one object in braces; put "---" on a line between them`},
		"content after an indented object":             {"  a: 1\nb: 2\n", "/m/web.yaml document 1: yaml: line 2: indented less than the document's first line"},
	} {
		t.Run(name, func(t *testing.T) {
			pods, err := podsource.Decode([]byte(c.text), from)
			require.EqualError(t, err, c.want)
			require.Empty(t, pods)
		})
	}
}

func TestDecodeErrorsCanBeTaken(t *testing.T) {
	_, err := podsource.Decode([]byte(manifest("a")+"---\n"+manifest("b", "containers: [{name: app}]")), from)
	var decode *podsource.DecodeError
	require.ErrorAs(t, err, &decode)
	require.Equal(t, 2, decode.Document)
	var where *field.Error
	require.ErrorAs(t, err, &where)
	require.Equal(t, "spec.containers[0].image", where.Field)

	_, err = podsource.Decode(nil, from)
	require.ErrorIs(t, err, podsource.ErrNoPod)
}

func TestDecodeErrorsStayReadableWhenThereAreMany(t *testing.T) {
	_, err := podsource.Decode([]byte(strings.Repeat("a: 1\n---\n", 50)), from)
	require.ErrorContains(t, err, "document 10: ")
	require.NotContains(t, err.Error(), "document 11: ")
	require.ErrorContains(t, err, "and 40 more faults")
}

func TestDecodeGivesAStaticPodItsPlace(t *testing.T) {
	pod := decodeOne(t, manifest("web"), from)
	require.Equal(t, "web-node-1", pod.Name)
	require.Equal(t, "default", pod.Namespace)
	require.Equal(t, "Node-1", pod.Spec.NodeName)
	require.Regexp(t, "^[0-9a-f]{32}$", pod.UID)
	require.Equal(t, map[string]string{podsource.AnnotationHash: string(pod.UID)}, pod.Annotations)
	require.Equal(t, []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}, pod.Spec.Tolerations)
	require.Equal(t, corev1.PodStatus{Phase: corev1.PodPending}, pod.Status)

	fromURL := from
	fromURL.Kind = podsource.SourceHTTP
	require.Empty(t, decodeOne(t, manifest("web"), fromURL).Spec.Tolerations, "only files outlive taints")
}

func TestDecodeIgnoresWhatTheServerOwns(t *testing.T) {
	pod := decodeOne(t, `
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: prod
  uid: 6ff0a4c4-9d2c-4c1e-8a55-1fcb0d5a3f0e
  resourceVersion: "7"
  creationTimestamp: 2026-01-01T00:00:00Z
  deletionTimestamp: 2026-01-01T00:00:00Z
  deletionGracePeriodSeconds: 3
  annotations: {kubernetes.io/config.mirror: abc, kubernetes.io/config.source: api, kubernetes.io/config.seen: x, kubernetes.io/config.hash: x, mine: "1"}
spec:
  nodeName: elsewhere
  containers: [{name: app, image: x}]
status: {phase: Running, podIP: 10.0.0.1}
`, from)
	require.EqualValues(t, "6ff0a4c4-9d2c-4c1e-8a55-1fcb0d5a3f0e", pod.UID, "a manifest's own UID stays")
	require.Equal(t, "prod", pod.Namespace)
	require.Equal(t, map[string]string{podsource.AnnotationHash: string(pod.UID), "mine": "1"}, pod.Annotations)
	require.Nil(t, pod.DeletionTimestamp)
	require.Nil(t, pod.DeletionGracePeriodSeconds)
	require.True(t, pod.CreationTimestamp.IsZero())
	require.Empty(t, pod.ResourceVersion)
	require.Equal(t, "Node-1", pod.Spec.NodeName)
	require.Equal(t, corev1.PodStatus{Phase: corev1.PodPending}, pod.Status)
}

func TestUIDFollowsContentAndPlaceOnly(t *testing.T) {
	text := manifest("web")
	uid := decodeOne(t, text, from).UID
	// A fixed value: if this changes, a new version of the library restarts
	// every static pod of every node.
	require.EqualValues(t, "931605ca2c3d58485a2126169eac30f1", uid)

	same := map[string]string{
		"comments and empty lines": "# hello\n" + strings.ReplaceAll(text, "\nspec:", "\n\nspec: # here"),
		"another order of keys":    "kind: Pod\nspec: {containers: [{image: \"example.com/app:1\", name: app}]}\nmetadata: {name: web}\napiVersion: v1\n",
		"JSON":                     `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}`,
		"a neighbour document":     text + "---\n" + manifest("other"),
	}
	for name, text := range same {
		pods, err := podsource.Decode([]byte(text), from)
		require.NoError(t, err)
		require.Equal(t, uid, pods[0].UID, name)
	}
	require.NotEqual(t, uid, decodeOne(t, strings.Replace(text, "app:1", "app:2", 1), from).UID, "other content")
	for _, change := range []func(*podsource.Origin){
		func(o *podsource.Origin) { o.Name = "/m/other.yaml" },
		func(o *podsource.Origin) { o.Node = "node-2" },
		func(o *podsource.Origin) { o.Kind = podsource.SourceHTTP },
	} {
		other := from
		change(&other)
		require.NotEqual(t, uid, decodeOne(t, text, other).UID, "%v", other)
	}
}

func TestStaticPodsReferenceNoAPIObjects(t *testing.T) {
	volume := func(source string) string {
		return manifest("a", "volumes: [{name: v, "+source+"}]", "containers: [{name: app, image: x}]")
	}
	container := func(line string) string {
		return manifest("a", "containers: [{name: app, image: x, "+line+"}]")
	}
	for path, c := range map[string]struct{ text, kind string }{
		"spec.serviceAccountName":                                  {manifest("a", "serviceAccountName: default", "containers: [{name: app, image: x}]"), "serviceaccounts"},
		"spec.serviceAccount":                                      {manifest("a", "serviceAccount: default", "containers: [{name: app, image: x}]"), "serviceaccounts"},
		"spec.imagePullSecrets":                                    {manifest("a", "imagePullSecrets: [{name: s}]", "containers: [{name: app, image: x}]"), "secrets"},
		"spec.resourceClaims":                                      {manifest("a", "resourceClaims: [{name: s}]", "containers: [{name: app, image: x}]"), "resourceclaims"},
		"spec.containers[0].env[0].valueFrom.secretKeyRef":         {container("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), "secrets"},
		"spec.containers[0].env[0].valueFrom.configMapKeyRef":      {container("env: [{name: A, valueFrom: {configMapKeyRef: {name: s, key: k}}}]"), "configmaps"},
		"spec.containers[0].envFrom[0].secretRef":                  {container("envFrom: [{secretRef: {name: s}}]"), "secrets"},
		"spec.containers[0].envFrom[0].configMapRef":               {container("envFrom: [{configMapRef: {name: s}}]"), "configmaps"},
		"spec.containers[0].resources.claims":                      {container("resources: {claims: [{name: s}]}"), "resourceclaims"},
		"spec.initContainers[0].envFrom[0].secretRef":              {manifest("a", "initContainers: [{name: i, image: x, envFrom: [{secretRef: {name: s}}]}]", "containers: [{name: app, image: x}]"), "secrets"},
		"spec.volumes[0].secret":                                   {volume("secret: {secretName: s}"), "secrets"},
		"spec.volumes[0].configMap":                                {volume("configMap: {name: s}"), "configmaps"},
		"spec.volumes[0].persistentVolumeClaim":                    {volume("persistentVolumeClaim: {claimName: s}"), "persistentvolumeclaims"},
		"spec.volumes[0].ephemeral":                                {volume("ephemeral: {}"), "persistentvolumeclaims"},
		"spec.volumes[0].csi":                                      {volume("csi: {driver: d}"), "csidrivers"},
		"spec.volumes[0].glusterfs":                                {volume("glusterfs: {endpoints: e, path: p}"), "endpoints"},
		"spec.volumes[0].azureFile":                                {volume("azureFile: {secretName: s, shareName: s}"), "secrets"},
		"spec.volumes[0].projected.sources[0].secret":              {volume("projected: {sources: [{secret: {name: s}}]}"), "secrets"},
		"spec.volumes[0].projected.sources[0].configMap":           {volume("projected: {sources: [{configMap: {name: s}}]}"), "configmaps"},
		"spec.volumes[0].projected.sources[0].serviceAccountToken": {volume("projected: {sources: [{serviceAccountToken: {path: p}}]}"), "serviceaccounts"},
		"spec.volumes[0].rbd.secretRef":                            {volume("rbd: {monitors: [m], image: i, secretRef: {name: s}}"), "secrets"},
	} {
		t.Run(path, func(t *testing.T) {
			_, err := podsource.Decode([]byte(c.text), from)
			require.EqualError(t, err, "/m/web.yaml document 1: "+path+": Forbidden: static pods may not reference "+c.kind)
		})
	}
}

func TestDefaultsAreThoseOfTheAPIServer(t *testing.T) {
	text, err := os.ReadFile("testdata/defaults.in.yaml")
	require.NoError(t, err)
	wantText, err := os.ReadFile("testdata/defaults.want.yaml")
	require.NoError(t, err)
	pods, err := podsource.Decode(text, from)
	require.NoError(t, err)
	var want []corev1.PodSpec
	require.NoError(t, yaml.UnmarshalStrict(wantText, &want))
	var got []corev1.PodSpec
	for _, pod := range pods {
		got = append(got, pod.Spec)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
}

func TestImagePullPolicyFollowsTheTag(t *testing.T) {
	const digest = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]corev1.PullPolicy{
		"app": "Always", "app:latest": "Always", "app:1": "IfNotPresent", "app" + digest: "IfNotPresent",
		"app:latest" + digest: "Always", "app:1" + digest: "IfNotPresent",
		"localhost:5000/app": "Always", "localhost:5000/app:1": "IfNotPresent", "localhost:5000/app" + digest: "IfNotPresent",
	} {
		pod := decodeOne(t, manifest("a", "containers: [{name: app, image: '"+image+"'}]"), from)
		require.Equal(t, want, pod.Spec.Containers[0].ImagePullPolicy, image)
	}
}

func TestDecodedPodsAreTakenAgain(t *testing.T) {
	first := decodeOne(t, manifest("a"), from)
	data, err := yaml.Marshal(first)
	require.NoError(t, err)
	second := decodeOne(t, string(data), from)
	require.Equal(t, first.UID, second.UID)
	require.Equal(t, first.Spec.Containers, second.Spec.Containers)
}

func TestErrorsUnwrap(t *testing.T) {
	inner := errors.New("inner")
	require.ErrorIs(t, podsource.FileError{File: "a", Err: inner}, inner)
}

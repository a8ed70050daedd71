package podsource_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/kubeletkit/kubeletkit/podsource"
	"sigs.k8s.io/yaml"
)

// FuzzDecode checks that no manifest can do harm: an error or pods, never both,
// and every pod that is taken is complete, keeps its identity and is taken again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		manifest("a"), manifest("a") + "---\n" + manifest("b"), "--- {}\n...\n%YAML 1.2\n---\n", "{a: 1}\nb: 2", "  a: 1\nb: 2",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod"},null,3]}`,
		`{"apiVersion":"v1","kind":"Pod"}{"apiVersion":"v1","kind":"PodList","items":null}`,
		configMap("c", "1") + "---\n" + secret("s", "stringData: {a: b}", "data: {a: aGk=}") + "---\n" + user("a", "c"),
		`{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"s"},"type":"kubernetes.io/tls"},"x"]}`,
		"a: &a [*a]", "\ufeff{", "apiVersion: v1\nkind: Pod\nmetadata: 3\nspec: {containers: [1]}",
	} {
		f.Add([]byte(seed))
	}
	if seed, err := os.ReadFile("testdata/defaults.in.yaml"); err == nil {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := podsource.DecodeManifest(data, from)
		if err != nil {
			if m != nil || err.Error() == "" {
				t.Fatalf("%+v beside %q", m, err)
			}
			if _, err := podsource.Decode(data, from); err == nil {
				t.Fatal("refused only where objects are allowed")
			}
			return
		}
		for _, c := range m.ConfigMaps {
			if again := takenAgain(t, c); len(again.ConfigMaps) != 1 || !reflect.DeepEqual(again.ConfigMaps[0], c) {
				t.Fatalf("%+v is now %+v", c, again)
			}
		}
		for _, s := range m.Secrets {
			if again := takenAgain(t, s); len(again.Secrets) != 1 || !reflect.DeepEqual(again.Secrets[0], s) {
				t.Fatalf("%+v is now %+v", s, again)
			}
		}
		for _, pod := range m.Pods {
			if pod.UID == "" || pod.Name == "" || pod.Namespace == "" || pod.Spec.NodeName != from.Node || len(pod.Spec.Containers) == 0 {
				t.Fatalf("incomplete: %+v", pod)
			}
			if len(pod.Name) > 253-len("-node-1") {
				continue // no room for the suffix once more
			}
			if again := takenAgain(t, pod); len(again.Pods) != 1 || again.Pods[0].UID != pod.UID {
				t.Fatalf("%+v is now %+v", pod, again)
			}
		}
	})
}

func takenAgain(t *testing.T, object any) *podsource.Manifest {
	written, err := yaml.Marshal(object)
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	m, err := podsource.DecodeManifest(written, from)
	if err != nil {
		t.Fatalf("not taken again: %v\n%s", err, written)
	}
	return m
}

package podsource_test

import (
	"os"
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
		"a: &a [*a]", "\ufeff{", "apiVersion: v1\nkind: Pod\nmetadata: 3\nspec: {containers: [1]}",
	} {
		f.Add([]byte(seed))
	}
	if seed, err := os.ReadFile("testdata/defaults.in.yaml"); err == nil {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := podsource.Decode(data, from)
		if err != nil {
			if len(pods) > 0 || err.Error() == "" {
				t.Fatalf("%d pods beside %q", len(pods), err)
			}
			return
		}
		for _, pod := range pods {
			if pod.UID == "" || pod.Name == "" || pod.Namespace == "" || pod.Spec.NodeName != from.Node || len(pod.Spec.Containers) == 0 {
				t.Fatalf("incomplete: %+v", pod)
			}
			written, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatalf("marshal: %v", err)
			}
			if len(pod.Name) > 253-len("-node-1") {
				continue // no room for the suffix once more
			}
			again, err := podsource.Decode(written, from)
			if err != nil || len(again) != 1 || again[0].UID != pod.UID {
				t.Fatalf("not taken again: %v\n%s", err, written)
			}
		}
	})
}

package podsource_test

import (
	"context"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
)

// A pod whose manifest names its UID stays the same pod when it is edited, so it
// can be resized in place. Without a UID every edit is another pod.
func TestEditingAManifestWithItsOwnUIDIsAnUpdate(t *testing.T) {
	manifest := func(uid, cpu string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: web" + uid + "}\n" +
			"spec: {containers: [{name: app, image: x, resources: {limits: {cpu: '" + cpu + "'}}}]}\n"
	}
	for name, c := range map[string]struct {
		uid  string
		want []podsource.Op
	}{
		"with a UID":    {", uid: 6ff0a4c4-9d2c-4c1e-8a55-1fcb0d5a3f0e", []podsource.Op{podsource.OpUpdate}},
		"without a UID": {"", []podsource.Op{podsource.OpRemove, podsource.OpAdd}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "web.yaml", manifest(c.uid, "1"))
			files, err := podsource.NewFiles(podsource.FilesConfig{Path: dir, NodeName: "n1", RescanEvery: time.Hour})
			require.NoError(t, err)
			mux, err := podsource.New(podsource.Config{Sources: []podsource.Source{files}})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- mux.Run(ctx) }()
			first := (<-mux.Updates()).Pods[0]

			write(t, dir, "web.yaml", manifest(c.uid, "2"))
			for _, op := range c.want {
				u := <-mux.Updates()
				require.Equal(t, op, u.Op)
				require.Equal(t, first.Name, u.Pods[0].Name)
				require.Equal(t, c.uid != "" || op == podsource.OpRemove, u.Pods[0].UID == first.UID)
				if op == podsource.OpUpdate {
					require.Equal(t, "2", u.Pods[0].Spec.Containers[0].Resources.Limits.Cpu().String())
					require.Equal(t, first.Annotations, u.Pods[0].Annotations, "hash, source and time of arrival stay")
				}
			}
			cancel()
			require.NoError(t, <-ended)
		})
	}
}

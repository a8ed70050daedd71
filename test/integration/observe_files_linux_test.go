package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const fileObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default}
data: {color: blue, long.file-name_1: "two\nlines\n", same: of the config map}
binaryData: {blob: AAH/}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME, namespace: default}
stringData: {password: s3cret, same: of the secret}
data: {user: cm9vdA==}
`

// withFiles is [inVolume] of a volume that is made of objects.
func withFiles(name, volume, paths, container string, check func(t *testing.T, s sight)) observation {
	o := inVolume(name, volume, paths, container, check)
	o.objects = fileObjects
	o.meta = "  labels: {app: web, tier: front}\n  annotations: {note: \"a \\\"quoted\\\"\\nword\"}\n"
	return o
}

// visibleIn are those in a volume beside the writer's own.
func visibleIn(list []string) (visible []string) {
	for _, name := range list {
		if !strings.HasPrefix(name, "..") {
			visible = append(visible, name)
		}
	}
	return visible
}

func TestObserveConfigMapsAndSecretsInVolumes(t *testing.T) {
	user := "    securityContext: {runAsUser: 1234, runAsGroup: 1234}\n"
	observe(t, Options{}, []observation{
		withFiles("each key of a config map is a file, text or bytes, root's, with mode 0644", "configMap: {name: NAME}", "/v/color, /v/long.file-name_1, /v/blob", user,
			func(t *testing.T, s sight) {
				require.Equal(t, []string{"blob", "color", "long.file-name_1", "same"}, visibleIn(fileIn(t, s.Report, "/v").List))
				color := fileIn(t, s.Report, "/v/color")
				require.Equal(t, "blue", color.Content)
				hasMode(t, color, "0644")
				require.Zero(t, color.UID)
				require.Zero(t, color.GID)
				require.Equal(t, "two\nlines\n", fileIn(t, s.Report, "/v/long.file-name_1").Content)
				require.EqualValues(t, 3, fileIn(t, s.Report, "/v/blob").Size)
				require.NotEqual(t, "tmpfs", mountAt(t, s.Report, "/v").Type)
			}),
		withFiles("the files are links through ..data to a directory with a time in its name", "configMap: {name: NAME}", "/v/color, /v/..data, /v/..data/color", "",
			func(t *testing.T, s sight) {
				require.Equal(t, "..data/color", fileIn(t, s.Report, "/v/color").Link)
				data := fileIn(t, s.Report, "/v/..data")
				require.Regexp(t, `^\.\.20\d\d_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+$`, data.Link)
				require.Contains(t, fileIn(t, s.Report, "/v").List, data.Link)
				hasMode(t, data, "0755")
				require.Empty(t, fileIn(t, s.Report, "/v/..data/color").Link)
			}),
		withFiles("nobody can write to a config map, root neither", "configMap: {name: NAME}", "/v/color", "", func(t *testing.T, s sight) {
			require.False(t, fileIn(t, s.Report, "/v").Writable)
			require.False(t, fileIn(t, s.Report, "/v/color").Writable)
			require.Contains(t, mountAt(t, s.Report, "/v").Options, "ro")
		}),
		withFiles("items are the only keys that are shown, at their paths and with their modes",
			"configMap: {name: NAME, items: [{key: color, path: deep/er/c, mode: 0400}, {key: blob, path: b}]}", "/v/deep, /v/deep/er/c, /v/b", "",
			func(t *testing.T, s sight) {
				require.Equal(t, []string{"b", "deep"}, visibleIn(fileIn(t, s.Report, "/v").List))
				require.Equal(t, "blue", fileIn(t, s.Report, "/v/deep/er/c").Content)
				hasMode(t, s.Report.Files["/v/deep/er/c"], "0400")
				hasMode(t, fileIn(t, s.Report, "/v/b"), "0644")
				hasMode(t, fileIn(t, s.Report, "/v/deep"), "0755")
			}),
		withFiles("defaultMode is of the files, not of their directories", "configMap: {name: NAME, defaultMode: 0440, items: [{key: color, path: d/c}]}", "/v/d/c, /v/d", "",
			func(t *testing.T, s sight) {
				hasMode(t, fileIn(t, s.Report, "/v/d/c"), "0440")
				hasMode(t, fileIn(t, s.Report, "/v/d"), "0755")
			}),
		withFiles("an item's user owns its file, and defaultUser owns the others",
			"configMap: {name: NAME, defaultUser: 7, defaultMode: 0400, items: [{key: color, path: c, user: 1234}, {key: blob, path: b}]}", "/v/c, /v/b", user,
			func(t *testing.T, s sight) {
				require.Equal(t, 1234, fileIn(t, s.Report, "/v/c").UID)
				require.Equal(t, "blue", s.Report.Files["/v/c"].Content)
				require.Equal(t, 7, s.Report.Files["/v/b"].UID)
				require.Contains(t, s.Report.Files["/v/b"].Error, "permission denied")
			}),
		withFiles("an optional config map that is missing is an empty volume", "configMap: {name: nobody, optional: true}", "", "", func(t *testing.T, s sight) {
			require.Empty(t, visibleIn(fileIn(t, s.Report, "/v").List))
		}),
		withFiles("of an optional config map a missing key is left out", "configMap: {name: NAME, optional: true, items: [{key: none, path: x}, {key: color, path: c}]}", "", "",
			func(t *testing.T, s sight) {
				require.Equal(t, []string{"c"}, visibleIn(fileIn(t, s.Report, "/v").List))
			}),
		waitsForVolume("a config map that is missing keeps the pod waiting", "configMap: {name: nobody}", "config map default/nobody", "not found"),
		waitsForVolume("a secret that is missing keeps the pod waiting", "secret: {secretName: nobody}", "secret default/nobody", "not found"),
		func() observation {
			o := waitsForVolume("a key that is missing keeps the pod waiting, and no value is told", "secret: {secretName: NAME, items: [{key: none, path: x}]}",
				"references non-existent secret key: none")
			o.objects = fileObjects
			told := o.check
			o.check = func(t *testing.T, s sight) {
				told(t, s)
				require.NotContains(t, s.agent.LogTail(), "s3cret")
				require.NotContains(t, s.agent.LogTail(), "czNjcmV0")
			}
			return o
		}(),

		withFiles("a secret is in memory, with all its keys", "secret: {secretName: NAME}", "/v/password, /v/user", "", func(t *testing.T, s sight) {
			require.Equal(t, []string{"password", "same", "user"}, visibleIn(fileIn(t, s.Report, "/v").List))
			require.Equal(t, "s3cret", fileIn(t, s.Report, "/v/password").Content)
			require.Equal(t, "root", fileIn(t, s.Report, "/v/user").Content)
			hasMode(t, s.Report.Files["/v/user"], "0644")
			m := mountAt(t, s.Report, "/v")
			require.Equal(t, "tmpfs", m.Type)
			require.Contains(t, m.Options, "ro")
		}),
		withFiles("a secret that only root may read is not read by another user", "secret: {secretName: NAME, defaultMode: 0400}", "/v/password", user, func(t *testing.T, s sight) {
			require.Contains(t, s.Report.Files["/v/password"].Error, "permission denied")
			require.Empty(t, s.Report.Files["/v/password"].Content)
		}),
		withFiles("a secret that belongs to the container's user is read by it alone", "secret: {secretName: NAME, defaultMode: 0400, defaultUser: 1234}", "/v/password", user,
			func(t *testing.T, s sight) {
				require.Equal(t, "s3cret", fileIn(t, s.Report, "/v/password").Content)
				hasMode(t, s.Report.Files["/v/password"], "0400")
				require.Equal(t, 1234, s.Report.Files["/v/password"].UID)
			}),

		withFiles("the downward API: labels and annotations, one a line, and single ones as they are", `downwardAPI: {items: [
      {path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: d/note, fieldRef: {fieldPath: "metadata.annotations['note']"}},
      {path: notes, fieldRef: {fieldPath: metadata.annotations}}, {path: none, fieldRef: {fieldPath: "metadata.labels['none']"}}]}`, "/v/labels, /v/d/note, /v/notes, /v/none", "",
			func(t *testing.T, s sight) {
				require.Equal(t, "app=\"web\"\ntier=\"front\"", fileIn(t, s.Report, "/v/labels").Content)
				require.Equal(t, "a \"quoted\"\nword", fileIn(t, s.Report, "/v/d/note").Content)
				require.Contains(t, fileIn(t, s.Report, "/v/notes").Content, `note="a \"quoted\"\nword"`)
				require.Empty(t, fileIn(t, s.Report, "/v/none").Content)
				require.Equal(t, "tmpfs", mountAt(t, s.Report, "/v").Type)
			}),
		withFiles("the downward API: name, namespace and UID, with modes and owners", `downwardAPI: {defaultMode: 0444, items: [{path: x, mode: 0400, user: 1234, fieldRef: {fieldPath: metadata.name}},
      {path: ns, fieldRef: {fieldPath: metadata.namespace}}, {path: u, fieldRef: {fieldPath: metadata.uid}}]}`, "/v/x, /v/ns, /v/u", user,
			func(t *testing.T, s sight) {
				require.Equal(t, s.Pod.Name, fileIn(t, s.Report, "/v/x").Content)
				hasMode(t, s.Report.Files["/v/x"], "0400")
				require.Equal(t, 1234, s.Report.Files["/v/x"].UID)
				require.Equal(t, "default", fileIn(t, s.Report, "/v/ns").Content)
				hasMode(t, s.Report.Files["/v/ns"], "0444")
				require.Equal(t, string(s.Pod.UID), fileIn(t, s.Report, "/v/u").Content)
			}),
		withFiles("the downward API: what a container requests and may use, rounded up by the divisor", `downwardAPI: {items: [{path: c, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}},
      {path: r, resourceFieldRef: {containerName: c, resource: requests.cpu}}, {path: m, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}]}`, "/v/c, /v/r, /v/m",
			"    resources: {requests: {cpu: 100m}, limits: {cpu: 250m, memory: 65000k}}\n", func(t *testing.T, s sight) {
				require.Equal(t, "250", fileIn(t, s.Report, "/v/c").Content)
				require.Equal(t, "1", fileIn(t, s.Report, "/v/r").Content)
				require.Equal(t, "62", fileIn(t, s.Report, "/v/m").Content)
			}),

		withFiles("a projected volume has the files of all its sources, in memory", `projected: {defaultMode: 0440, sources: [
      {configMap: {name: NAME, items: [{key: color, path: conf/color}]}}, {secret: {name: NAME, items: [{key: password, path: conf/password, mode: 0400}]}},
      {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}`, "/v/conf, /v/conf/color, /v/conf/password, /v/name", "",
			func(t *testing.T, s sight) {
				require.Equal(t, []string{"color", "password"}, fileIn(t, s.Report, "/v/conf").List)
				require.Equal(t, "blue", fileIn(t, s.Report, "/v/conf/color").Content)
				hasMode(t, s.Report.Files["/v/conf/color"], "0440")
				require.Equal(t, "s3cret", fileIn(t, s.Report, "/v/conf/password").Content)
				hasMode(t, s.Report.Files["/v/conf/password"], "0400")
				require.Equal(t, s.Pod.Name, fileIn(t, s.Report, "/v/name").Content)
				require.Equal(t, "tmpfs", mountAt(t, s.Report, "/v").Type)
				require.False(t, s.Report.Files["/v"].Writable)
			}),
		withFiles("where two sources have a file of one name the later one counts", "projected: {sources: [{configMap: {name: NAME}}, {secret: {name: NAME}}]}", "/v/same, /v/color", "",
			func(t *testing.T, s sight) {
				require.Equal(t, "of the secret", fileIn(t, s.Report, "/v/same").Content)
				require.Equal(t, "blue", fileIn(t, s.Report, "/v/color").Content)
			}),
		withFiles("a source that is optional and missing is left out", "projected: {sources: [{configMap: {name: nobody, optional: true}}, {secret: {name: NAME}}]}", "", "",
			func(t *testing.T, s sight) {
				require.Equal(t, []string{"password", "same", "user"}, visibleIn(fileIn(t, s.Report, "/v").List))
			}),
		waitsForVolume("a source that is missing keeps the pod waiting", "projected: {sources: [{downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}, {configMap: {name: nobody}}]}",
			"projected source 2", "config map default/nobody"),
		withFiles("the files of a projected volume have owners", "projected: {defaultUser: 1234, defaultMode: 0400, sources: [{secret: {name: NAME}}]}", "/v/password", user,
			func(t *testing.T, s sight) {
				require.Equal(t, "s3cret", fileIn(t, s.Report, "/v/password").Content)
				require.Equal(t, 1234, s.Report.Files["/v/password"].UID)
			}),
	})
}

func TestObserveTheGroupOfVolumes(t *testing.T) {
	grouped := func(name, security, volume, paths string, check func(t *testing.T, s sight)) observation {
		o := withFiles(name, volume, paths, "", check)
		o.spec = fmt.Sprintf("  securityContext: {runAsUser: 1234, runAsGroup: 1234, fsGroup: 4321%s}\n", security) + o.spec
		return o
	}
	directory := func(mode string) func(t *testing.T, s sight) {
		return func(t *testing.T, s sight) {
			require.Contains(t, s.Report.Groups, 4321)
			dir := fileIn(t, s.Report, "/v")
			require.Equal(t, 4321, dir.GID)
			require.Zero(t, dir.UID)
			hasMode(t, dir, mode)
			require.True(t, dir.Writable)
		}
	}
	readable := func(mode string) func(t *testing.T, s sight) {
		return func(t *testing.T, s sight) {
			secret := fileIn(t, s.Report, "/v/password")
			require.Equal(t, "s3cret", secret.Content)
			require.Equal(t, 4321, secret.GID)
			hasMode(t, secret, mode)
		}
	}
	observe(t, Options{}, []observation{
		grouped("an emptyDir belongs to fsGroup, and so does what is made in it", "", "emptyDir: {}", "", directory("2777")),
		grouped("an emptyDir in memory belongs to fsGroup", "", "emptyDir: {medium: Memory}", "", directory("2777")),
		grouped("fsGroup comes on top of an emptyDir's mode", "", "emptyDir: {mode: 0700}", "", directory("2770")),
		grouped("with fsGroupChangePolicy OnRootMismatch a new volume is given to the group", ", fsGroupChangePolicy: OnRootMismatch", "emptyDir: {mode: 0700}", "", directory("2770")),
		grouped("with fsGroupChangePolicy Always, too", ", fsGroupChangePolicy: Always", "emptyDir: {mode: 0700}", "", directory("2770")),
		grouped("fsGroup may read a secret that nobody else may", "", "secret: {secretName: NAME, defaultMode: 0400}", "/v/password", readable("0440")),
		grouped("fsGroup may read a projected secret, and does not lose what others may", "", "projected: {sources: [{secret: {name: NAME, items: [{key: password, path: password, mode: 0644}]}}]}",
			"/v/password", readable("0644")),
		grouped("fsGroup may read an item with an owner of its own", "", "secret: {secretName: NAME, items: [{key: password, path: password, mode: 0, user: 99}]}", "/v/password", func(t *testing.T, s sight) {
			readable("0440")(t, s)
			require.Equal(t, 99, s.Report.Files["/v/password"].UID)
		}),
		grouped("directories in a config map are the group's, too", "", "configMap: {name: NAME, items: [{key: color, path: d/c}]}", "/v/d, /v/d/c", func(t *testing.T, s sight) {
			require.Equal(t, 4321, fileIn(t, s.Report, "/v/d").GID)
			require.Equal(t, 4321, fileIn(t, s.Report, "/v/d/c").GID)
			require.Equal(t, "blue", s.Report.Files["/v/d/c"].Content)
		}),
		{
			name: "what one user of the group makes in an emptyDir, another one of the group may read",
			spec: `
  securityContext: {fsGroup: 4321}
  volumes: [{name: v, emptyDir: {mode: 0700}}]
  initContainers:
  - {name: i, image: KK, args: [write, /v/file, hello], volumeMounts: [{name: v, mountPath: /v}], securityContext: {runAsUser: 1000}}
  containers:
  - {name: c, image: KK, args: [look, /v/file], volumeMounts: [{name: v, mountPath: /v}], securityContext: {runAsUser: 2000}}
`,
			check: func(t *testing.T, s sight) {
				made := fileIn(t, s.Report, "/v/file")
				require.Equal(t, "hello", made.Content)
				require.Equal(t, 1000, made.UID)
				require.Equal(t, 4321, made.GID, "the directory is not setgid")
				require.Equal(t, corev1.PodSucceeded, s.Pod.Status.Phase)
			},
		},
	})
}

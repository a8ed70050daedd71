package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// partOf is an observation of a container that mounts a part of the volume v at /p,
// after an init container "i" that has the whole of it at /v did some steps.
func partOf(name, volume, steps, mount, paths string, check func(t *testing.T, s sight)) observation {
	o := observation{name: name, objects: fileObjects, check: check}
	o.spec = "  volumes:\n  - name: v\n    " + volume + "\n"
	if steps != "" {
		o.spec += "  initContainers: [{name: i, image: KK, args: [" + steps + "], volumeMounts: [{name: v, mountPath: /v}]}]\n"
	}
	o.spec += "  containers:\n  - name: c\n    image: KK\n    args: [look, /p" + paths + "]\n    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: UP, value: ../x}]\n" +
		"    volumeMounts: [{name: v, mountPath: /p, " + mount + "}]\n"
	return o
}

// outside is an observation of a part that is not in the volume. The pod says so, and
// nothing of what is outside.
func outside(name, volume, steps, mount string, why string) observation {
	o := partOf(name, volume, steps, mount, "", func(t *testing.T, s sight) {
		message := s.Status(t, "c").State.Waiting.Message
		require.Contains(t, message, why)
		require.NotContains(t, message, s.agent.Root, "a path of the node is told")
		require.Empty(t, containers(t, s.Name, "c"))
	})
	o.until = waiting("c", "CreateContainerConfigError")
	return o
}

func TestObservePartsOfVolumes(t *testing.T) {
	const away = "the path leads out of the volume"
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "passwd"), []byte("of the host"), 0o644))
	inside := filepath.Join(host, "volume")
	require.NoError(t, os.Mkdir(inside, 0o755))
	require.NoError(t, os.Symlink("../passwd", filepath.Join(inside, "up")))
	require.NoError(t, os.Symlink(host+"/passwd", filepath.Join(inside, "away")))
	hostPath := "hostPath: {path: " + inside + "}"

	observe(t, Options{}, []observation{
		partOf("subPath is one file of a config map", "configMap: {name: NAME}", "", "subPath: color", "", func(t *testing.T, s sight) {
			require.Equal(t, "blue", fileIn(t, s.Report, "/p").Content)
			require.Empty(t, s.Report.Files["/p"].Link)
			require.False(t, s.Report.Files["/p"].Writable)
		}),
		partOf("subPath is one file of a secret, in memory and read-only", "secret: {secretName: NAME, items: [{key: password, path: deep/er, mode: 0400}]}", "", "subPath: deep/er", "",
			func(t *testing.T, s sight) {
				require.Equal(t, "s3cret", fileIn(t, s.Report, "/p").Content)
				hasMode(t, s.Report.Files["/p"], "0400")
				m := mountAt(t, s.Report, "/p")
				require.Equal(t, "tmpfs", m.Type)
				require.Contains(t, m.Options, "ro")
			}),
		partOf("subPath is a directory that was made before", "emptyDir: {}", "append, /v/a/b/file, hello", "subPath: a/b", ", /p/file", func(t *testing.T, s sight) {
			require.Equal(t, []string{"file"}, fileIn(t, s.Report, "/p").List)
			require.Contains(t, fileIn(t, s.Report, "/p/file").Content, "hello")
		}),
		partOf("subPath is a file that was made before, and may be written to", "emptyDir: {medium: Memory}", "write, /v/file, hello", "subPath: file", "", func(t *testing.T, s sight) {
			require.Equal(t, "hello", fileIn(t, s.Report, "/p").Content)
			require.True(t, s.Report.Files["/p"].Writable)
			require.Equal(t, "tmpfs", mountAt(t, s.Report, "/p").Type)
		}),
		partOf("a subPath that is missing is a directory with the volume's mode", "emptyDir: {mode: 0751}", "", "subPath: a/b", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/p"), "0751")
			require.True(t, s.Report.Files["/p"].Writable)
		}),
		{
			name: "a subPath that is missing belongs to fsGroup as the volume does",
			spec: `
  securityContext: {fsGroup: 4321}
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: c, image: KK, args: [look, /p], volumeMounts: [{name: v, mountPath: /p, subPath: a/b}]}]
`,
			check: func(t *testing.T, s sight) {
				hasMode(t, fileIn(t, s.Report, "/p"), "2777")
				require.Equal(t, 4321, s.Report.Files["/p"].GID)
			},
		},
		partOf("subPath with readOnly", "emptyDir: {}", "append, /v/a/file, hello", "subPath: a, readOnly: true", ", /p/file", func(t *testing.T, s sight) {
			require.False(t, fileIn(t, s.Report, "/p").Writable)
			require.False(t, fileIn(t, s.Report, "/p/file").Writable)
			require.Contains(t, mountAt(t, s.Report, "/p").Options, "ro")
		}),
		partOf("subPath of a hostPath", hostPath, "append, /v/part/file, hello", "subPath: part", "", func(t *testing.T, s sight) {
			require.Equal(t, []string{"file"}, fileIn(t, s.Report, "/p").List)
			require.FileExists(t, inside+"/part/file")
		}),
		partOf("subPathExpr has the container's variables", "emptyDir: {}", "", `subPathExpr: "of-$(POD)/$$(POD)"`, "", func(t *testing.T, s sight) {
			require.True(t, strings.HasSuffix(mountAt(t, s.Report, "/p").Root, "/v/of-"+s.Pod.Name+"/$(POD)"), mountAt(t, s.Report, "/p").Root)
		}),
		partOf("a symlink that stays in the volume is followed", "emptyDir: {}", "append, /v/real/file, x, link, real, /v/one, link, ./one/../one, /v/two", "subPath: two", "", func(t *testing.T, s sight) {
			require.Equal(t, []string{"file"}, fileIn(t, s.Report, "/p").List)
		}),
		{
			name: "two containers have two parts of one volume, and one container two",
			spec: `
  volumes: [{name: v, emptyDir: {}}]
  initContainers: [{name: i, image: KK, args: [append, /v/a/x, "1", append, /v/b/y, "2"], volumeMounts: [{name: v, mountPath: /v}]}]
  containers:
  - {name: c, image: KK, args: [look, /a, /b], volumeMounts: [{name: v, mountPath: /a, subPath: a}, {name: v, mountPath: /b, subPath: b}]}
  - {name: d, image: KK, args: [look, /a, /b], volumeMounts: [{name: v, mountPath: /a, subPath: b}]}
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"x"}, fileIn(t, s.Report, "/a").List)
				require.Equal(t, []string{"y"}, fileIn(t, s.Report, "/b").List)
				require.Equal(t, []string{"y"}, fileIn(t, s.Reports["d"], "/a").List)
				require.Contains(t, s.Reports["d"].Files["/b"].Error, "no such file")
			},
		},
		{
			name: "a container that starts again has its part of the volume again",
			spec: `
  restartPolicy: OnFailure
  volumes: [{name: v, emptyDir: {}}]
  containers: [{name: c, image: KK, args: [first, "1", /p/runs, "3", look, /p/runs], volumeMounts: [{name: v, mountPath: /p, subPath: part}]}]
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, 2, strings.Count(fileIn(t, s.Report, "/p/runs").Content, "\n"))
			},
		},

		outside("an absolute symlink is not followed", "emptyDir: {}", "link, /etc, /v/l", "subPath: l", away),
		outside("a symlink upwards is not followed", "emptyDir: {}", "link, ../../../../.., /v/l", "subPath: l", away),
		outside("a symlink on the way is not followed out of the volume", "emptyDir: {medium: Memory}", "append, /v/d/file, x, link, ../.., /v/d/up", "subPath: d/up/etc", away),
		outside("a symlink to a symlink is not followed out of the volume", "emptyDir: {}", "link, two, /v/one, link, ../.., /v/two", "subPath: one/x", away),
		outside("a symlink to another place of the host is not followed", hostPath, "", "subPath: away", away),
		outside("a symlink upwards in a hostPath is not followed", hostPath, "", "subPath: up", away),
		outside("a symlink to nothing is no directory that is made", "emptyDir: {}", "link, nothing, /v/l", "subPath: l", "leads to nothing"),
		outside("a file is no directory", "emptyDir: {}", "write, /v/file, x", "subPath: file/x", "not a directory"),
		outside("a variable leads upwards", "emptyDir: {}", "", `subPathExpr: "$(UP)"`, `must not contain ".."`),
		outside("a variable is missing", "emptyDir: {}", "", `subPathExpr: "a/$(NOBODY)"`, "NOBODY"),
	})
	data, err := os.ReadFile(filepath.Join(host, "passwd"))
	require.NoError(t, err)
	require.Equal(t, "of the host", string(data))
}

// TestObserveImagesAndDepth is of what only newer runtimes have. On an older one
// the pod says what is missing.
func TestObserveImagesAndDepth(t *testing.T) {
	modern := !strings.HasPrefix(strings.TrimPrefix(the.daemon.Version(), "v"), "1.")
	deepRuntime := can(t).RecursiveReadOnlyMounts
	deep := t.TempDir()
	tmpfsOn(t, filepath.Join(deep, "below"))
	require.NoError(t, unix.Mount("", filepath.Join(deep, "below"), "", unix.MS_PRIVATE, ""))
	below := func(name, mount string, check func(t *testing.T, s sight)) observation {
		o := inVolume(name, "hostPath: {path: "+deep+"}", "/v/below", "", check)
		o.spec = strings.Replace(o.spec, "mountPath: /v}", "mountPath: /v, "+mount+"}", 1)
		return o
	}
	image := func(name, reference, mount, paths string, check func(t *testing.T, s sight)) observation {
		o := inVolume(name, "image: {reference: "+reference+"}", paths, "", check)
		o.spec = strings.Replace(o.spec, "mountPath: /v}", "mountPath: /v"+mount+"}", 1)
		if !modern {
			o.until, o.check = waiting("c", "CreateContainerError"), func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "mounts an image as a volume, for which the runtime has to be containerd 2.1")
			}
		}
		return o
	}
	rows := []observation{
		below("with readOnly alone, what is mounted below the volume may be written to", "readOnly: true", func(t *testing.T, s sight) {
			require.False(t, fileIn(t, s.Report, "/v").Writable)
			require.True(t, fileIn(t, s.Report, "/v/below").Writable)
		}),
		below("recursiveReadOnly IfPossible: if the runtime can, nothing below the volume may be written to", "readOnly: true, recursiveReadOnly: IfPossible", func(t *testing.T, s sight) {
			require.False(t, fileIn(t, s.Report, "/v").Writable)
			require.Equal(t, !deepRuntime, fileIn(t, s.Report, "/v/below").Writable)
		}),
		below("recursiveReadOnly Disabled", "readOnly: true, recursiveReadOnly: Disabled", func(t *testing.T, s sight) {
			require.True(t, fileIn(t, s.Report, "/v/below").Writable)
		}),
		below("recursiveReadOnly Enabled: nothing below the volume may be written to", "readOnly: true, recursiveReadOnly: Enabled", func(t *testing.T, s sight) {
			require.False(t, fileIn(t, s.Report, "/v").Writable)
			require.False(t, fileIn(t, s.Report, "/v/below").Writable)
		}),
		func() observation {
			o := volumeRefused("options of a bind mount, which CRI does not have", "emptyDir: {}", "", "PodFeatureUnsupported", "spec.containers[0].volumeMounts[0].bindMountOptions")
			o.spec = strings.Replace(o.spec, "mountPath: /v}", "mountPath: /v, bindMountOptions: [noexec]}", 1)
			return o
		}(),
		image("an image is a directory that nobody may write to", the.kk, "", "/v/kk", func(t *testing.T, s sight) {
			require.Contains(t, fileIn(t, s.Report, "/v").List, "kk")
			require.False(t, s.Report.Files["/v"].Writable)
			require.Greater(t, s.Report.Files["/v/kk"].Size, int64(100_000))
		}),
		image("a part of an image", the.kk, ", subPath: etc", "", func(t *testing.T, s sight) {
			require.Empty(t, fileIn(t, s.Report, "/v").List)
		}),
		image("two containers see one image", the.kk, "", "", func(t *testing.T, s sight) {
			require.Equal(t, corev1.PodSucceeded, s.Pod.Status.Phase)
			require.Equal(t, s.Report.Files["/v"].List, s.Reports["d"].Files["/v"].List)
		}),
	}
	rows[len(rows)-1].spec += "  - {name: d, image: KK, args: [look, /v], volumeMounts: [{name: v, mountPath: /v}]}\n"
	never := image("an image that is not there and may not be pulled", fmt.Sprintf("%s-none, pullPolicy: Never", the.kk), "", "", nil)
	never.until, never.check = waiting("c", "ErrImageNeverPull"), func(t *testing.T, s sight) {
		require.Contains(t, s.Status(t, "c").State.Waiting.Message, "image of volume v")
	}
	rows = append(rows, never)
	own := func(name, volume, paths, mount string, check func(t *testing.T, s sight)) observation {
		o := withFiles(name, volume, paths, "    securityContext: {runAsUser: 1234, runAsGroup: 1234}\n", nil)
		spec := strings.Replace("  hostUsers: false\n  securityContext: {fsGroup: 4321}\n"+o.spec, "mountPath: /v}", "mountPath: /v"+mount+"}", 1)
		users := ownUsers(t, name, spec, check)
		users.objects = o.objects
		return users
	}
	rows = append(rows,
		own("a pod with users of its own has a secret that belongs to one of them", "secret: {secretName: NAME, defaultMode: 0400, defaultUser: 1234}", "/v/password", "", func(t *testing.T, s sight) {
			require.NotEqual(t, "0 0 4294967295", s.Report.UIDMap)
			secret := fileIn(t, s.Report, "/v/password")
			require.Equal(t, "s3cret", secret.Content)
			require.Equal(t, 1234, secret.UID)
			require.Equal(t, 4321, secret.GID)
		}),
		own("a pod with users of its own has an emptyDir that belongs to its group", "emptyDir: {mode: 0700}", "", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "2770")
			require.Equal(t, 4321, s.Report.Files["/v"].GID)
			require.True(t, s.Report.Files["/v"].Writable)
		}),
		own("a pod with users of its own has memory and parts of it", "emptyDir: {medium: Memory, mode: 0700}", "", ", subPath: a/b", func(t *testing.T, s sight) {
			require.Equal(t, "tmpfs", mountAt(t, s.Report, "/v").Type)
			require.Equal(t, 4321, fileIn(t, s.Report, "/v").GID)
			require.True(t, s.Report.Files["/v"].Writable)
		}))
	if enabled := &rows[3]; !deepRuntime {
		enabled.until, enabled.check = waiting("c", "CreateContainerConfigError"), func(t *testing.T, s sight) {
			require.Contains(t, s.Status(t, "c").State.Waiting.Message, `recursiveReadOnly "Enabled" is not supported by runtime handler`)
		}
	}
	observe(t, Options{}, rows)
}

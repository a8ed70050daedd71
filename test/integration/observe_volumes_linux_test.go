package integration_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/report"
)

// inVolume is an observation of one volume at /v, by a container that looks at it and
// at more paths. container has more of the container's lines.
func inVolume(name, volume, paths, container string, check func(t *testing.T, s sight)) observation {
	return observation{
		name: name,
		spec: "  volumes:\n  - name: v\n    " + volume + "\n  containers:\n  - name: c\n    image: KK\n    args: [" + strings.TrimSuffix("look, /v, "+paths, ", ") +
			"]\n    volumeMounts: [{name: v, mountPath: /v}]\n" + container,
		check: check,
	}
}

// waitsForVolume is an observation of a pod that can't start for the sake of its volume, and
// says why in an event.
func waitsForVolume(name, volume string, why ...string) observation {
	o := inVolume(name, volume, "", "", func(t *testing.T, s sight) {
		s.agent.SaysOf(s.Pod.Name, append([]string{"FailedMount", "volume v"}, why...)...)
		require.Empty(t, containers(t, s.Name, ""), "a container was made without its volume")
	})
	o.until = waiting("c", "ContainerCreating")
	return o
}

// volumeRefused is an observation of a pod that the node does not take, and why.
func volumeRefused(name, volume, container, reason string, why ...string) observation {
	o := inVolume(name, volume, "", container, func(t *testing.T, s sight) {
		require.Equal(t, reason, s.Pod.Status.Reason)
		for _, words := range why {
			require.Contains(t, s.Pod.Status.Message, words)
		}
		require.Empty(t, sandboxes(t, s.Name))
	})
	o.until = inPhase(corev1.PodFailed)
	return o
}

// SaysOf waits until the agent's log has a line about the pod with all the words.
func (a *Agent) SaysOf(pod string, words ...string) {
	a.t.Helper()
	words = append([]string{pod}, words...)
	Eventually(a.t, 10*time.Second, func() error {
		data, err := os.ReadFile(a.LogFile)
		if err != nil {
			return err
		}
		best, most := "", 0
		for line := range strings.Lines(strings.ReplaceAll(string(data), `\"`, `"`)) {
			n := 0
			for _, w := range words {
				if strings.Contains(line, w) {
					n++
				}
			}
			if n == len(words) {
				return nil
			}
			if n > most {
				best, most = line, n
			}
		}
		return fmt.Errorf("no line of the log has all of %q; the nearest is\n%s", words, best)
	})
}

// ownMount is a directory with a small tmpfs on it, of the given propagation.
func ownMount(t *testing.T, propagation uintptr) string {
	t.Helper()
	dir := t.TempDir()
	tmpfsOn(t, dir)
	require.NoError(t, unix.Mount("", dir, "", propagation, ""))
	return dir
}

func tmpfsOn(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, unix.Mount("test", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // fails if it is gone already
}

// mountsOf are the mounts that a container has now.
func mountsOf(t *testing.T, s sight, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pidOf(t, s.Container(t, name).Id)))
	require.NoError(t, err)
	return string(data)
}

func mountAt(t *testing.T, r report.Report, point string) report.Mount {
	t.Helper()
	m, ok := r.Mount(point)
	require.True(t, ok, "nothing is mounted at %s", point)
	return m
}

// fileIn is what a report says of a path that must be there.
func fileIn(t *testing.T, r report.Report, path string) report.File {
	t.Helper()
	f, ok := r.Files[path]
	require.True(t, ok, "nobody looked at %s", path)
	require.Empty(t, f.Error, path)
	return f
}

func hasMode(t *testing.T, f report.File, mode string) {
	t.Helper()
	_, octal, _ := strings.Cut(f.Mode, " ")
	require.Equal(t, mode, octal, "mode %s", f.Mode)
}

func TestObserveDirectoriesInVolumes(t *testing.T) {
	user := "    securityContext: {runAsUser: 1234, runAsGroup: 1234}\n"
	observe(t, Options{}, []observation{
		inVolume("an emptyDir is an empty directory on the node's disk that everybody may write to", "emptyDir: {}", "", user, func(t *testing.T, s sight) {
			dir := fileIn(t, s.Report, "/v")
			hasMode(t, dir, "0777")
			require.Empty(t, dir.List)
			require.True(t, dir.Writable)
			require.Zero(t, dir.UID)
			m := mountAt(t, s.Report, "/v")
			require.NotEqual(t, "tmpfs", m.Type)
			require.True(t, strings.HasSuffix(m.Root, "/pods/"+string(s.Pod.UID)+"/volumes/kubernetes.io~empty-dir/v"), m.Root)
		}),
		inVolume("an emptyDir of medium Memory is a tmpfs, and its memory is no more than the node's", "emptyDir: {medium: Memory}", "", user, func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "0777")
			require.True(t, fileIn(t, s.Report, "/v").Writable)
			m := mountAt(t, s.Report, "/v")
			require.Equal(t, "tmpfs", m.Type)
			require.Regexp(t, `(^|,)size=\d+k`, strings.Join(m.Super, ","))
		}),
		inVolume("an emptyDir in memory has the size of its sizeLimit", "emptyDir: {medium: Memory, sizeLimit: 3Mi}", "", "", func(t *testing.T, s sight) {
			require.Contains(t, mountAt(t, s.Report, "/v").Super, "size=3072k")
		}),
		inVolume("an emptyDir in memory is no larger than what the pod's containers may use", "emptyDir: {medium: Memory, sizeLimit: 1Gi}", "",
			"    resources: {limits: {memory: 64Mi}}\n", func(t *testing.T, s sight) {
				require.Contains(t, mountAt(t, s.Report, "/v").Super, "size=65536k")
			}),
		inVolume("an emptyDir has the mode that it asks for", "emptyDir: {mode: 0750}", "", user, func(t *testing.T, s sight) {
			require.Contains(t, s.Report.Files["/v"].Mode, "0750")
			require.Contains(t, s.Report.Files["/v"].Error, "permission denied")
			require.False(t, s.Report.Files["/v"].Writable)
		}),
		inVolume("an emptyDir in memory may be sticky", "emptyDir: {medium: Memory, mode: 01777}", "", user, func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "1777")
			require.True(t, s.Report.Files["/v"].Writable)
		}),
		{
			name: "the containers of a pod share an emptyDir, each at a place of its own",
			spec: `
  volumes: [{name: v, emptyDir: {}}]
  initContainers: [{name: i, image: KK, args: [append, /here/sub/note, hello], volumeMounts: [{name: v, mountPath: /here}]}]
  containers: [{name: c, image: KK, args: [look, /there, /there/sub/note], volumeMounts: [{name: v, mountPath: /there}]}]
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"sub"}, fileIn(t, s.Report, "/there").List)
				require.Contains(t, fileIn(t, s.Report, "/there/sub/note").Content, "hello")
			},
		},
		{
			name: "an emptyDir outlives its containers",
			spec: `
  restartPolicy: OnFailure
  volumes: [{name: v, emptyDir: {medium: Memory}}]
  containers: [{name: c, image: KK, args: [first, "1", /v/runs, "3", look, /v/runs], volumeMounts: [{name: v, mountPath: /v}]}]
`,
			check: func(t *testing.T, s sight) {
				require.EqualValues(t, 1, s.Status(t, "c").RestartCount)
				require.Equal(t, 2, strings.Count(fileIn(t, s.Report, "/v/runs").Content, "\n"))
			},
		},
		{
			name: "one volume may be mounted twice, and one mount may lie in another",
			spec: `
  volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {medium: Memory}}]
  containers:
  - name: c
    image: KK
    args: [append, /v/file, x, look, /v, /again, /v/deep]
    volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /again, readOnly: true}, {name: w, mountPath: /v/deep}]
`,
			check: func(t *testing.T, s sight) {
				require.Contains(t, fileIn(t, s.Report, "/again").List, "file")
				require.False(t, s.Report.Files["/again"].Writable)
				require.True(t, s.Report.Files["/v"].Writable)
				require.Equal(t, "tmpfs", mountAt(t, s.Report, "/v/deep").Type)
				require.Empty(t, fileIn(t, s.Report, "/v/deep").List)
			},
		},
		{
			name: "readOnly is of the mount, not of the volume",
			spec: `
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - {name: c, image: KK, args: [look, /v], volumeMounts: [{name: v, mountPath: /v, readOnly: true}]}
  - {name: d, image: KK, args: [look, /v], volumeMounts: [{name: v, mountPath: /v}]}
`,
			check: func(t *testing.T, s sight) {
				require.Contains(t, mountAt(t, s.Report, "/v").Options, "ro")
				require.False(t, fileIn(t, s.Report, "/v").Writable)
				require.True(t, fileIn(t, s.Reports["d"], "/v").Writable)
			},
		},
		inVolume("a volume without a source is an emptyDir", "emptyDir:", "", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "0777")
		}),
		{
			name: "a volume that no container mounts is not set up",
			spec: `
  volumes: [{name: v, configMap: {name: nobody}}, {name: w, hostPath: {path: /nowhere/at/all, type: Directory}}]
  containers: [{name: c, image: KK, args: [look]}]
`,
			check: func(t *testing.T, s sight) { require.Equal(t, corev1.PodSucceeded, s.Pod.Status.Phase) },
		},
		waitsForVolume("huge pages that the pod does not request keep it waiting", "emptyDir: {medium: HugePages}", "requests no huge pages"),
		volumeRefused("huge pages that the node does not have", "emptyDir: {medium: HugePages-1Gi}",
			"    resources: {limits: {hugepages-1Gi: 8Gi, memory: 16Mi, cpu: 10m}}\n", "OutOfhugepages-1Gi", "hugepages-1Gi, requested: 8589934592, used: 0"),
		volumeRefused("a size limit that only eviction could keep", "emptyDir: {sizeLimit: 1Mi}", "", "PodFeatureUnsupported", "spec.volumes[0].emptyDir.sizeLimit", "eviction"),
		volumeRefused("a volume that needs a plug-in", "nfs: {server: a, path: /}", "", "PodFeatureUnsupported", "spec.volumes[0].nfs"),
	})
}

// places are things on the host for hostPath volumes to lead to.
type places struct{ dir, file, link, socket, device, block string }

func makePlaces(t *testing.T) places {
	t.Helper()
	top := t.TempDir()
	p := places{
		dir: filepath.Join(top, "dir"), file: filepath.Join(top, "file"), link: filepath.Join(top, "link"),
		socket: filepath.Join(top, "socket"), device: "/dev/null", block: filepath.Join(top, "block"),
	}
	require.NoError(t, os.Mkdir(p.dir, 0o700))
	require.NoError(t, os.WriteFile(p.file, []byte("on the host"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "inner"), []byte("inner"), 0o640))
	require.NoError(t, os.Symlink(p.dir, p.link))
	l, err := net.Listen("unix", p.socket)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	require.NoError(t, unix.Mknod(p.block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200)))) // a loop device that need not be there
	return p
}

func TestObserveHostPaths(t *testing.T) {
	p := makePlaces(t)
	host := func(path, kind string) string {
		return fmt.Sprintf("hostPath: {path: %s, type: %q}", path, kind)
	}
	begins := func(letter string) func(*testing.T, sight) {
		return func(t *testing.T, s sight) {
			require.True(t, strings.HasPrefix(fileIn(t, s.Report, "/v").Mode, letter), s.Report.Files["/v"].Mode)
		}
	}
	rows := []observation{
		inVolume("a hostPath is the host's directory itself", host(p.dir, ""), "/v/inner", "", func(t *testing.T, s sight) {
			require.Equal(t, []string{"inner"}, fileIn(t, s.Report, "/v").List)
			require.Equal(t, "inner", fileIn(t, s.Report, "/v/inner").Content)
			hasMode(t, s.Report.Files["/v"], "0700")
			require.True(t, s.Report.Files["/v"].Writable)
		}),
		inVolume("a hostPath without a type may be a file", host(p.file, ""), "", "", func(t *testing.T, s sight) {
			require.Equal(t, "on the host", fileIn(t, s.Report, "/v").Content)
		}),
		inVolume("type Directory follows the host's symlinks", host(p.link, "Directory"), "", "", func(t *testing.T, s sight) {
			require.Equal(t, []string{"inner"}, fileIn(t, s.Report, "/v").List)
		}),
		inVolume("type DirectoryOrCreate makes what is missing, with mode 0755", host(p.dir+"-made/a/b", "DirectoryOrCreate"), "", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "0755")
			require.DirExists(t, p.dir+"-made/a/b")
		}),
		inVolume("type DirectoryOrCreate leaves what is there as it is", host(p.dir, "DirectoryOrCreate"), "", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "0700")
		}),
		inVolume("type FileOrCreate makes an empty file, with mode 0644", host(p.file+"-made", "FileOrCreate"), "", "", func(t *testing.T, s sight) {
			hasMode(t, fileIn(t, s.Report, "/v"), "0644")
			require.Zero(t, s.Report.Files["/v"].Size)
			require.FileExists(t, p.file+"-made")
		}),
		inVolume("type File", host(p.file, "File"), "", "", begins("-rw-------")),
		inVolume("type Socket", host(p.socket, "Socket"), "", "", begins("S")),
		inVolume("type CharDevice", host(p.device, "CharDevice"), "", "", begins("Dc")),
		inVolume("type BlockDevice", host(p.block, "BlockDevice"), "", "", begins("Drw")),
		waitsForVolume("type Directory of what is missing", host(p.dir+"-none", "Directory"), "hostPath type check failed: "+p.dir+"-none is not a directory"),
		waitsForVolume("type Directory of a file", host(p.file, "Directory"), "hostPath type check failed: "+p.file+" is not a directory, it's a file"),
		waitsForVolume("type DirectoryOrCreate of a file", host(p.file, "DirectoryOrCreate"), "is not a directory, it's a file"),
		waitsForVolume("type File of a directory", host(p.dir, "File"), p.dir+" is not a file, it's a directory"),
		waitsForVolume("type FileOrCreate below a directory that is missing", host(p.dir+"-none/file", "FileOrCreate"), "its directory must exist"),
		waitsForVolume("type Socket of a file", host(p.file, "Socket"), p.file+" is not a socket, it's a file"),
		waitsForVolume("type CharDevice of a block device", host(p.block, "CharDevice"), "is not a character device, it's a block device"),
		waitsForVolume("type BlockDevice of a character device", host(p.device, "BlockDevice"), "is not a block device, it's a character device"),
		{
			name: "fsGroup does not change the files of a hostPath",
			spec: fmt.Sprintf(`
  securityContext: {fsGroup: 4321}
  volumes: [{name: v, hostPath: {path: %s}}]
  containers: [{name: c, image: KK, args: [look, /v, /v/inner], volumeMounts: [{name: v, mountPath: /v}]}]
`, p.dir),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Report.Groups, 4321)
				require.Zero(t, fileIn(t, s.Report, "/v").GID)
				hasMode(t, fileIn(t, s.Report, "/v/inner"), "0640")
			},
		},
	}
	observe(t, Options{}, append(rows, observationsOfPropagation(t)...))
	require.FileExists(t, filepath.Join(p.dir, "inner"), "the host's file is gone with the pod")
	require.FileExists(t, p.file+"-made")
}

// observationsOfPropagation are of mounts that come while a container runs.
func observationsOfPropagation(t *testing.T) []observation {
	shared, private := ownMount(t, unix.MS_SHARED), ownMount(t, unix.MS_PRIVATE)
	pod := func(path, kind, rest string) string {
		return fmt.Sprintf(`
  volumes: [{name: v, hostPath: {path: %s}}]
  containers: [{name: c, image: KK, args: [%s], volumeMounts: [{name: v, mountPath: /v, mountPropagation: %s}]%s}]
`, path, "sleep, forever", kind, rest)
	}
	late := func(t *testing.T, s sight, name string) string {
		tmpfsOn(t, filepath.Join(shared, name))
		return mountsOf(t, s, "c")
	}
	return []observation{
		{
			name: "mountPropagation None: what the host mounts later is not seen", spec: pod(shared, "None", ""), until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				require.NotContains(t, late(t, s, "none"), " /v/none ")
			},
		},
		{
			name: "mountPropagation HostToContainer: what the host mounts later is seen", spec: pod(shared, "HostToContainer", ""), until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				require.Contains(t, late(t, s, "down"), " /v/down ")
			},
		},
		{
			name: "mountPropagation HostToContainer of what the host does not share is an error of the runtime, and told",
			spec: pod(private, "HostToContainer", ""), until: waiting("c", "CreateContainerError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "not a shared or slave mount")
			},
		},
		{
			name:  "mountPropagation Bidirectional: what a privileged container mounts is the host's, too, and in the end the host's to unmount",
			spec:  strings.Replace(pod(shared, "Bidirectional", ", securityContext: {privileged: true}"), "[sleep, forever]", "[mount, /v/up, sleep, --print, mounted, forever]", 1),
			until: inPhase(corev1.PodRunning),
			check: func(t *testing.T, s sight) {
				s.agent.WaitLine(s.Name, "c", "mounted")
				at := filepath.Join(shared, "up")
				data, err := os.ReadFile("/proc/self/mountinfo")
				require.NoError(t, err)
				require.Contains(t, string(data), " "+at+" ")
				require.NoError(t, unix.Unmount(at, 0))
				require.NotContains(t, mountsOf(t, s, "c"), " /v/up ")
			},
		},
	}
}

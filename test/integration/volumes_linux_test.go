package integration_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/test/containerd"
)

// objectsFile is a manifest of a config map and, if there is a password, a secret.
func objectsFile(name, color, password string) string {
	doc := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s}\n", name, color)
	if password != "" {
		doc += fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {password: %s}\n", name, password)
	}
	return doc
}

// inside is the path, for this process, of a file that a running container sees.
func inside(t *testing.T, pod, path string) string {
	t.Helper()
	c := WaitRunning(t, 30*time.Second, pod, "main")
	return fmt.Sprintf("/proc/%d/root%s", pidOf(t, c.Id), path)
}

// reads wants a file to have the content; "" is that there is no such file.
func reads(path, want string) func() error {
	return func() error {
		data, err := os.ReadFile(path)
		switch {
		case want == "" && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case string(data) != want:
			return fmt.Errorf("%s is %q, want %q", path, data, want)
		}
		return nil
	}
}

func TestChangedObjectsAreSeenByContainersThatRun(t *testing.T) {
	const soon = 3 * time.Second
	a := NewAgent(t, Options{})
	a.Write("objects.yaml", objectsFile("conf", "color: blue, size: small", "one"))
	a.Write("web.yaml", sleeper("web", "volumes:", "- {name: c, configMap: {name: conf}}",
		"- {name: p, projected: {sources: [{configMap: {name: conf, items: [{key: color, path: d/color}]}}, {secret: {name: conf}}]}}")+
		"    volumeMounts: [{name: c, mountPath: /c}, {name: p, mountPath: /p}, {name: c, mountPath: /part, subPath: color}]\n"+
		"    env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: conf, key: color}}}]\n")
	a.Start()
	first := WaitRunning(t, 30*time.Second, "web", "main")
	at := inside(t, "web", "")
	require.NoError(t, reads(at+"/c/color", "blue")())
	require.NoError(t, reads(at+"/p/password", "one")())
	version, err := os.Readlink(at + "/c/..data")
	require.NoError(t, err)

	a.Write("objects.yaml", objectsFile("conf", "color: red, shape: round", "two"))
	for path, want := range map[string]string{
		"/c/color": "red", "/c/shape": "round", "/c/size": "", "/p/d/color": "red", "/p/password": "two",
		"/c/" + version + "/color": "", // the old version is gone
	} {
		Eventually(t, soon, reads(at+path, want))
	}
	require.NoError(t, reads(at+"/part", "blue")(), "a subPath shows the file that it was made of, until its container starts again")

	// What is missing now stays as it was, and the pod is told. When it comes back,
	// the new content counts.
	a.Write("objects.yaml", objectsFile("conf", "color: green", ""))
	a.SaysOf("web-"+nodeName, "FailedMount", "refresh", "secret default/conf", "not found")
	require.NoError(t, reads(at+"/p/password", "two")())
	Eventually(t, soon, reads(at+"/c/color", "green"))
	a.Write("objects.yaml", objectsFile("conf", "color: green", "three"))
	Eventually(t, soon, reads(at+"/p/password", "three"))
	Eventually(t, soon, reads(at+"/p/d/color", "green"))

	// An agent that comes back goes on where the last one was.
	a.Kill9()
	a.Write("objects.yaml", objectsFile("conf", "color: black", "four"))
	a.Start()
	Eventually(t, 2*soon, reads(at+"/c/color", "black"))
	Eventually(t, soon, reads(at+"/p/password", "four"))
	require.Equal(t, first.Id, WaitRunning(t, time.Second, "web", "main").Id, "a change of files is no reason to start again")

	require.NoError(t, syscall.Kill(pidOf(t, first.Id), syscall.SIGKILL))
	Eventually(t, 20*time.Second, func() error {
		if all := running(t, "web", "main"); len(all) != 1 || all[0].Id == first.Id {
			return fmt.Errorf("the container does not run again")
		}
		return nil
	})
	require.NoError(t, reads(inside(t, "web", "/part"), "black")(), "a container that starts again has the file of now")
	a.Remove("web.yaml")
	a.Remove("objects.yaml")
	a.NothingLeft(20 * time.Second)
}

func TestPodsThatWaitForAnObjectStartWhenItComes(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("volume.yaml", sleeper("volume", "volumes: [{name: v, configMap: {name: late}}]")+"    volumeMounts: [{name: v, mountPath: /v}]\n")
	a.Write("secret.yaml", sleeper("secret", "volumes: [{name: v, projected: {sources: [{secret: {name: late}}]}}]")+"    volumeMounts: [{name: v, mountPath: /v}]\n")
	a.Write("variable.yaml", sleeper("variable")+"    env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: late, key: color}}}]\n")
	a.SaysOf("default/volume-"+nodeName, "FailedMount", "volume v", "config map default/late", "not found")
	a.SaysOf("default/secret-"+nodeName, "FailedMount", "volume v", "secret default/late", "not found")
	Eventually(t, 20*time.Second, func() error {
		p, err := a.Pod("variable")
		if err == nil {
			err = waiting("main", "CreateContainerConfigError")(p)
		}
		return err
	})
	require.Empty(t, sandboxes(t, "volume"))

	// Time has passed, and each of them has been tried more than once: what comes now
	// must not wait for the end of a back-off.
	Stays(t, 3*time.Second, func() error {
		if n := len(running(t, "", "")); n > 0 {
			return fmt.Errorf("%d containers run", n)
		}
		return nil
	})
	came := time.Now()
	a.Write("late.yaml", objectsFile("late", "color: blue", "s3cret"))
	for _, pod := range []string{"volume", "secret", "variable"} {
		c := WaitRunning(t, 20*time.Second, pod, "main")
		took := at(container(t, c.Id).StartedAt).Sub(came)
		t.Logf("%s started %v after what it waited for came", pod, took)
		// One second is the promise, for one pod on a quiet machine. Here are three.
		require.Less(t, took, 3*time.Second, pod)
		require.Less(t, at(sandboxes(t, pod)[0].CreatedAt).Sub(came), time.Second, pod)
	}
	for _, f := range []string{"volume.yaml", "secret.yaml", "variable.yaml", "late.yaml"} {
		a.Remove(f)
	}
	a.NothingLeft(20 * time.Second)
}

// manyMounts is a pod with all that volumes mount.
func manyMounts(name, host string) string {
	return objectsFile(name, "color: blue", "one") + "---\n" + sleeper(name, "volumes:", "- {name: m, emptyDir: {medium: Memory}}", "- {name: d, emptyDir: {}}",
		"- {name: s, secret: {secretName: "+name+"}}", "- {name: c, configMap: {name: "+name+"}}",
		"- {name: p, projected: {sources: [{secret: {name: "+name+"}}]}}", "- {name: w, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}",
		"- {name: h, hostPath: {path: "+host+"}}") +
		"    volumeMounts: [{name: m, mountPath: /m}, {name: m, mountPath: /mp, subPath: a/b}, {name: d, mountPath: /dp, subPath: a}, {name: s, mountPath: /s}, {name: s, mountPath: /sp, subPath: password},\n" +
		"      {name: c, mountPath: /cp, subPath: color}, {name: p, mountPath: /p}, {name: w, mountPath: /w}, {name: h, mountPath: /h}, {name: h, mountPath: /hp, subPath: part}]\n"
}

func TestVolumesOfPodsThatWentWhileTheAgentWasDeadAreTakenDown(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(host, "keep"), []byte("kept"), 0o600))
	a := StartAgent(t, Options{})
	for _, pod := range []string{"runs", "gone", "stays"} {
		a.Write(pod+".yaml", manyMounts(pod, host))
	}
	for _, pod := range []string{"runs", "gone", "stays"} {
		WaitRunning(t, 30*time.Second, pod, "main")
	}
	// Four tmpfs and five binds for each.
	require.Len(t, containerd.Mounts(a.Root), 27)
	a.Kill9()
	a.Remove("runs.yaml")
	a.Remove("gone.yaml")
	for _, s := range sandboxes(t, "gone") {
		the.remove(t, s.Id)
	}
	a.Start()
	Eventually(t, 20*time.Second, func() error {
		if mounts := containerd.Mounts(a.Root); len(mounts) != 9 {
			return fmt.Errorf("%d mounts, want the 9 of the pod that stays:\n%s", len(mounts), strings.Join(mounts, "\n"))
		}
		entries, err := os.ReadDir(filepath.Join(a.Root, "pods"))
		if err == nil && len(entries) != 1 {
			err = fmt.Errorf("%d pods have directories", len(entries))
		}
		return err
	})
	require.NoError(t, reads(inside(t, "stays", "/sp"), "one")())
	a.Kill9() // in the middle of nothing, and then of a teardown
	a.Remove("stays.yaml")
	a.Start()
	Eventually(t, 20*time.Second, func() error {
		if n := len(running(t, "stays", "main")); n > 0 {
			return fmt.Errorf("%d containers run", n)
		}
		return nil
	})
	a.Kill9()
	a.Start()
	Eventually(t, 10*time.Second, func() error {
		entries, err := os.ReadDir(filepath.Join(a.Root, "pods"))
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("%d pods have directories", len(entries))
		}
		return err
	})
	a.NothingLeft(90 * time.Second) // logs are looked through once a minute
	require.NoError(t, reads(filepath.Join(host, "keep"), "kept")())
	require.DirExists(t, filepath.Join(host, "part"))
}

func TestWhatSomebodyElseMountedIsNeverRemoved(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("web.yaml", sleeper("web", "volumes: [{name: v, emptyDir: {}}]")+"    volumeMounts: [{name: v, mountPath: /v}]\n")
	c := WaitRunning(t, 30*time.Second, "web", "main")
	volume := filepath.Join(a.Root, "pods", c.Labels["io.kubernetes.pod.uid"], "volumes", "kubernetes.io~empty-dir", "v")
	foreign := filepath.Join(volume, "foreign")
	tmpfsOn(t, foreign)
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "data"), []byte("precious"), 0o600))
	a.Remove("web.yaml")
	a.SaysOf(c.Labels["io.kubernetes.pod.uid"], "something is still mounted at "+foreign, "unmount it")
	Stays(t, 3*time.Second, reads(filepath.Join(foreign, "data"), "precious"))
	a.Kill9()
	a.Start()
	Stays(t, 3*time.Second, reads(filepath.Join(foreign, "data"), "precious"))
	require.NoError(t, unix.Unmount(foreign, 0))
	a.NothingLeft(90 * time.Second) // a quiet node looks twice a minute, and at logs once
}

func TestVolumesThatCanNotBeAreRefusedByFieldAndReason(t *testing.T) {
	a := StartAgent(t, Options{})
	volume := func(v string) string {
		return sleeper("bad", "volumes: [{name: v, "+v+"}]") + "    volumeMounts: [{name: v, mountPath: /v}]\n"
	}
	mount := func(m string) string {
		return sleeper("bad", "volumes: [{name: v, emptyDir: {}}]") + "    volumeMounts: [{name: v, mountPath: /v, " + m + "}]\n"
	}
	for name, c := range map[string]struct{ manifest, why string }{
		"claim":     {volume("persistentVolumeClaim: {claimName: c}"), "spec.volumes[0].persistentVolumeClaim: Forbidden: static pods may not reference persistentvolumeclaims"},
		"ephemeral": {volume("ephemeral: {volumeClaimTemplate: {spec: {}}}"), "spec.volumes[0].ephemeral: Forbidden"},
		"csi":       {volume("csi: {driver: d}"), "spec.volumes[0].csi: Forbidden: static pods may not reference csidrivers"},
		"token":     {volume("projected: {sources: [{serviceAccountToken: {path: t}}]}"), "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden"},
		"bundle":    {volume("projected: {sources: [{clusterTrustBundle: {name: b, path: t}}]}"), "spec.volumes[0].projected.sources[0].clusterTrustBundle: Forbidden"},
		"upwards":   {volume("hostPath: {path: /a/../b}"), `spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`},
		"type":      {volume("hostPath: {path: /a, type: Pipe}"), `spec.volumes[0].hostPath.type: Unsupported value: "Pipe"`},
		"item":      {volume("configMap: {name: c, items: [{key: k, path: ../k}]}"), "spec.volumes[0].configMap.items[0].path: Invalid value"},
		"dots":      {volume("configMap: {name: c, items: [{key: k, path: ..data}]}"), "must not start with '..'"},
		"mode":      {volume("secret: {secretName: c, defaultMode: 01000}"), "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
		"twice":     {volume("projected: {sources: [{configMap: {name: a, items: [{key: k, path: p}]}}, {secret: {name: a, items: [{key: k, path: p}]}}]}"), "conflicting duplicate paths"},
		"two":       {volume("emptyDir: {}, hostPath: {path: /a}"), "may not specify more than 1 volume type"},
		"medium":    {volume("emptyDir: {medium: Disk}"), `spec.volumes[0].emptyDir.medium: Unsupported value: "Disk"`},
		"field":     {volume("downwardAPI: {items: [{path: p, fieldRef: {fieldPath: spec.nodeName}}]}"), "spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value"},
		"part":      {mount("subPath: /a"), `spec.containers[0].volumeMounts[0].subPath: Invalid value: "/a": must be a relative path`},
		"parts":     {mount("subPath: a, subPathExpr: b"), "subPathExpr and subPath are mutually exclusive"},
		"both":      {mount("mountPropagation: Bidirectional"), "Bidirectional mount propagation is available only to privileged containers"},
		"deep":      {mount("recursiveReadOnly: Enabled"), "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true"},
		"unknown":   {strings.Replace(mount("readOnly: true"), "name: v, mountPath", "name: w, mountPath", 1), `spec.containers[0].volumeMounts[0].name: Not found: "w"`},
	} {
		a.Write("bad-"+name+".yaml", c.manifest)
		a.SaysOf("bad-"+name+".yaml", "manifest refused", c.why)
	}
	a.Write("good.yaml", sleeper("good"))
	WaitRunning(t, 30*time.Second, "good", "main")
	pods, err := a.Get(a.Ports.ReadOnly, "/pods")
	require.NoError(t, err)
	require.NotContains(t, pods, "bad-"+nodeName)
	a.Remove("good.yaml")
	a.NothingLeft(20 * time.Second)
}

// TestHugePagesInVolumes borrows eight pages of the machine for its time.
func TestHugePagesInVolumes(t *testing.T) {
	const knob, more = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 8
	adjust := func(by int) int {
		data, err := os.ReadFile(knob)
		require.NoError(t, err)
		var has int
		_, err = fmt.Sscan(string(data), &has)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(knob, []byte(fmt.Sprint(max(has+by, 0))), 0o644))
		return has + by
	}
	adjust(more)
	t.Cleanup(func() { adjust(-more) })
	pages := "    resources: {requests: {memory: 16Mi, cpu: 10m}, limits: {hugepages-2Mi: 4Mi, memory: 64Mi}}\n"
	used := func(t *testing.T, s sight) {
		m := mountAt(t, s.Report, "/v")
		require.Equal(t, "hugetlbfs", m.Type)
		require.Contains(t, m.Super, "pagesize=2M")
		hasMode(t, fileIn(t, s.Report, "/v"), "0777")
	}
	observe(t, Options{}, []observation{
		inVolume("medium HugePages has the size that the pod requests", "emptyDir: {medium: HugePages}", "", pages, used),
		inVolume("medium HugePages-2Mi", "emptyDir: {medium: HugePages-2Mi}", "", pages, used),
		inVolume("huge pages have a mode, too", "emptyDir: {medium: HugePages-2Mi, mode: 01770}", "", pages, func(t *testing.T, s sight) {
			require.Equal(t, "hugetlbfs", mountAt(t, s.Report, "/v").Type)
			hasMode(t, fileIn(t, s.Report, "/v"), "1770")
		}),
		waitsForVolume("a size that the pod does not request", "emptyDir: {medium: HugePages-1Gi}", "requests no huge pages of that size"),
		volumeRefused("more pages than the node has left", "emptyDir: {medium: HugePages-2Mi}", "    resources: {requests: {cpu: 10m}, limits: {hugepages-2Mi: 4Gi, memory: 16Mi}}\n", "OutOfhugepages-2Mi", "requested: 4294967296"),
	})
}

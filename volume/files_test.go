package volume_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/volume"
)

// objects is a namespace with config maps and secrets, by name.
type objects struct {
	mu      sync.Mutex
	configs map[string]*corev1.ConfigMap
	secrets map[string]*corev1.Secret
	down    error
}

func (o *objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.configs[name]; ok || o.down != nil {
		return c, o.down
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o *objects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.secrets[name]; ok || o.down != nil {
		return s, o.down
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (o *objects) config(name string, pairs ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.configs == nil {
		o.configs = map[string]*corev1.ConfigMap{}
	}
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		c.Data[pairs[i]] = pairs[i+1]
	}
	o.configs[name] = c
}

func configMap(volume, name string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: name},
	}}}
}

func secretVolume(volume, name string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}
}

func ptr[T any](v T) *T { return &v }

// onDisk is a room that mounts nothing.
func onDisk(t testing.TB, cfg volume.Config) *volume.Volumes {
	t.Helper()
	cfg.RootDir, cfg.NoTmpfs = t.TempDir(), true
	v, err := volume.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// files reads a volume as a container would: contents and permissions by path.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Errorf("%s leads nowhere: %v", e.Name(), err)
			continue
		}
		err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			all[e.Name()+strings.TrimPrefix(path, top)] = fmt.Sprintf("%04o %s", fi.Mode().Perm(), data)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	return all
}

func TestFilesOfAVolume(t *testing.T) {
	o := &objects{}
	o.config("c", "a", "1", "b", "2")
	o.configs["c"].BinaryData = map[string][]byte{"bin": {0xff}}
	o.config("sibling", "a", "other", "z", "26")
	o.config("bad", "..key", "x")
	o.secrets = map[string]*corev1.Secret{"s": {Data: map[string][]byte{"user": []byte("root"), "pass": []byte("word")}}}
	items := func(list ...corev1.KeyToPath) []corev1.KeyToPath { return list }
	down := func(items ...corev1.DownwardAPIVolumeFile) corev1.VolumeSource {
		return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}
	}
	field := func(path, field string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	res := func(path, container, res, divisor string) corev1.DownwardAPIVolumeFile {
		r := &corev1.ResourceFieldSelector{ContainerName: container, Resource: res}
		if divisor != "" {
			r.Divisor = resource.MustParse(divisor)
		}
		return corev1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: r}
	}
	projected := func(mode *int32, sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode, Sources: sources}}
	}
	fromConfig := func(name string, items ...corev1.KeyToPath) corev1.VolumeProjection {
		return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
	}
	config := func(change func(*corev1.ConfigMapVolumeSource)) corev1.VolumeSource {
		v := configMap("", "c")
		change(v.ConfigMap)
		return v.VolumeSource
	}
	secret := func(change func(*corev1.SecretVolumeSource)) corev1.VolumeSource {
		v := secretVolume("", "s")
		change(v.Secret)
		return v.VolumeSource
	}
	type want = map[string]string
	cases := []struct {
		name string
		src  corev1.VolumeSource
		want want
		err  string
		is   error
	}{
		{"a config map, text and bytes", config(func(*corev1.ConfigMapVolumeSource) {}), want{"a": "0644 1", "b": "0644 2", "bin": "0644 \xff"}, "", nil},
		{"a default mode", config(func(s *corev1.ConfigMapVolumeSource) { s.DefaultMode = ptr[int32](0o400) }), want{"a": "0400 1", "b": "0400 2", "bin": "0400 \xff"}, "", nil},
		{"listed keys under other paths and modes", config(func(s *corev1.ConfigMapVolumeSource) {
			s.Items = items(corev1.KeyToPath{Key: "a", Path: "x/y/z"}, corev1.KeyToPath{Key: "a", Path: "x/again", Mode: ptr[int32](0o777)})
		}), want{"x/y/z": "0644 1", "x/again": "0777 1"}, "", nil},
		{"a listed key that is missing", config(func(s *corev1.ConfigMapVolumeSource) { s.Items = items(corev1.KeyToPath{Key: "no", Path: "x"}) }),
			nil, "config map default/c: references non-existent config key: no", nil},
		{"a listed key that may be missing", config(func(s *corev1.ConfigMapVolumeSource) {
			s.Items, s.Optional = items(corev1.KeyToPath{Key: "no", Path: "x"}, corev1.KeyToPath{Key: "b", Path: "b"}), ptr(true)
		}), want{"b": "0644 2"}, "", nil},
		{"a missing config map", config(func(s *corev1.ConfigMapVolumeSource) { s.Name = "no" }), nil, `get config map default/no: configmaps "no" not found`, nil},
		{"a config map that may be missing", config(func(s *corev1.ConfigMapVolumeSource) { s.Name, s.Optional = "no", ptr(true) }), want{}, "", nil},
		{"a path upwards", config(func(s *corev1.ConfigMapVolumeSource) { s.Items = items(corev1.KeyToPath{Key: "a", Path: "../x"}) }), nil, "must not contain '..'", nil},
		{"a key with the writer's names", config(func(s *corev1.ConfigMapVolumeSource) { s.Name = "bad" }), nil, "must not start with '..'", nil},
		{"a mode that is none", config(func(s *corev1.ConfigMapVolumeSource) { s.DefaultMode = ptr[int32](0o1000) }), nil, "defaultMode: 512 must be a number between 0 and 0777", nil},
		{"a user that is none", config(func(s *corev1.ConfigMapVolumeSource) { s.DefaultUser = ptr[int64](-1) }), nil, "defaultUser: -1 must be between 0 and", nil},
		{"an item's mode that is none", config(func(s *corev1.ConfigMapVolumeSource) {
			s.Items = items(corev1.KeyToPath{Key: "a", Path: "a", Mode: ptr[int32](-1)})
		}), nil, "mode: -1 must be", nil},
		{"a secret", secret(func(s *corev1.SecretVolumeSource) { s.DefaultMode = ptr[int32](0o440) }), want{"user": "0440 root", "pass": "0440 word"}, "", nil},
		{"a secret's missing key", secret(func(s *corev1.SecretVolumeSource) { s.Items = items(corev1.KeyToPath{Key: "no", Path: "x"}) }),
			nil, "references non-existent secret key: no", nil},
		{"a missing secret", secret(func(s *corev1.SecretVolumeSource) { s.SecretName = "no" }), nil, `get secret default/no: secrets "no" not found`, nil},
		{"a secret that may be missing", secret(func(s *corev1.SecretVolumeSource) { s.SecretName, s.Optional = "no", ptr(true) }), want{}, "", nil},
		{"the downward API", down(field("name", "metadata.name"), field("d/labels", "metadata.labels"), field("one", "metadata.labels['tier']"),
			res("cpu", "app", "limits.cpu", "1m"), res("mem", "app", "limits.memory", "1Mi"), res("req", "app", "requests.cpu", "")),
			want{"name": "0644 web", "d/labels": "0644 app=\"x\"\ntier=\"a \\\"b\\\"\"", "one": `0644 a "b"`, "cpu": "0644 250", "mem": "0644 8", "req": "0644 0"}, "", nil},
		{"an address is no field of a volume", down(field("ip", "status.podIP")), nil, "use an environment variable", podspec.ErrNoField},
		{"a container is required", down(res("x", "", "limits.cpu", "")), nil, "containerName is required", nil},
		{"a file without a source", down(corev1.DownwardAPIVolumeFile{Path: "x"}), nil, "one of fieldRef and resourceFieldRef", nil},
		{"all together", projected(ptr[int32](0o440), fromConfig("c", corev1.KeyToPath{Key: "a", Path: "conf/a"}),
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{field("uid", "metadata.uid")}}}),
			want{"conf/a": "0440 1", "user": "0440 root", "pass": "0440 word", "uid": "0440 u1"}, "", nil},
		{"later sources count", projected(nil, fromConfig("c"), fromConfig("sibling")), want{"a": "0644 other", "b": "0644 2", "bin": "0644 \xff", "z": "0644 26"}, "", nil},
		{"one path spelled out twice", projected(nil, fromConfig("c", corev1.KeyToPath{Key: "a", Path: "x"}), fromConfig("sibling", corev1.KeyToPath{Key: "z", Path: "./x"})),
			nil, "projected source 2: conflicting duplicate paths: x", nil},
		{"a file in a file", projected(nil, fromConfig("c"), fromConfig("sibling", corev1.KeyToPath{Key: "z", Path: "b/c"})), nil, `path "b/c": "b" is a file already`, nil},
		{"a token", projected(nil, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}), nil, "serviceAccountToken", volume.ErrUnsupported},
		{"a bundle", projected(nil, corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), nil, "clusterTrustBundle", volume.ErrUnsupported},
		{"a certificate", projected(nil, corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}), nil, "podCertificate", volume.ErrUnsupported},
		{"an empty source", projected(nil, corev1.VolumeProjection{}), nil, "projected source 1", volume.ErrUnsupported},
		{"nothing projected", projected(nil), want{}, "", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := onDisk(t, volume.Config{Objects: o, Allocatable: corev1.ResourceList{"memory": resource.MustParse("8Mi")}})
			pod := podWith("u1", corev1.Volume{Name: "v", VolumeSource: c.src})
			pod.Labels = map[string]string{"app": "x", "tier": `a "b"`}
			pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("250m")}
			ready, err := v.SetUp(t.Context(), pod)
			if c.err != "" {
				var ve *volume.Error
				if err == nil || !strings.Contains(err.Error(), c.err) || c.is != nil && !errors.Is(err, c.is) || !errors.As(err, &ve) || ve.Volume != "v" || ve.Refresh || len(ready) != 0 {
					t.Errorf("SetUp = %v, %v; want %q", ready, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			m := ready["v"]
			if !m.ReadOnly || !m.SELinuxRelabel {
				t.Errorf("%+v: such a volume is read-only and the pod's own", m)
			}
			if diff := cmp.Diff(c.want, files(t, m.HostPath)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			assertMode(t, m.HostPath, 0o777)
		})
	}
}

func TestSourcesThatAreNotServedYet(t *testing.T) {
	cases := map[string]struct {
		src  corev1.VolumeSource
		need string
	}{
		"persistentVolumeClaim": {corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, "needs an API server"},
		"ephemeral":             {corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, "needs an API server"},
		"csi":                   {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, "needs a CSI driver"},
		"gitRepo":               {corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}, "is disabled"},
		"nfs":                   {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, "needs its volume plug-in"},
		"iscsi":                 {corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "needs its volume plug-in"},
	}
	for name, c := range cases {
		v := onDisk(t, volume.Config{})
		_, err := v.SetUp(t.Context(), podWith("u1", corev1.Volume{Name: "v", VolumeSource: c.src}))
		if !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "volume v: "+name+": ") || !strings.Contains(err.Error(), c.need) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnImageIsTheRuntimesToMount(t *testing.T) {
	v := onDisk(t, volume.Config{})
	pod := podWith("u1", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "x"}}})
	ready, err := v.SetUp(t.Context(), pod)
	if err != nil || ready["v"] != (volume.Mounted{ReadOnly: true}) {
		t.Errorf("SetUp = %v, %v", ready, err)
	}
}

func TestFSGroupOfFiles(t *testing.T) {
	o := &objects{}
	o.config("c", "d/a", "1")
	v := onDisk(t, volume.Config{Objects: o})
	pod := podWith("u1", configMap("v", "c"))
	pod.Spec.Volumes[0].ConfigMap.DefaultMode = ptr[int32](0o600)
	pod.Spec.Volumes[0].ConfigMap.Items = []corev1.KeyToPath{{Key: "d/a", Path: "d/a"}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(os.Getegid()))}
	for range 2 {
		ready, err := v.SetUp(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := files(t, ready["v"].HostPath)["d/a"]; got != "0640 1" {
			t.Errorf("the file is %q, want it readable for the group", got)
		}
		if fi, err := os.Stat(filepath.Join(ready["v"].HostPath, "..data/d")); err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o755 {
			t.Errorf("the directory has %v, %v", fi.Mode(), err)
		}
	}
}

func TestHooksHearOfEachVolume(t *testing.T) {
	var setUp []string
	tornDown := 0
	v := onDisk(t, volume.Config{Hooks: volume.Hooks{
		SetUp: func(plugin string, took time.Duration, err error) {
			setUp = append(setUp, fmt.Sprint(plugin, " ", err == nil))
		},
		TornDown: func(took time.Duration, err error) { tornDown++ },
	}})
	_, err := v.SetUp(t.Context(), podWith("u1", emptyDir("e"), secretVolume("s", "x")))
	if err == nil {
		t.Error("a secret without a source of secrets was set up")
	}
	if diff := cmp.Diff([]string{"kubernetes.io/empty-dir true", "kubernetes.io/secret false"}, setUp); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		if err := v.TearDown(t.Context(), "u1"); err != nil {
			t.Error(err)
		}
	}
	if err := v.TearDown(t.Context(), "other"); err != nil || tornDown != 2 {
		t.Errorf("TearDown = %v, %d calls", err, tornDown)
	}
}

func TestSubPathsThatAreRefused(t *testing.T) {
	v := onDisk(t, volume.Config{})
	image := corev1.Volume{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}
	pod := podWith("u1", emptyDir("v"), image, hostPath("h", "relative", ""), corev1.Volume{Name: "n", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}})
	cases := []struct{ name, volume, path, container, want string }{
		{"an absolute path", "v", "/x", "app", "must be a relative path"},
		{"upwards", "v", "a/../..", "app", "must not contain '..'"},
		{"nothing", "v", "", "app", "a path is required"},
		{"too long", "v", strings.Repeat("a", 5000), "app", "must be a path"},
		{"no such volume", "no", "x", "app", "no volume of that name"},
		{"an image", "image", "x", "app", "by itself"},
		{"a relative hostPath", "h", "x", "app", "want an absolute path"},
		{"a volume that is not served", "n", "x", "app", "nfs"},
		{"a container that is a path", "v", "x", "../app", "cannot be the name of a directory"},
	}
	for _, c := range cases {
		_, err := v.SubPath(t.Context(), volume.SubPath{Pod: pod, Container: c.container, Volume: c.volume, Path: c.path})
		var ve *volume.Error
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &ve) || ve.Volume != c.volume {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

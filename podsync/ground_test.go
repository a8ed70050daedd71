package podsync_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podsync"
	"github.com/kubeletkit/kubeletkit/userns"
)

// ground is what pods stand on, and what they gave back.
type ground struct {
	cgroups map[observed.UID]bool // true: something runs in it
	users   map[observed.UID]bool
	objects map[string]map[string]string
	box     podruntime.PodCgroup // of every pod
}

func (g *ground) SandboxHostname(pod *corev1.Pod) (string, error) { return "host-of-" + pod.Name, nil }
func (g *ground) DNS(*corev1.Pod) (*runtimeapi.DNSConfig, error) {
	return &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}}, nil
}
func (g *ground) Hosts(_ *corev1.Pod, ips []string) ([]byte, error) {
	return []byte(strings.Join(ips, " ") + " me\n"), nil
}

func (g *ground) Ensure(_ context.Context, pod *corev1.Pod) (string, error) {
	g.cgroups[observed.UID(pod.UID)] = true
	return "/pods/" + string(pod.UID), nil
}
func (g *ground) Remove(_ context.Context, uid observed.UID) error {
	delete(g.cgroups, uid)
	return nil
}
func (g *ground) All() (uids []observed.UID, _ error) {
	for uid := range g.cgroups {
		uids = append(uids, uid)
	}
	return uids, nil
}
func (g *ground) Busy(_ context.Context, uid observed.UID) (bool, error) { return g.cgroups[uid], nil }
func (g *ground) Pod(*corev1.Pod) podruntime.PodCgroup                   { return g.box }

func (g *ground) Map(uid observed.UID) (userns.Mapping, error) {
	g.users[uid] = true
	return userns.Mapping{HostID: 65536, Length: 65536}, nil
}
func (g *ground) Release(uid observed.UID) error {
	delete(g.users, uid)
	return nil
}

func (g *ground) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	data, ok := g.objects[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}, nil
}
func (g *ground) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// standing is a world whose pods stand on a ground.
func standing(t *testing.T) (*world, *ground) {
	g := &ground{cgroups: map[observed.UID]bool{}, users: map[observed.UID]bool{}, objects: map[string]map[string]string{}}
	w := &world{t: t, root: t.TempDir(), ground: g}
	w.rt = newRuntime()
	w.rebuild()
	return w, g
}

// request returns the last request for a method.
func request[T any](w *world, method string) T {
	w.t.Helper()
	var last any
	for _, c := range w.rt.Calls() {
		if c.Method == method {
			last = c.Request
		}
	}
	r, ok := last.(T)
	if !ok {
		w.t.Fatalf("%s was not called", method)
	}
	return r
}

func TestAPodStandsOnItsGroundAndGivesItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := standing(t)
		g.objects["settings"] = map[string]string{"COLOR": "blue"}
		pod := newPod(corev1.RestartPolicyAlways)
		pod.Spec.HostUsers = ptr.To(false)
		c := &pod.Spec.Containers[0]
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		c.Args = []string{"$(COLOR)"}
		w.passes(pod, 2)

		sandbox := request[*runtimeapi.RunPodSandboxRequest](w, "RunPodSandbox").Config
		if sandbox.Linux.CgroupParent != "/pods/u1" || sandbox.Hostname != "host-of-web" || sandbox.DnsConfig.Servers[0] != "192.0.2.53" {
			t.Errorf("sandbox = %v", sandbox)
		}
		if m := sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions; len(m.GetUids()) != 1 || m.Uids[0].HostId != 65536 {
			t.Errorf("user namespace = %v", m)
		}
		config := request[*runtimeapi.CreateContainerRequest](w, "CreateContainer").Config
		if diff := cmp.Diff([]string{"blue"}, config.Args); diff != "" {
			t.Errorf("args (-want +got):\n%s", diff)
		}
		at := map[string]string{}
		for _, m := range config.Mounts {
			at[m.ContainerPath] = m.HostPath
			if len(m.UidMappings) != 1 {
				t.Errorf("mount %s has no mapping of users", m.ContainerPath)
			}
		}
		ip := w.look(pod).IPs()[0]
		hosts, err := os.ReadFile(at["/etc/hosts"])
		if err != nil || string(hosts) != ip+" me\n" {
			t.Errorf("hosts file = %q, %v", hosts, err)
		}

		w.must(w.syncer.StopPod(t.Context(), pod, w.look(pod), nil))
		w.must(w.syncer.ReleasePod(t.Context(), pod, w.look(pod)))
		if len(g.cgroups)+len(g.users) > 0 {
			t.Errorf("after the release: cgroups %v, users %v", g.cgroups, g.users)
		}
	})
}

func TestAContainerWithItsOwnHostsFileKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := standing(t)
		pod := newPod(corev1.RestartPolicyAlways)
		pod.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc//hosts"
		w.passes(pod, 2)
		for _, m := range request[*runtimeapi.CreateContainerRequest](w, "CreateContainer").Config.Mounts {
			if strings.HasSuffix(m.HostPath, "etc-hosts") {
				t.Errorf("the pod's hosts file is mounted at %s", m.ContainerPath)
			}
		}
	})
}

func TestWhatAContainerRefersToIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, g := standing(t)
		pod := newPod(corev1.RestartPolicyAlways)
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "later"}}}}
		if _, err := w.pass(pod); err == nil {
			t.Error("a pass without the config map has no error")
		}
		if waiting := w.reported(pod).ContainerStatuses[0].State.Waiting; waiting == nil || waiting.Reason != "CreateContainerConfigError" || !strings.Contains(waiting.Message, `"later" not found`) {
			t.Errorf("waiting = %v", waiting)
		}
		g.objects["later"] = nil
		w.passes(pod, 2)
		if n := w.starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

func TestHostUsersFalseIsNeverTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t) // without users to give
		pod := newPod(corev1.RestartPolicyAlways)
		pod.Spec.HostUsers = ptr.To(false)
		if _, err := w.pass(pod); err == nil || !strings.Contains(err.Error(), "hostUsers") {
			t.Errorf("SyncPod = %v, want the field's name", err)
		}
	})
}

func TestForgetSparesThePodsOfAnotherAgent(t *testing.T) {
	w, g := standing(t)
	g.cgroups["theirs"], g.cgroups["old"], g.cgroups["ours"] = true, false, true
	w.must(os.MkdirAll(filepath.Join(w.root, "pods", "ours"), 0o750))
	if err := w.syncer.Forget(t.Context(), "theirs"); !errors.Is(err, podsync.ErrNotOurs) || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("Forget of a pod in whose cgroup something runs = %v", err)
	}
	w.must(w.syncer.Forget(t.Context(), "old"))
	w.must(w.syncer.Forget(t.Context(), "ours"))
	if diff := cmp.Diff(map[observed.UID]bool{"theirs": true}, g.cgroups); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
}

var (
	_ podsync.Names          = (*ground)(nil)
	_ podsync.Cgroups        = (*ground)(nil)
	_ podsync.UserNamespaces = (*ground)(nil)
)

func TestTheHostsFileIsNotTouchedUnderContainersThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := standing(t)
		pod := newPod(corev1.RestartPolicyAlways)
		w.rt.AddImage("app:1", critest.Behavior{Exits: true, After: time.Second})
		w.passes(pod, 2)
		file := filepath.Join(w.root, "pods", "u1", "etc-hosts")
		content, err := os.ReadFile(file)
		w.must(err)
		before := time.Unix(1e9, 0)
		w.must(os.Chtimes(file, before, before))
		time.Sleep(time.Hour)
		w.passes(pod, 1)
		if n := w.starts(); n != 2 {
			t.Fatalf("%d starts, want 2", n)
		}
		fi, err := os.Stat(file)
		w.must(err)
		if !fi.ModTime().Equal(before) {
			t.Error("a hosts file that is right was written again")
		}

		w.must(os.WriteFile(file, []byte(strings.Repeat("a container's own words\n", 9)), 0o600))
		time.Sleep(time.Hour)
		w.passes(pod, 1)
		now, err := os.Stat(file)
		w.must(err)
		if again, err := os.ReadFile(file); err != nil || string(again) != string(content) || !os.SameFile(fi, now) || now.Mode() != 0o644 {
			t.Errorf("hosts file = %q, %v, mode %v, the same file: %v", again, err, now.Mode(), os.SameFile(fi, now))
		}
	})
}

package podruntime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

func TestAPodStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod("Always", "i:i0", "s:s", "a", "b")
		n.rt.AddImage("img:1", critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior {
			if c.Metadata.Name == "i0" {
				return critest.Exit(0, time.Millisecond)
			}
			return critest.Behavior{}
		}})
		n.must(p)
		time.Sleep(time.Second)
		n.converge(p)
		n.wantRunning(p, "a#0 b#0 s#0")
		n.wantCalls("RunPodSandbox", "CreateContainer i0", "StartContainer i0", "CreateContainer s", "StartContainer s",
			"CreateContainer a", "StartContainer a", "CreateContainer b", "StartContainer b")
		n.wantEvents(
			"i0 Normal Created: Container created", "i0 Normal Started: Container started",
			"s Normal Created: Container created", "s Normal Started: Container started",
			"a Normal Created: Container created", "a Normal Started: Container started",
			"b Normal Created: Container created", "b Normal Started: Container started")
		if diff := cmp.Diff(map[string]int{
			"starting container": 2, "started container": 2, "starting init_container": 2, "started init_container": 2,
		}, n.counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

func TestWhatTheRuntimeIsTold(t *testing.T) {
	n := newNode(t)
	n.rt.AddImage("img:1", critest.Behavior{})
	p := pod("Always", "s:s", "a")
	p.Labels = map[string]string{"app": "web", observed.LabelPodName: "wrong"}
	p.Annotations = map[string]string{"note": "1"}
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(30))
	p.Spec.InitContainers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9}}
	c := &p.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$(C)"}}
	c.Command, c.Args, c.WorkingDir = []string{"/bin/$(B)"}, []string{"$$(A)"}, "/w"
	c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
	c.Ports = []corev1.ContainerPort{
		{Name: "http", ContainerPort: 80, HostPort: 8080, Protocol: "TCP", HostIP: "127.0.0.1"},
		{Name: "again", ContainerPort: 80, HostPort: 8080, Protocol: "TCP", HostIP: "127.0.0.1"},
		{ContainerPort: 53, Protocol: "UDP"},
	}
	n.spec = func(s podruntime.Start) (podruntime.ContainerSpec, error) {
		if s.Name == "s" {
			return podruntime.ContainerSpec{}, nil
		}
		return podruntime.ContainerSpec{
			Command: []string{"/bin/1$(C)"}, Args: []string{"$(A)"}, Env: []podruntime.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "1$(C)"}},
			Mounts: []podruntime.Mount{{ContainerPath: "data", HostPath: "/srv", ReadOnly: true}},
		}, nil
	}
	n.must(p)
	n.must(p) // first the sidecar, then the app

	sandbox := request[*runtimeapi.RunPodSandboxRequest](n, "RunPodSandbox").Config
	wantSandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid-1"},
		Hostname:     "web",
		LogDirectory: filepath.Join(n.logs, "default_web_uid-1"),
		PortMappings: []*runtimeapi.PortMapping{
			{ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1"},
			{ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP},
		},
		Labels: map[string]string{"app": "web", "io.kubernetes.pod.name": "web",
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "uid-1"},
		Annotations: map[string]string{"note": "1"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER,
				UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}},
			Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		}, Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000}},
	}
	if diff := cmp.Diff(wantSandbox, sandbox, protocmp.Transform()); diff != "" {
		t.Errorf("sandbox (-want +got):\n%s", diff)
	}

	create := request[*runtimeapi.CreateContainerRequest](n, "CreateContainer")
	if diff := cmp.Diff(wantSandbox, create.SandboxConfig, protocmp.Transform()); diff != "" {
		t.Errorf("the container got another sandbox config (-want +got):\n%s", diff)
	}
	got := create.Config
	if got.Image.UserSpecifiedImage != "img:1" || !strings.HasPrefix(got.Image.Image, "sha256:") {
		t.Errorf("image = %v", got.Image)
	}
	if got.Linux.SecurityContext.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined || len(got.Linux.SecurityContext.MaskedPaths) < 12 {
		t.Errorf("security context = %v", got.Linux.SecurityContext)
	}
	got.Image, got.Linux = nil, nil
	want := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "a"},
		Command:  []string{"/bin/1$(C)"}, Args: []string{"$(A)"}, WorkingDir: "/w",
		Envs:   []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "B", Value: []byte("1$(C)")}},
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv", Readonly: true}},
		Labels: map[string]string{"io.kubernetes.container.name": "a", "io.kubernetes.pod.name": "web",
			"io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "uid-1"},
		Annotations: map[string]string{
			"io.kubernetes.container.hash":                     podruntime.Hash(c),
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"io.kubernetes.container.ports": `[{"name":"http","hostPort":8080,"containerPort":80,"protocol":"TCP","hostIP":"127.0.0.1"},` +
				`{"name":"again","hostPort":8080,"containerPort":80,"protocol":"TCP","hostIP":"127.0.0.1"},{"containerPort":53,"protocol":"UDP"}]`,
		},
		LogPath: "a/0.log",
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}

	id, _ := n.rt.FindContainer("uid-1", "a")
	link, err := os.Readlink(filepath.Join(n.links, "web_default_a-"+id+".log"))
	if want := filepath.Join(n.logs, "default_web_uid-1", "a", "0.log"); err != nil || link != want {
		t.Errorf("log link = %s, %v; want %s", link, err, want)
	}
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Exit(1, 0))
		p := pod("Always", "a")
		var gaps []time.Duration
		var ended time.Time
		for len(gaps) < 8 {
			_, result, err := n.sync(t.Context(), p)
			var retry interface{ RetryAt() time.Time }
			switch {
			case err == nil:
				if !ended.IsZero() {
					gaps = append(gaps, time.Since(ended).Round(time.Second))
				}
				time.Sleep(time.Millisecond) // it ends
				ended = time.Now()
			case result.Failures["a"].Reason == "CrashLoopBackOff" && errors.As(err, &retry) && retry.RetryAt().After(time.Now()):
				time.Sleep(time.Until(retry.RetryAt()))
			default:
				t.Fatal(err)
			}
		}
		if got, want := fmt.Sprint(gaps), "[0s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s]"; got != want {
			t.Errorf("gaps = %s, want %s", got, want)
		}
	})
}

func TestCrashLoopWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Exit(1, 0))
		p := pod("Always", "a", "b")
		n.must(p)
		time.Sleep(time.Millisecond)
		n.must(p)
		time.Sleep(time.Second)
		n.takeEvents()
		_, result, err := n.sync(t.Context(), p)
		const message = "back-off 10s restarting failed container=a pod=web_default(uid-1)"
		if f := result.Failures["a"]; f.Reason != "CrashLoopBackOff" || f.Message != message {
			t.Errorf("failure = %+v", f)
		}
		if want := "start container a of pod default/web: CrashLoopBackOff: " + message; err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v\nwant    %s…", err, want)
		}
		n.wantEvents("a Warning BackOff: Back-off restarting failed container a in pod web_default(uid-1)",
			"b Warning BackOff: Back-off restarting failed container b in pod web_default(uid-1)")
		until, delay, ok := n.r.Backoff("uid-1", "a")
		if !ok || delay != 10*time.Second || time.Until(until).Round(time.Second) != 9*time.Second {
			t.Errorf("Backoff = %v, %v, %v", until, delay, ok)
		}

		n.rt.AddImage("img:2", critest.Behavior{})
		p.Spec.Containers[0].Image = "img:2"
		_, result, _ = n.sync(t.Context(), p)
		if diff := cmp.Diff([]string{"a"}, result.Started); diff != "" {
			t.Errorf("started after an image change (-want +got):\n%s", diff)
		}
		n.r.ForgetPod("uid-1")
		if _, _, ok := n.r.Backoff("uid-1", "b"); ok {
			t.Error("a forgotten pod has a back-off")
		}
	})
}

func TestFailuresAndWhoTheyHoldUp(t *testing.T) {
	failing := func(name string) critest.Behavior {
		return critest.Behavior{For: func(c *runtimeapi.ContainerConfig) critest.Behavior {
			if c.Metadata.Name == name {
				return critest.Behavior{StartError: "exec: not found"}
			}
			return critest.Behavior{}
		}}
	}
	t.Run("a regular container does not hold up the next", func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", failing("a"))
		p := pod("Always", "a", "b")
		_, result, err := n.sync(t.Context(), p)
		if f := result.Failures["a"]; f.Reason != "RunContainerError" || !strings.Contains(f.Message, "exec: not found") {
			t.Errorf("failure = %+v", f)
		}
		n.wantRunning(p, "b#0")
		var start *podruntime.StartError
		if !errors.As(err, &start) || start.RetryAt().IsZero() {
			t.Errorf("error = %v", err)
		}
		if n.counts["failed container RunContainerError"] != 1 {
			t.Errorf("counts = %v", n.counts)
		}
	})
	t.Run("an init container does", func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", failing("i0"))
		p := pod("Always", "i:i0", "a")
		if _, result, _ := n.sync(t.Context(), p); len(result.Failures) != 1 || len(result.Started) != 0 {
			t.Errorf("result = %+v", result)
		}
	})
	t.Run("a sidecar does not", func(t *testing.T) {
		n := newNode(t)
		n.rt.AddImage("img:1", critest.Behavior{})
		p := pod("Always", "s:s", "a")
		n.converge(p)
		for _, name := range []string{"s", "a"} {
			id, _ := n.rt.FindContainer("uid-1", name)
			if err := n.rt.Kill(id, 1); err != nil {
				t.Fatal(err)
			}
		}
		n.rt.Inject(critest.Fault{Method: "CreateContainer", Container: "s", Err: errors.New("no space left")})
		_, result, _ := n.sync(t.Context(), p)
		if f := result.Failures["s"]; f.Reason != "CreateContainerError" || f.Message != "no space left" {
			t.Errorf("failure = %+v", f)
		}
		n.wantRunning(p, "a#1")
	})
	t.Run("a spec that cannot be made is a config error", func(t *testing.T) {
		n := newNode(t)
		n.spec = func(podruntime.Start) (podruntime.ContainerSpec, error) {
			return podruntime.ContainerSpec{}, errors.New(`cannot find volume "v"`)
		}
		_, result, err := n.sync(t.Context(), pod("Always", "a"))
		if f := result.Failures["a"]; f.Reason != "CreateContainerConfigError" || f.Message != `cannot find volume "v"` {
			t.Errorf("failure = %+v, %v", f, err)
		}
		n.wantEvents(`a Warning Failed: Error: cannot find volume "v"`)
	})
	t.Run("an image says its own reason", func(t *testing.T) {
		n := newNode(t)
		n.rt.FailNext("PullImage", errors.New("no such host"))
		_, result, _ := n.sync(t.Context(), pod("Always", "a"))
		f := result.Failures["a"]
		if f.Reason != "ErrImagePull" || f.Message != "no such host" || time.Until(f.RetryAt) < 9*time.Second {
			t.Errorf("failure = %+v", f)
		}
		n.wantEvents("a Warning Failed: Error: ErrImagePull")
		_, result, _ = n.sync(t.Context(), pod("Always", "a"))
		if again := result.Failures["a"]; again.Reason != "ImagePullBackOff" || !again.RetryAt.Equal(f.RetryAt) {
			t.Errorf("second failure = %+v, want a back-off until %v", again, f.RetryAt)
		}
	})
}

func TestNothingStartsAfterTheContextEnded(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	n.spec = func(s podruntime.Start) (podruntime.ContainerSpec, error) {
		if s.Name == "b" {
			cancel()
		}
		return podruntime.ContainerSpec{}, nil
	}
	p := pod("Always", "a", "b", "c")
	_, result, err := n.sync(ctx, p)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the context's", err)
	}
	n.wantRunning(p, "a#0")
	for _, e := range n.takeEvents() {
		if strings.Contains(e, "Warning") {
			t.Errorf("a stopped sync raised %q", e)
		}
	}
	if len(result.Failures) > 0 {
		t.Errorf("failures of containers that nobody waits for: %v", result.Failures)
	}
}

func TestRestartCountComesFromLogsWhenRecordsAreGone(t *testing.T) {
	n := newNode(t)
	p := pod("Always", "a")
	dir := filepath.Join(n.logs, "default_web_uid-1", "a")
	if err := os.MkdirAll(filepath.Join(dir, "99.log"), 0o755); err != nil { // a directory is no log
		t.Fatal(err)
	}
	for _, name := range []string{"2.log", "6.log.20260102-150405.gz", "x.log", "+9.log", "77.logs", "8"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.must(p)
	n.wantRunning(p, "a#7")
}

func TestAReplacedSandbox(t *testing.T) {
	n := newNode(t)
	p := pod("Always", "a")
	n.must(p)
	id, _ := n.rt.FindSandbox("uid-1")
	if err := n.rt.StopPodSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	n.takeEvents()
	n.must(p)
	n.wantRunning(p, "a#1")
	n.wantEvents("Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created.",
		"a Normal Created: Container created", "a Normal Started: Container started")
	if sb, _ := n.see(p).Sandbox(); sb.Attempt != 1 || !sb.Ready {
		t.Errorf("sandbox = %+v", sb)
	}
}

func TestSandboxFailures(t *testing.T) {
	t.Run("create", func(t *testing.T) {
		n := newNode(t)
		n.rt.FailNext("RunPodSandbox", errors.New("no CNI"))
		_, _, err := n.sync(t.Context(), pod("Always", "a"))
		if err == nil || err.Error() != "create sandbox of pod default/web: no CNI" {
			t.Errorf("error = %v", err)
		}
		n.wantEvents("Warning FailedCreatePodSandBox: Failed to create pod sandbox: no CNI")
	})
	t.Run("look", func(t *testing.T) {
		n := newNode(t)
		n.rt.FailNext("PodSandboxStatus", errors.New("busy"))
		if _, _, err := n.sync(t.Context(), pod("Always", "a")); err == nil {
			t.Error("no error")
		}
		n.wantEvents("Warning FailedPodSandBoxStatus: Unable to get pod sandbox status: busy")
	})
	t.Run("names that would leave the log directory", func(t *testing.T) {
		n := newNode(t)
		p := pod("Always", "a")
		p.UID = "../../etc"
		if _, _, err := n.sync(t.Context(), p); err == nil || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("error = %v", err)
		}
		if len(n.calls()) != 0 {
			t.Error("the runtime was called")
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	n := newNode(t)
	for name, cfg := range map[string]podruntime.Config{
		"no CRI":            {},
		"no images":         {CRI: n.rt},
		"relative log dir":  {CRI: n.rt, Images: stubImages{}, LogDir: "logs"},
		"negative back-off": {CRI: n.rt, Images: stubImages{}, BackoffMax: -1},
	} {
		if _, err := podruntime.New(cfg); err == nil {
			t.Errorf("New accepted a config with %s", name)
		}
	}
}

type stubImages struct{ podruntime.ImageEnsurer }

func TestAForgottenPodIsNotHeldBackByItsEarlierLife(t *testing.T) {
	n := newNode(t)
	n.rt.FailNext("PullImage", errors.New("no such host"))
	p := pod("Always", "a")
	n.sync(t.Context(), p) //nolint:errcheck // the pull fails, as it should
	n.r.ForgetPod(observed.UID(p.UID))
	if _, _, err := n.sync(t.Context(), p); err != nil {
		t.Errorf("error = %v, want a new pull", err)
	}
	n.wantRunning(p, "a#0")
}

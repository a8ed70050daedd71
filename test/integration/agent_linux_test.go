package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/containerd"
)

// nodeName is the node's in all tests; the agent adds it to static pods' names.
const nodeName = "node"

// Options are what a test may want different about its agent.
type Options struct {
	// Config overrides fields of the KubeletConfiguration, by their JSON names.
	Config map[string]any
	// Flags come after the usual ones.
	Flags []string
	// RootFiles are files of the agent's root folder, by their paths in it.
	RootFiles map[string]string
}

// Agent is a fullnode with folders and ports of its own. It may be ended and
// started again any number of times.
type Agent struct {
	t         *testing.T
	Manifests string // folder of manifests
	Root      string // --root-dir
	PodLogs   string
	LogFile   string
	Ports     struct{ Health, ReadOnly, Main int }

	config string
	flags  []string
	proc   *agentProcess // nil while it does not run
	// crashed is set once the agent was killed: see [forgotten].
	crashed bool
}

type agentProcess struct {
	cmd  *exec.Cmd
	done chan struct{} // closed after err is set
	err  error
}

// StartAgent starts fullnode and waits until it is healthy. When the test
// ends, agent and pods are taken down, the end of the agent's log is shown if
// the test failed, and anything that is left on the machine is a failure.
func StartAgent(t *testing.T, o Options) *Agent {
	t.Helper()
	a := NewAgent(t, o)
	a.Start()
	return a
}

// NewAgent is [StartAgent] without the start: for tests that write manifests
// first.
func NewAgent(t *testing.T, o Options) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{
		t:         t,
		Manifests: filepath.Join(dir, "manifests"),
		Root:      filepath.Join(dir, "kubelet"),
		PodLogs:   filepath.Join(dir, "pods"),
		LogFile:   filepath.Join(dir, "fullnode.log"),
		config:    filepath.Join(dir, "config.json"),
		flags:     o.Flags,
	}
	for _, sub := range []string{a.Manifests, a.Root, a.PodLogs} {
		require.NoError(t, os.Mkdir(sub, 0o755))
	}
	for path, text := range o.RootFiles {
		path = filepath.Join(a.Root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	ports := freePorts(t, 3)
	a.Ports.Health, a.Ports.ReadOnly, a.Ports.Main = ports[0], ports[1], ports[2]
	fields := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": a.Manifests, "podLogsDir": a.PodLogs,
		"containerRuntimeEndpoint": the.daemon.Endpoint(), "cgroupRoot": the.daemon.CgroupRoot(),
		"address": "127.0.0.1", "port": a.Ports.Main,
		"readOnlyPort": a.Ports.ReadOnly, "healthzPort": a.Ports.Health,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
	}
	maps.Copy(fields, o.Config)
	data, err := json.MarshalIndent(fields, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(a.config, data, 0o644))
	t.Cleanup(a.cleanUp)
	return a
}

// freePorts asks the kernel for ports, all different.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Start runs the agent and waits until it is healthy.
func (a *Agent) Start() {
	a.t.Helper()
	a.Launch()
	Eventually(a.t, 30*time.Second, func() error {
		select {
		case <-a.proc.done:
			a.t.Fatalf("fullnode ended: %v\n%s", a.proc.err, a.LogTail())
		default:
		}
		_, err := a.Get(a.Ports.Health, "/healthz")
		return err
	})
}

// Launch runs the agent and does not wait.
func (a *Agent) Launch() {
	a.t.Helper()
	require.Nil(a.t, a.proc, "the agent runs already")
	binary, err := fullnode()
	require.NoError(a.t, err)
	log, err := os.OpenFile(a.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(a.t, err)
	defer log.Close() // the child has its own
	cmd := exec.Command(binary, append([]string{
		"--config", a.config, "--root-dir", a.Root, "--hostname-override", nodeName,
	}, a.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &agentProcess{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ends the child with the thread that started it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.done)
	}()
	require.NoError(a.t, <-started)
	a.proc = p
}

// Kill9 ends the agent as a crash does.
func (a *Agent) Kill9() {
	a.t.Helper()
	a.crashed = true
	a.Signal(syscall.SIGKILL)
	_ = a.Wait(10 * time.Second) // the error is the signal
}

// Term ends the agent as a service manager does, and wants exit status 0.
func (a *Agent) Term() {
	a.t.Helper()
	a.Signal(syscall.SIGTERM)
	require.NoError(a.t, a.Wait(30*time.Second), "fullnode's end after SIGTERM\n%s", a.LogTail())
}

// Signal sends a signal to the running agent.
func (a *Agent) Signal(sig syscall.Signal) {
	a.t.Helper()
	require.NotNil(a.t, a.proc, "the agent does not run")
	require.NoError(a.t, syscall.Kill(a.proc.cmd.Process.Pid, sig))
}

// Wait returns how the agent ended.
func (a *Agent) Wait(within time.Duration) error {
	a.t.Helper()
	require.NotNil(a.t, a.proc, "the agent does not run")
	select {
	case <-a.proc.done:
	case <-time.After(within):
		a.t.Fatalf("fullnode did not end within %v\n%s", within, a.LogTail())
	}
	err := a.proc.err
	a.proc = nil
	return err
}

// Pid is the running agent's, for looks at /proc.
func (a *Agent) Pid() int {
	a.t.Helper()
	require.NotNil(a.t, a.proc, "the agent does not run")
	return a.proc.cmd.Process.Pid
}

// LogTail is the end of the agent's log over all its runs.
func (a *Agent) LogTail() string {
	data, err := os.ReadFile(a.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-8000):])
}

// Write puts a manifest into the agent's folder in one step, with KK replaced
// by the reference of the demo image.
func (a *Agent) Write(name, manifest string) {
	a.t.Helper()
	manifest = strings.ReplaceAll(manifest, "image: KK", "image: "+the.kk)
	aside := filepath.Join(a.Manifests, "."+name)
	require.NoError(a.t, os.WriteFile(aside, []byte(manifest), 0o644))
	require.NoError(a.t, os.Rename(aside, filepath.Join(a.Manifests, name)))
}

// Remove takes a manifest out of the agent's folder.
func (a *Agent) Remove(name string) {
	a.t.Helper()
	require.NoError(a.t, os.Remove(filepath.Join(a.Manifests, name)))
}

// Get reads from one of the agent's ports on loopback.
func (a *Agent) Get(port int, path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, body)
	}
	return string(body), err
}

// Pod returns what the agent reports of the pod of a manifest with this name.
func (a *Agent) Pod(name string) (corev1.Pod, error) {
	body, err := a.Get(a.Ports.ReadOnly, "/pods")
	if err != nil {
		return corev1.Pod{}, err
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return corev1.Pod{}, fmt.Errorf("read /pods: %w", err)
	}
	for _, p := range list.Items {
		if p.Name == name+"-"+nodeName {
			return p, nil
		}
	}
	return corev1.Pod{}, fmt.Errorf("the agent does not know pod %s among its %d", name, len(list.Items))
}

// Left lists what the agent's pods left: in the runtime, on the machine, and
// in the agent's folders.
func (a *Agent) Left() []string {
	left := the.daemon.Left()
	if a.crashed {
		left = slices.DeleteFunc(left, forgotten(a.t))
	}
	for _, s := range sandboxes(a.t, "") {
		left = append(left, "sandbox "+s.Id+" of pod "+s.Metadata.Name)
	}
	for _, c := range containers(a.t, "", "") {
		left = append(left, "container "+c.Id+" named "+c.Metadata.Name)
	}
	for _, m := range containerd.Mounts(a.Root) {
		left = append(left, "mount "+m)
	}
	for _, dir := range []string{filepath.Join(a.Root, "pods"), a.PodLogs} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			left = append(left, err.Error())
		}
		for _, e := range entries {
			left = append(left, "folder "+filepath.Join(dir, e.Name()))
		}
	}
	return left
}

var runtimeID = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// forgotten tells the lines about things that the runtime itself does not know
// any more. When the caller of RunPodSandbox or StartContainer dies in the middle
// of it, containerd gives up half-way and leaves a shim (1.6, 2.4) or an empty
// cgroup (2.4) behind. No agent can see or remove these through CRI.
func forgotten(t *testing.T) func(line string) bool {
	known := map[string]bool{}
	for _, s := range sandboxes(t, "") {
		known[s.Id] = true
	}
	for _, c := range containers(t, "", "") {
		known[c.Id] = true
	}
	return func(line string) bool {
		ids := runtimeID.FindAllString(line, -1)
		return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return known[id] })
	}
}

// clearForgotten does what the runtime did not.
func (a *Agent) clearForgotten(ctx context.Context) {
	orphans, err := the.daemon.Orphans(ctx)
	if err != nil {
		a.t.Error(err)
	}
	for sandbox, pid := range orphans {
		a.t.Logf("containerd %s forgot the shim of sandbox %s; it is killed", the.daemon.Version(), sandbox)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, line := range slices.DeleteFunc(the.daemon.Left(), func(line string) bool { return !forgotten(a.t)(line) }) {
		if dir, ok := strings.CutPrefix(line, "cgroup "); ok {
			a.t.Logf("containerd %s forgot cgroup %s; it is removed", the.daemon.Version(), dir)
			_ = syscall.Rmdir(dir) // fails, and is found below, if it is not empty
		}
	}
}

// NothingLeftAfterCrashes is [Agent.NothingLeft] for an agent that was killed in the
// middle of starts. containerd 2.4 then refuses to remove some containers ("cannot
// delete running task") until it is restarted, whoever asks. So it is restarted,
// as an operator would, and from then on there is no excuse.
func (a *Agent) NothingLeftAfterCrashes(within time.Duration) {
	a.t.Helper()
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		if len(a.Left()) == 0 {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	a.t.Logf("left on containerd %s after %v:\n  %s", the.daemon.Version(), within, strings.Join(a.Left(), "\n  "))
	if log, _ := os.ReadFile(a.LogFile); !strings.Contains(string(log), "cannot delete running task") {
		a.t.Fatal("and the agent's log does not say that containerd refuses to remove it")
	}
	a.restartRuntime()
	a.NothingLeft(90 * time.Second)
}

func (a *Agent) restartRuntime() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(a.t, the.daemon.Stop())
	require.NoError(a.t, the.daemon.Start(ctx))
}

// NothingLeft waits until [Agent.Left] is empty.
func (a *Agent) NothingLeft(within time.Duration) {
	a.t.Helper()
	Eventually(a.t, within, func() error {
		if left := a.Left(); len(left) > 0 {
			return fmt.Errorf("left:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
}

func (a *Agent) cleanUp() {
	if a.proc != nil {
		a.Signal(syscall.SIGKILL)
		_ = a.Wait(10 * time.Second) // the error is the signal
	}
	if a.t.Failed() {
		a.t.Logf("the agent's last words:\n%s", a.LogTail())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if the.daemon.Pid() == 0 {
		if err := the.daemon.Start(ctx); err != nil {
			a.t.Error(err)
			return
		}
	}
	err := the.daemon.RemovePods(ctx)
	if err != nil && a.crashed {
		a.restartRuntime()
		err = the.daemon.RemovePods(ctx)
	}
	if err != nil {
		a.t.Error(err)
	}
	if a.crashed {
		a.clearForgotten(ctx)
	}
	Eventually(a.t, 10*time.Second, func() error {
		if left := the.daemon.Left(); len(left) > 0 {
			return fmt.Errorf("left after the test:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
	for _, m := range containerd.Mounts(filepath.Dir(a.Root)) {
		a.t.Errorf("mount left after the test: %s", m)
		_ = syscall.Unmount(m, syscall.MNT_DETACH) // or the test's folder can't be removed
	}
}

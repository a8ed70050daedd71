package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubeletkit/kubeletkit/test/containerd"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// agent is the program under test, with folders and ports of its own.
type agent struct {
	binary    string
	dir       string
	manifests string
	config    string
	log       string
	health    int
	probes    bool

	cmd   *exec.Cmd
	ended chan struct{}
}

func newAgent(binary, dir string, under *containerd.Daemon, o options) (*agent, error) {
	a := &agent{
		binary: binary, dir: dir, manifests: filepath.Join(dir, "manifests"), config: filepath.Join(dir, "config.json"),
		log: filepath.Join(dir, "agent.log"), probes: o.probes,
	}
	if err := os.MkdirAll(a.manifests, 0o755); err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	a.health = ports[0]
	type m = map[string]any
	// What an agent does beside its pods is switched off as far as the
	// configuration goes: image removal, eviction, limits of its own.
	config, err := json.MarshalIndent(m{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": a.manifests, "podLogsDir": filepath.Join(dir, "podlogs"),
		"containerRuntimeEndpoint": under.Endpoint(),
		"address":                  "127.0.0.1", "port": ports[1], "readOnlyPort": ports[2],
		"healthzBindAddress": "127.0.0.1", "healthzPort": a.health,
		"authentication": m{"anonymous": m{"enabled": true}, "webhook": m{"enabled": false}},
		"authorization":  m{"mode": "AlwaysAllow"},
		"cgroupDriver":   "cgroupfs", "cgroupRoot": o.cgroupRoot, "enforceNodeAllocatable": []string{},
		"failSwapOn": false, "failCgroupV1": false, "maxPods": 500, "serializeImagePulls": false,
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"evictionHard": m{
			"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.config, config, 0o644)
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all are taken, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// start runs the agent and does not wait for it.
func (a *agent) start() error {
	log, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	a.cmd = exec.Command(a.binary, "--config", a.config, "--root-dir", filepath.Join(a.dir, "root"), "--hostname-override", "bench")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		a.cmd = nil
		return fmt.Errorf("start the agent: %w", err)
	}
	a.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { // ends with the process, which stop waits for
		_ = cmd.Wait()
		close(ended)
	}(a.cmd, a.ended)
	return nil
}

// waitHealthy asks until /healthz says ok.
func (a *agent) waitHealthy(ctx context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return wait(ctx, time.Minute, 5*time.Millisecond, func() (bool, error) {
		select {
		case <-a.ended:
			return false, errors.New("the agent has ended")
		default:
		}
		answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", a.health))
		if err != nil {
			return false, nil
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
}

// stop ends the agent, which leaves its pods running.
func (a *agent) stop() error {
	if a.cmd == nil {
		return nil
	}
	cmd := a.cmd
	a.cmd = nil
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-a.ended:
		return nil
	case <-time.After(20 * time.Second):
	}
	_ = cmd.Process.Kill()
	<-a.ended
	return errors.New("the agent ignored SIGTERM for 20 s and was killed")
}

// containerLogs is where agents make a link to each container's log; its place is
// not in the configuration.
const containerLogs = "/var/log/containers"

// cleanUp removes what an agent that was ended in its work left on the machine.
func (a *agent) cleanUp() error {
	var errs []error
	for _, m := range containerd.Mounts(a.dir) {
		errs = append(errs, syscall.Unmount(m, syscall.MNT_DETACH))
	}
	entries, _ := os.ReadDir(containerLogs)
	for _, e := range entries {
		link := filepath.Join(containerLogs, e.Name())
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, a.dir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func (a *agent) tail() string {
	data, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: web
    image: %s
    imagePullPolicy: IfNotPresent
    args: [serve, ":8080"]
`

const probes = `    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2}
`

func (a *agent) file(pod string) string { return filepath.Join(a.manifests, pod+".yaml") }

// write puts the pods' manifests into the agent's folder, each in one step, and
// returns the time right before the first.
func (a *agent) write(pods ...string) (time.Time, error) {
	for _, pod := range pods {
		text := fmt.Sprintf(manifest, pod, images.Ref(images.Local, images.KK))
		if a.probes {
			text += probes
		}
		if err := os.WriteFile(filepath.Join(a.dir, pod), []byte(text), 0o644); err != nil {
			return time.Time{}, err
		}
	}
	begin := time.Now()
	for _, pod := range pods {
		if err := os.Rename(filepath.Join(a.dir, pod), a.file(pod)); err != nil {
			return time.Time{}, err
		}
	}
	return begin, nil
}

func (a *agent) remove(pods ...string) (time.Time, error) {
	begin := time.Now()
	for _, pod := range pods {
		if err := os.Remove(a.file(pod)); err != nil {
			return time.Time{}, err
		}
	}
	return begin, nil
}

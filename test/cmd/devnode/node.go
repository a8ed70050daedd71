package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubeletkit/kubeletkit/test/repo"
)

// registryHost is where the manifests in the repository find their image.
const registryHost = "127.0.0.1:5000"

// node is the paths and ports of one run.
type node struct {
	dir       string
	binary    string
	root      string // --root-dir
	podLogs   string
	manifests string
	config    string
	log       string
	ports     struct{ health, readOnly, main int }
}

// newNode empties what the last run left in files; containerd's folder, with
// its images, stays. Nothing may be mounted there any more.
func newNode(name string) (*node, error) {
	dir, err := repo.Dev(name)
	if err != nil {
		return nil, err
	}
	n := &node{
		dir:       dir,
		binary:    filepath.Join(dir, "fullnode"),
		root:      filepath.Join(dir, "kubelet"),
		podLogs:   filepath.Join(dir, "pods"),
		manifests: filepath.Join(dir, "manifests"),
		config:    filepath.Join(dir, "config.yaml"),
		log:       filepath.Join(dir, "fullnode.log"),
	}
	for _, dir := range []string{n.root, n.podLogs, n.manifests} {
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("empty %s: %w", dir, err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make %s: %w", dir, err)
		}
	}
	n.ports.health, n.ports.main, n.ports.readOnly = freePort(10248), freePort(10250), freePort(10255)
	return n, nil
}

// freePort is want, or any port where want is taken, by a kubelet perhaps.
func freePort(want int) int {
	for _, port := range []int{want, 0} {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			defer l.Close()
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	return want
}

// writeManifests copies the demo pods, with the registry that is really there.
func (n *node) writeManifests(host string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "fullnode", "manifests", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("copy the manifests: none in examples/fullnode/manifests (%v)", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("copy the manifests: %w", err)
		}
		if host != "" {
			data = bytes.ReplaceAll(data, []byte(registryHost+"/"), []byte(host+"/"))
		}
		if err := os.WriteFile(filepath.Join(n.manifests, filepath.Base(file)), data, 0o644); err != nil {
			return fmt.Errorf("copy the manifests: %w", err)
		}
	}
	return nil
}

// writeConfig writes a KubeletConfiguration. Everything listens on loopback,
// which is why the main port may let anyone in.
func (n *node) writeConfig(cgroupRoot string) error {
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %s
podLogsDir: %s
cgroupRoot: %q
address: 127.0.0.1
port: %d
readOnlyPort: %d
healthzPort: %d
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
`, n.manifests, n.podLogs, cgroupRoot, n.ports.main, n.ports.readOnly, n.ports.health)
	if err := os.WriteFile(n.config, []byte(config), 0o644); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// waitHealthy returns once /healthz says ok.
func (n *node) waitHealthy(ctx context.Context, agent *agent) error {
	ctx, cancel := context.WithTimeout(ctx, healthyWithin)
	defer cancel()
	return agent.until(ctx, func() error {
		_, err := get(ctx, n.ports.health, "/healthz")
		return err
	})
}

func get(ctx context.Context, port int, path string) ([]byte, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d%s", port, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		return nil, fmt.Errorf("get %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s: %s", url, answer.Status, bytes.TrimSpace(body.Bytes()))
	}
	return body.Bytes(), nil
}

// until tries again every 50 ms, as long as the agent lives.
func (a *agent) until(ctx context.Context, try func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-a.done:
			return fmt.Errorf("fullnode ended: %v; its last words:\n%s", a.err, tail(a.log))
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

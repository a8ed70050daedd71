package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/template"

	"github.com/kubeletkit/kubeletkit/test/images"
)

// Settings with a reason:
//   - restrict_oom_score_adj: in a container or a small VM even root may not
//     lower its OOM score below its own.
//   - disable_apparmor: a loaded profile would be left on the machine.
//   - netns_mounts_under_state_dir: network namespaces can be found by folder.
//   - plugins that are disabled: the file systems we do not use, and NRI, whose
//     socket has a path that is shared by the whole machine.
//   - registry config_path: the machine's own mirrors do not count. Loopback
//     registries are spoken to without TLS by default.
var (
	configV1 = template.Must(template.New("1.x").Parse(`version = 2
root = {{printf "%q" .Root}}
state = {{printf "%q" .State}}
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.restart", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = {{printf "%q" .Socket}}
[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%q" .Opt}}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {{printf "%q" .Pause}}
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {{printf "%q" .Snapshotter}}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {{printf "%q" .Hosts}}
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {{printf "%q" .CNIBin}}
    conf_dir = {{printf "%q" .CNIConf}}
`))
	configV2 = template.Must(template.New("2.x").Parse(`version = 3
root = {{printf "%q" .Root}}
state = {{printf "%q" .State}}
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.restart", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = {{printf "%q" .Socket}}
[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%q" .Opt}}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = {{printf "%q" .Snapshotter}}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {{printf "%q" .Pause}}
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {{printf "%q" .Hosts}}
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{{printf "%q" .CNIBin}}]
    conf_dir = {{printf "%q" .CNIConf}}
`))
)

// render writes the configuration for a version of containerd: 1.6 and 1.7
// read version 2 of the format, 2.x reads version 3.
func render(at layout, version string) ([]byte, error) {
	bin, err := cniBinaries()
	if err != nil {
		return nil, err
	}
	config := configV1
	if !strings.HasPrefix(version, "1.") {
		config = configV2
	}
	var out bytes.Buffer
	err = config.Execute(&out, map[string]string{
		"Root": at.root, "State": at.state, "Socket": at.socket,
		"Opt":         filepath.Join(at.dir, "opt"),
		"Hosts":       filepath.Join(at.dir, "hosts"),
		"Pause":       images.Ref(images.Local, images.Pause),
		"Snapshotter": snapshotter(at.dir),
		"CNIBin":      bin, "CNIConf": at.cniConf,
	})
	return out.Bytes(), err
}

// cniBinaries finds the CNI plugins: Debian's package has them in /usr/lib/cni,
// the plugins' own instructions in /opt/cni/bin.
func cniBinaries() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find the CNI plugin bridge: not in /usr/lib/cni nor /opt/cni/bin; hack/install.sh runtime installs it")
}

// snapshotter is overlayfs where dir's file system can carry an overlay, which
// an overlay itself (a CI job in a container) can not.
func snapshotter(dir string) string {
	probe, err := os.MkdirTemp(dir, "overlay")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(probe)
	for _, sub := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probe, sub), 0o700); err != nil {
			return "native"
		}
	}
	merged := filepath.Join(probe, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", probe)
	if err := syscall.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return "native"
	}
	// The defer above must not see a mounted overlay.
	if err := syscall.Unmount(merged, 0); err != nil {
		_ = syscall.Unmount(merged, syscall.MNT_DETACH)
	}
	return "overlayfs"
}

var versionNumber = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+)`)

// versionOf asks a binary; the answer is like "1.6.20".
func versionOf(ctx context.Context, binary string) (string, error) {
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", binary, err)
	}
	m := versionNumber.FindStringSubmatch(string(out))
	if m == nil {
		return "", fmt.Errorf("ask %s for its version: no number in %q", binary, out)
	}
	return m[1], nil
}

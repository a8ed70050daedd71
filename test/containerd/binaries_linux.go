package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/test/repo"
)

// Binary is one containerd to test against.
type Binary struct {
	// Name is for test names and folders: "system" or "v2".
	Name    string
	Path    string
	Version string
}

// Binaries returns the machine's containerd (Debian 12 has 1.6, the oldest in
// common use) and a current 2.x, which is built on the first call.
func Binaries(ctx context.Context) ([]Binary, error) {
	system, err := System(ctx)
	if err != nil {
		return nil, err
	}
	v2, err := V2(ctx)
	if err != nil {
		return nil, err
	}
	return []Binary{system, v2}, nil
}

// System is the containerd on PATH.
func System(ctx context.Context) (Binary, error) {
	path, err := exec.LookPath("containerd")
	if err != nil {
		return Binary{}, fmt.Errorf("%w; hack/install.sh runtime installs it", err)
	}
	return binary(ctx, "system", path)
}

// V2 is built from the module test/containerd2, which pins the version. The
// shim lies beside it.
func V2(ctx context.Context) (Binary, error) {
	const pkg = "github.com/containerd/containerd/v2/cmd/"
	path, err := built(ctx, "test/containerd2", pkg+"containerd", pkg+"containerd-shim-runc-v2")
	if err != nil {
		return Binary{}, err
	}
	return binary(ctx, "v2", path)
}

// Crictl is built from the module test/crictl, which pins the version.
func Crictl(ctx context.Context) (string, error) {
	return built(ctx, "test/crictl", "sigs.k8s.io/cri-tools/cmd/crictl")
}

func binary(ctx context.Context, name, path string) (Binary, error) {
	version, err := versionOf(ctx, path)
	return Binary{Name: name, Path: path, Version: version}, err
}

// built compiles packages of a module once per state of its go.sum, and
// returns the path of the first.
func built(ctx context.Context, module string, packages ...string) (string, error) {
	root, err := repo.Root()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("build %s: %w", module, err)
	}
	sum := sha256.Sum256(sums)
	dir, err := repo.Dev("bin", filepath.Base(module)+"-"+hex.EncodeToString(sum[:4]))
	if err != nil {
		return "", err
	}
	first := filepath.Join(dir, filepath.Base(packages[0]))
	if _, err := os.Stat(first); err == nil {
		return first, nil
	}
	// Two processes may get here at once: each builds aside, one rename wins.
	aside, err := os.MkdirTemp(filepath.Dir(dir), "build")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", module, err)
	}
	defer os.RemoveAll(aside)
	if err := os.Chmod(aside, 0o755); err != nil {
		return "", err
	}
	if err := repo.Build(ctx, module, aside+"/", packages...); err != nil {
		return "", err
	}
	if err := os.Rename(aside, dir); err != nil {
		if _, there := os.Stat(first); there == nil {
			return first, nil
		}
		return "", fmt.Errorf("build %s: %w", module, err)
	}
	return first, nil
}

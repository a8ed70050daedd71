// Package repo finds the checkout that tests and tools run in, and builds
// programs out of it.
//
//   - In: the working directory, anywhere inside the checkout.
//   - Out: [Root], [Dev], and binaries made by [Build].
//   - Owns: nothing.
//   - Rooms: everything under test/ that needs a path or a binary.
package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const rootModule = "module github.com/kubeletkit/kubeletkit\n"

// Root returns the folder that holds the root module's go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), rootModule) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the checkout: no folder above the working directory holds kubeletkit's go.mod")
		}
		dir = parent
	}
}

// Dev returns a path below .dev, the git-ignored folder for everything that
// is built or left by a run. It makes the folders above the path.
func Dev(elem ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{root, ".dev"}, elem...)...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make .dev: %w", err)
	}
	return path, nil
}

// Build compiles packages, named as the module in folder module (relative to
// the root) sees them, into the folder or file out: static, without paths and
// symbols, so that the same source gives the same bytes.
func Build(ctx context.Context, module, out string, packages ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", out}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(root, module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " "), err, stderr.String())
	}
	return nil
}

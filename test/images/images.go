// Package images makes the container images of demos and tests from Go sources
// in this repository, so that no registry on the network is needed.
//
//   - In: the sources in pause/ and kk/, and a Go toolchain.
//   - Out: a [Set] of two images; the same sources give the same digests.
//   - Owns: the folder it builds in.
//   - Rooms: registry serves them, containerd has them preloaded.
package images

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/kubeletkit/kubeletkit/test/repo"
)

// Local is the registry host in the names of preloaded images. No such host
// exists (RFC 6762 keeps .local off the DNS), so a pull of them fails.
const Local = "kubeletkit.local"

// Names of the images in a [Set].
const (
	Pause = "pause"
	KK    = "kk"
)

// Ref returns the reference of a named image at a registry host.
func Ref(host, image string) string { return host + "/" + image + ":1" }

// Set is the images by name.
type Set map[string]v1.Image

// Build compiles the programs into dir and wraps each in an image of one layer.
func Build(ctx context.Context, dir string) (Set, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	set := Set{}
	for _, image := range []string{Pause, KK} {
		if err := repo.Build(ctx, "test", filepath.Join(dir, image), "./images/"+image); err != nil {
			return nil, fmt.Errorf("build image %s: %w", image, err)
		}
		program, err := os.ReadFile(filepath.Join(dir, image))
		if err != nil {
			return nil, fmt.Errorf("build image %s: %w", image, err)
		}
		if set[image], err = assemble(image, program); err != nil {
			return nil, fmt.Errorf("build image %s: %w", image, err)
		}
	}
	return set, nil
}

// Push uploads all images to the registry at host, which must be one that is
// spoken to without TLS, such as a loopback address.
func (s Set) Push(ctx context.Context, host string) error {
	for _, image := range slices.Sorted(maps.Keys(s)) {
		ref, err := name.ParseReference(Ref(host, image), name.Insecure)
		if err != nil {
			return fmt.Errorf("push image %s: %w", image, err)
		}
		if err := remote.Write(ref, s[image], remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("push image %s: %w", image, err)
		}
	}
	return nil
}

// Archive writes all images to a file that `ctr images import` reads, under
// names at host.
func (s Set) Archive(file, host string) error {
	named := map[name.Tag]v1.Image{}
	for image, content := range s {
		tag, err := name.NewTag(Ref(host, image))
		if err != nil {
			return fmt.Errorf("archive image %s: %w", image, err)
		}
		named[tag] = content
	}
	if err := tarball.MultiWriteToFile(file, named); err != nil {
		return fmt.Errorf("archive images: %w", err)
	}
	return nil
}

func assemble(image string, program []byte) (v1.Image, error) {
	files, err := rootfs(image, program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: []string{"/" + image},
		Env:        []string{"PATH=/"},
		WorkingDir: "/",
	}
	return mutate.ConfigFile(img, config)
}

// rootfs is a tar archive without times and owners: equal input, equal bytes.
// /etc and /tmp exist because runtimes and programs mount and write there.
func rootfs(image string, program []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: image, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
	} {
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

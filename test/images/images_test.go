package images_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/test/images"
)

func TestTheSameSourcesGiveTheSameImages(t *testing.T) {
	first, err := images.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	second, err := images.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{images.Pause, images.KK} {
		a, err := first[name].Digest()
		require.NoError(t, err)
		b, err := second[name].Digest()
		require.NoError(t, err)
		require.Equal(t, a, b, name)
		config, err := first[name].ConfigFile()
		require.NoError(t, err)
		require.Equal(t, []string{"/" + name}, config.Config.Entrypoint)
	}
}

func TestImagesArePushedAndArchivedUnderTheirNames(t *testing.T) {
	set, err := images.Build(t.Context(), t.TempDir())
	require.NoError(t, err)

	archive := filepath.Join(t.TempDir(), "images.tar")
	require.NoError(t, set.Archive(archive, images.Local))
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	require.NoError(t, err)
	require.Len(t, manifest, 2)

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	require.NoError(t, set.Push(t.Context(), host))
	answer, err := http.Get(server.URL + "/v2/kk/manifests/1")
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

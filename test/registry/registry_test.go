package registry_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/test/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// with starts a registry that holds one image of size bytes.
func with(t *testing.T, size int64) (*registry.Registry, name.Reference) {
	t.Helper()
	reg, err := registry.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Close()) })
	ref, err := name.ParseReference(reg.Host() + "/some/app:1")
	require.NoError(t, err)
	img, err := random.Image(size, 1)
	require.NoError(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	require.NoError(t, remote.Write(ref, img, remote.WithTransport(transport)))
	return reg, ref
}

func pull(ctx context.Context, t *testing.T, ref name.Reference) (v1.Image, error) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return remote.Image(ref, remote.WithTransport(transport), remote.WithContext(ctx),
		remote.WithRetryStatusCodes(), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
}

func TestPullsAreCountedByRepository(t *testing.T) {
	reg, ref := with(t, 100)
	require.Zero(t, reg.Asked("some/app").Blobs, "an upload is no read")
	before := reg.Asked("some/app").Manifests
	_, err := pull(t.Context(), t, ref)
	require.NoError(t, err)
	require.Equal(t, before+1, reg.Asked("some/app").Manifests)
	require.Zero(t, reg.Asked("other"))
}

func TestFaults(t *testing.T) {
	reg, ref := with(t, 4000)
	reg.Break(func(*http.Request) registry.Fault { return registry.Fault{Status: http.StatusForbidden} })
	_, err := pull(t.Context(), t, ref)
	require.ErrorContains(t, err, "403")

	reg.Break(func(*http.Request) registry.Fault { return registry.Fault{Delay: time.Hour} })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = pull(ctx, t, ref)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	reg.Break(nil)
	img, err := pull(t.Context(), t, ref)
	require.NoError(t, err)
	reg.Break(func(*http.Request) registry.Fault { return registry.Fault{PerSecond: 10_000} })
	layers, err := img.Layers()
	require.NoError(t, err)
	began := time.Now()
	r, err := layers[0].Compressed()
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.Greater(t, time.Since(began), 300*time.Millisecond, "4 kB at 10 kB/s")
}

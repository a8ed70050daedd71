package registry_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/test/registry"
)

func pullAs(t *testing.T, ref name.Reference, user, password string) error {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	auth := authn.Anonymous
	if user != "" {
		auth = &authn.Basic{Username: user, Password: password}
	}
	_, err := remote.Image(ref, remote.WithTransport(transport), remote.WithContext(t.Context()), remote.WithAuth(auth),
		remote.WithRetryStatusCodes(), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	return err
}

func TestAGuardAsksWhoIsThere(t *testing.T) {
	for how, token := range map[string]bool{"basic": false, "token": true} {
		t.Run(how, func(t *testing.T) {
			reg, ref := with(t, 100)
			reg.Guard(registry.Guard{Token: token, Allow: func(user, password, repository string) bool {
				return user == "me" && password == "right" && repository == "some/app"
			}})
			require.ErrorContains(t, pullAs(t, ref, "", ""), "UNAUTHORIZED")
			require.ErrorContains(t, pullAs(t, ref, "me", "wrong"), "UNAUTHORIZED")
			require.NoError(t, pullAs(t, ref, "me", "right"))
			tried := reg.Tried("some/app")
			if token {
				require.Equal(t, []string{"!", "!me", "me"}, tried)
			} else {
				require.Equal(t, []string{"!me", "me"}, tried)
			}
			reg.Guard(registry.Guard{})
			require.NoError(t, pullAs(t, ref, "", ""))
		})
	}
}

func TestAGuardMayLeaveARepositoryOpen(t *testing.T) {
	reg, ref := with(t, 100)
	reg.Guard(registry.Guard{Allow: func(_, _, repository string) bool { return repository == "some/app" }})
	require.NoError(t, pullAs(t, ref, "", ""))
}

func TestALieHasTheWrongDigest(t *testing.T) {
	reg, ref := with(t, 1000)
	img, err := pull(t.Context(), t, ref)
	require.NoError(t, err)
	layers, err := img.Layers()
	require.NoError(t, err)
	digest, err := layers[0].Digest()
	require.NoError(t, err)
	reg.Break(func(*http.Request) registry.Fault { return registry.Fault{Lie: true} })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+reg.Host()+"/v2/some/app/blobs/"+digest.String(), nil)
	require.NoError(t, err)
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	blob, err := layers[0].Compressed()
	if err == nil {
		_, err = io.Copy(io.Discard, blob)
		require.NoError(t, blob.Close())
	}
	require.ErrorContains(t, err, "sha256")
}

package integration_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/test/images"
)

// The fake runtime passes the same suite: what rooms are tested on behaves as
// the real one does.
func TestContainerdKeepsThePromisesOfTheFake(t *testing.T) {
	client, err := criclient.New(criclient.Config{Endpoint: the.daemon.Endpoint()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close(t.Context())) })
	image := images.Ref(images.Local, images.KK)
	critest.Suite(t, func(*testing.T) critest.Target {
		return critest.Target{
			Runtime:         client,
			Images:          client,
			Forever:         critest.Program{Image: image, Args: []string{"sleep", "forever"}},
			Exit3:           critest.Program{Image: image, Args: []string{"exit", "3"}},
			Hello:           critest.Program{Image: image, Args: []string{"exit", "--print", "hello", "0"}},
			True:            []string{"/kk", "exit", "0"},
			IsNotFound:      func(err error) bool { return errors.Is(err, criclient.ErrNotFound) },
			IsUnimplemented: func(err error) bool { return errors.Is(err, criclient.ErrUnimplemented) },
		}
	})
	require.Empty(t, the.daemon.Left())
}

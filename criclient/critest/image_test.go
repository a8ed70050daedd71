package critest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

func spec(ref string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: ref} }

func present(t *testing.T, rt *critest.Runtime, ref string) *runtimeapi.Image {
	t.Helper()
	resp, err := rt.ImageStatus(t.Context(), spec(ref), false)
	require.NoError(t, err)
	return resp.GetImage()
}

func TestImagesAreFoundByEveryNameOfTheirs(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.Load(critest.Image{Ref: "busybox", User: "1000:1000", Size: 42, Pinned: true})
	img := present(t, rt, "busybox")
	require.Equal(t, []string{"docker.io/library/busybox:latest"}, img.GetRepoTags())
	require.Len(t, img.GetRepoDigests(), 1)
	require.Equal(t, int64(1000), img.GetUid().GetValue())
	require.Equal(t, uint64(42), img.GetSize())
	require.True(t, img.GetPinned())

	id := img.GetId()
	for _, ref := range []string{
		"busybox:latest", "docker.io/library/busybox", "docker.io/library/busybox:latest",
		id, strings.TrimPrefix(id, "sha256:"), id[:30], strings.TrimPrefix(id, "sha256:")[:12], img.GetRepoDigests()[0],
	} {
		require.Equal(t, id, present(t, rt, ref).GetId(), ref)
	}
	for _, ref := range []string{"busybox:1", "quay.io/library/busybox", "localhost/busybox", "", "sha256:", "a b"} {
		require.Nil(t, present(t, rt, ref), ref)
	}
}

func TestPulling(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	tests := []struct {
		name string
		ref  string
		auth *runtimeapi.AuthConfig
		code codes.Code
	}{
		{name: "by tag", ref: "reg.example:5000/app:1"},
		{name: "by digest", ref: "reg.example:5000/app@" + digest},
		{name: "by tag and digest", ref: "reg.example:5000/app:1@" + digest},
		{name: "another tag", ref: "reg.example:5000/app:2", code: codes.NotFound},
		{name: "another digest", ref: "reg.example:5000/app@sha256:" + strings.Repeat("cd", 32), code: codes.NotFound},
		{name: "no reference", ref: "App:1", code: codes.Unknown},
		{name: "private without credentials", ref: "reg.example/private", code: codes.Unknown},
		{name: "private with wrong ones", ref: "reg.example/private", auth: &runtimeapi.AuthConfig{Username: "me"}, code: codes.Unknown},
		{name: "private with the right ones", ref: "reg.example/private", auth: &runtimeapi.AuthConfig{Username: "me", Password: "secret"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := critest.New(critest.Config{})
			rt.Publish(critest.Image{Ref: "reg.example:5000/app:1", Digest: digest})
			rt.Publish(critest.Image{Ref: "reg.example/private", Username: "me", Password: "secret"})
			require.Nil(t, present(t, rt, tt.ref))
			id, err := rt.PullImage(t.Context(), spec(tt.ref), tt.auth, nil)
			require.Equal(t, tt.code, status.Code(err), "%v", err)
			if err == nil {
				require.Equal(t, id, present(t, rt, tt.ref).GetId())
			} else {
				require.NotContains(t, err.Error(), "secret")
			}
		})
	}
}

func TestAnyImageMakesEverythingPullable(t *testing.T) {
	rt := critest.New(critest.Config{Registry: critest.AnyImage})
	id, err := rt.PullImage(t.Context(), spec("whatever:3"), nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"docker.io/library/whatever:3"}, present(t, rt, id).GetRepoTags())
}

func TestASlowPullDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.Publish(critest.Image{Ref: "huge", PullTakes: time.Hour})
		rt.Publish(critest.Image{Ref: "small"})
		done := make(chan error, 1)
		go func() {
			_, err := rt.PullImage(t.Context(), spec("huge"), nil, nil)
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		_, err := rt.PullImage(t.Context(), spec("small"), nil, nil)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.NoError(t, <-done)
		require.Equal(t, time.Hour, time.Since(began))
	})
}

func TestRemovingAnImageRemovesAllItsNames(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.Load(critest.Image{Ref: "a:1", ID: "sha256:" + strings.Repeat("1", 64)})
	rt.Load(critest.Image{Ref: "b:1", ID: "sha256:" + strings.Repeat("1", 64)})
	rt.AddImage("c:1", critest.Behavior{})
	require.Equal(t, []string{"docker.io/library/a:1", "docker.io/library/b:1"}, present(t, rt, "b:1").GetRepoTags())

	_, id := run(t, rt, "u1", "a:1")
	require.NoError(t, rt.RemoveImage(t.Context(), spec("a:1")))
	require.Nil(t, present(t, rt, "b:1"))
	require.NoError(t, rt.RemoveImage(t.Context(), spec("a:1")))
	list, err := rt.ListImages(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, statusOf(t, rt, id).GetState(), "its containers go on")
}

func TestATagThatWasPushedAgainMeansTheNewImage(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.Load(critest.Image{Ref: "app:1", ID: "sha256:" + strings.Repeat("1", 64)})
	rt.Publish(critest.Image{Ref: "app:1", ID: "sha256:" + strings.Repeat("2", 64)})
	old := present(t, rt, "app:1").GetId()
	id, err := rt.PullImage(t.Context(), spec("app:1"), nil, nil)
	require.NoError(t, err)
	require.NotEqual(t, old, id)
	require.Equal(t, id, present(t, rt, "app:1").GetId())
	require.Empty(t, present(t, rt, old).GetRepoTags(), "the old image has lost its tag")
}

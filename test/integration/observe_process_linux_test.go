package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/registry"
)

// copyOf puts the demo image into another repository of the registry, so that what
// is asked of it can be counted. It returns its digest.
func copyOf(t *testing.T, repository, tag string) (digest string) {
	t.Helper()
	from, err := name.ParseReference(the.kk)
	require.NoError(t, err)
	image, err := remote.Image(from)
	require.NoError(t, err)
	// Equal images have one ID, and the runtime tells any of their names.
	image, err = mutate.Config(image, v1.Config{
		Entrypoint: []string{"/kk"}, Labels: map[string]string{"repository": the.registry.Host() + "/" + repository},
	})
	require.NoError(t, err)
	to, err := name.ParseReference(the.registry.Host() + "/" + repository + ":" + tag)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, image))
	d, err := image.Digest()
	require.NoError(t, err)
	return d.String()
}

func TestObserveImagePolicies(t *testing.T) {
	host := the.registry.Host()
	digest := copyOf(t, "bydigest", "1")
	copyOf(t, "latest", "latest")
	copyOf(t, "present", "1")
	copyOf(t, "both", "1")
	before := map[string]int{} // by those who brought the images
	for _, r := range []string{"latest", "present", "both"} {
		before[r] = the.registry.Asked(r).Manifests
	}
	the.registry.Break(func(r *http.Request) registry.Fault {
		if strings.Contains(r.URL.Path, "/broken/") {
			return registry.Fault{Status: http.StatusInternalServerError}
		}
		return registry.Fault{}
	})
	t.Cleanup(func() { the.registry.Break(nil) })
	image := func(ref, more string) string {
		return "  containers: [{name: c, image: \"" + ref + "\", args: [exit, \"0\"]" + more + "}]\n"
	}
	observe(t, Options{}, []observation{
		{
			name: "an image may be named by its digest",
			spec: image(host+"/bydigest@"+digest, ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, host+"/bydigest@"+digest, s.Status(t, "c").ImageID)
			},
		},
		{
			name: "an image may have tag and digest, and the digest counts",
			spec: image(host+"/bydigest:no-such-tag@"+digest, ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, host+"/bydigest@"+digest, s.Status(t, "c").ImageID)
			},
		},
		{
			name: "a name without a tag means latest",
			spec: image(host+"/latest", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, host+"/latest:latest", s.Status(t, "c").Image)
				require.Equal(t, 2, the.registry.Asked("latest").Manifests-before["latest"])
			},
		},
		{
			name: "a tagged image is pulled once, by its default policy",
			spec: "  initContainers: [{name: i, image: " + host + "/present:1, args: [exit, \"0\"]}]\n" + image(host+"/present:1", ""),
			check: func(t *testing.T, s sight) {
				require.Equal(t, 2, the.registry.Asked("present").Manifests-before["present"], "HEAD and GET of one pull")
			},
		},
		{
			name: "policy Always asks for each start",
			spec: "  initContainers: [{name: i, image: " + host + "/both:1, args: [exit, \"0\"], imagePullPolicy: Always}]\n" + image(host+"/both:1", ", imagePullPolicy: Always"),
			check: func(t *testing.T, s sight) {
				require.Greater(t, the.registry.Asked("both").Manifests-before["both"], 2)
			},
		},
		{
			name: "policy Never does not pull, and says so", until: waiting("c", "ErrImageNeverPull"),
			spec: image(host+"/never:1", ", imagePullPolicy: Never"),
			check: func(t *testing.T, s sight) {
				require.Zero(t, the.registry.Asked("never").Manifests)
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, host+"/never:1")
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
			},
		},
		{
			name: "what can't be the name of an image is said to be none", until: waiting("c", "InvalidImageName"),
			spec: image("UPPER/Case:1", ""),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "c").State.Waiting.Message, "UPPER/Case:1")
			},
		},
		{
			name: "an image that is not there is waited for with growing pauses", until: waiting("c", "ImagePullBackOff"),
			spec: image(host+"/nothere:1", ""),
			check: func(t *testing.T, s sight) {
				message := s.Status(t, "c").State.Waiting.Message
				require.Contains(t, message, "Back-off pulling image \""+host+"/nothere:1\"")
				require.Contains(t, message, "ErrImagePull")
				require.Equal(t, host+"/nothere:1", s.Status(t, "c").Image)
				require.Empty(t, s.Status(t, "c").ImageID)
			},
		},
		{
			name: "one container's image does not hold up another container", until: waiting("c", "ImagePullBackOff"),
			spec: "  containers:\n  - {name: c, image: " + host + "/broken/image:1}\n  - {name: d, image: KK, args: [sleep, forever]}\n",
			check: func(t *testing.T, s sight) {
				require.NotNil(t, s.Status(t, "d").State.Running)
				require.Equal(t, corev1.PodPending, s.Pod.Status.Phase)
			},
		},
	})
}

func TestObserveTheProcess(t *testing.T) {
	observe(t, Options{}, []observation{
		{
			name: "without command and args the image's own program runs",
			spec: "  restartPolicy: Never\n  containers: [{name: c, image: KK}]\n", until: inPhase(corev1.PodFailed),
			check: func(t *testing.T, s sight) {
				require.EqualValues(t, 64, s.exitOf(t, "c").ExitCode)
				require.Contains(t, strings.Join(s.Lines(t, "c"), " "), "no command")
			},
		},
		{
			name: "command takes the place of the image's program and arguments",
			spec: "  containers: [{name: c, image: KK, command: [/kk, look, there]}]\n",
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"/kk", "look", "there"}, s.Report.Args)
			},
		},
		{
			name:  "the working directory is the image's unless another is given",
			spec:  "  containers: [{name: c, image: KK, args: [look]}]\n",
			check: func(t *testing.T, s sight) { require.Equal(t, "/", s.Report.Dir) },
		},
		{
			name:  "a working directory that is not there is made",
			spec:  "  containers: [{name: c, image: KK, args: [look], workingDir: /not/there}]\n",
			check: func(t *testing.T, s sight) { require.Equal(t, "/not/there", s.Report.Dir) },
		},
		{
			name:  "without a terminal there is none",
			spec:  "  containers: [{name: c, image: KK, args: [look]}]\n",
			check: func(t *testing.T, s sight) { require.False(t, s.Report.Terminal) },
		},
		{
			name: "tty gives the container a terminal",
			spec: "  containers: [{name: c, image: KK, args: [look], tty: true, stdin: true}]\n",
			check: func(t *testing.T, s sight) {
				require.True(t, s.Asked(t, "c").Config.Tty)
				require.True(t, s.Report.Terminal)
				require.Equal(t, "xterm", s.Report.Env["TERM"])
			},
		},
		{
			name:  "without stdin there is nothing to read",
			spec:  "  containers: [{name: c, image: KK, args: [seq, cat, /dev/stdin, \",\", print, over]}]\n",
			check: func(t *testing.T, s sight) { require.Equal(t, []string{"over 1"}, s.Lines(t, "c")) },
		},
		{
			name:  "stdin stays open until somebody writes to it",
			spec:  "  containers: [{name: c, image: KK, args: [seq, cat, /dev/stdin, \",\", print, over], stdin: true, stdinOnce: true}]\n",
			until: runs,
			check: func(t *testing.T, s sight) {
				require.True(t, s.Asked(t, "c").Config.Stdin)
				require.True(t, s.Asked(t, "c").Config.StdinOnce)
				Stays(t, time.Second, func() error {
					if got := s.Lines(t, "c"); len(got) > 0 {
						return fmt.Errorf("it has read the end of its input: %v", got)
					}
					return nil
				})
			},
		},
		{
			name: "each start has a log file of its own",
			spec: "  restartPolicy: OnFailure\n  volumes: [{name: v, emptyDir: {}}]\n  containers:\n" + with("c", `[first, "1", /v/f, "1", print, twice]`),
			check: func(t *testing.T, s sight) {
				require.True(t, strings.HasSuffix(s.Container(t, "c").LogPath, "/c/1.log"), s.Container(t, "c").LogPath)
				require.Equal(t, []string{"twice 1"}, s.Lines(t, "c"))
			},
		},
	})
}

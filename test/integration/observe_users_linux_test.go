package integration_test

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// imageOf makes the demo image with a user, whom its files know: bob is 1500, in group
// 1500 and in group staff, 1600. It returns the image's reference.
func imageOf(t *testing.T, tag, user string) string {
	t.Helper()
	from, err := name.ParseReference(the.kk, name.Insecure)
	require.NoError(t, err)
	to, err := name.ParseReference(strings.TrimSuffix(the.kk, ":1")+":user-"+tag, name.Insecure)
	require.NoError(t, err)
	image, err := remote.Image(from)
	require.NoError(t, err)

	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for file, text := range map[string]string{
		"etc/passwd": "root:x:0:0::/:\nbob:x:1500:1500::/:\n",
		"etc/group":  "root:x:0:\nbob:x:1500:\nstaff:x:1600:bob\n",
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: file, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	require.NoError(t, err)
	image, err = mutate.AppendLayers(image, layer)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config.Config.User = user
	image, err = mutate.Config(image, config.Config)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, image))
	return to.String()
}

// withImage is a pod whose container c looks around from another image.
func withImage(image, more, container string) string {
	return strings.Replace(looks(more, container), "image: KK", "image: "+image, 1)
}

// user is an observation of who a container runs as. groups are supplemental ones;
// whether its own group is among them is the runtime's matter.
func user(name, spec string, uid, gid int, groups ...int) observation {
	return observation{name: name, spec: spec, check: func(t *testing.T, s sight) { userIs(t, s, "c", uid, gid, groups...) }}
}

func userIs(t *testing.T, s sight, container string, uid, gid int, groups ...int) {
	t.Helper()
	r := s.Reports[container]
	require.Equal(t, uid, r.UID)
	require.Equal(t, gid, r.GID)
	more := slices.DeleteFunc(slices.Clone(r.Groups), func(g int) bool { return g == gid })
	require.Equal(t, groups, append([]int(nil), more...), "supplemental groups of %v", r.Groups)
}

// rootRefused is an observation of a container that is not started, since it would
// or could run as root.
func rootRefused(name, spec, message string) observation {
	return observation{
		name: name, spec: spec, until: waiting("c", "CreateContainerConfigError"),
		check: func(t *testing.T, s sight) {
			got := s.Status(t, "c")
			require.Contains(t, got.State.Waiting.Message, message)
			require.Contains(t, got.State.Waiting.Message, "container: c")
			require.Empty(t, containers(t, s.Name, "c"), "the runtime was asked")
			s.Warned(t, "Failed", message)
		},
	}
}

func TestObserveUsers(t *testing.T) {
	byNumber, byName, root, unknown := imageOf(t, "number", "1500"), imageOf(t, "name", "bob"), imageOf(t, "root", "0"), imageOf(t, "unknown", "nobody")
	strict := refusal("supplementalGroupsPolicy Strict on a runtime that can't", withImage(byNumber, "  securityContext: {supplementalGroupsPolicy: Strict}", ""),
		"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node")
	if !strings.HasPrefix(the.daemon.Version(), "1.") {
		strict = user("supplementalGroupsPolicy Strict leaves out the image's groups",
			withImage(byNumber, "  securityContext: {supplementalGroupsPolicy: Strict, supplementalGroups: [4001]}", ""), 1500, 1500, 4001)
	}
	observe(t, Options{}, []observation{
		user("an image without a user runs as root", looks("", ""), 0, 0),
		user("runAsUser of the pod", looks("  securityContext: {runAsUser: 4000}", ""), 4000, 0),
		user("runAsUser of the container goes before the pod's", looks("  securityContext: {runAsUser: 4000}", "    securityContext: {runAsUser: 4002}\n"), 4002, 0),
		user("runAsUser 0 is a user, too", looks("  securityContext: {runAsUser: 4000}", "    securityContext: {runAsUser: 0}\n"), 0, 0),
		user("runAsGroup of the pod, with a user", looks("  securityContext: {runAsUser: 4000, runAsGroup: 4003}", ""), 4000, 4003),
		user("runAsGroup without a user", looks("  securityContext: {runAsGroup: 4003}", ""), 0, 4003),
		user("runAsGroup of the container goes before the pod's", looks("  securityContext: {runAsUser: 4000, runAsGroup: 4003}", "    securityContext: {runAsGroup: 4004}\n"), 4000, 4004),
		user("the image's user by number, with the groups that the image's files give him", withImage(byNumber, "", ""), 1500, 1500, 1600),
		user("the image's user by name", withImage(byName, "", ""), 1500, 1500, 1600),
		user("runAsUser goes before the image's user", withImage(byName, "  securityContext: {runAsUser: 4000}", ""), 4000, 0),
		user("runAsGroup with the image's user", withImage(byNumber, "  securityContext: {runAsGroup: 4003}", ""), 1500, 4003, 1600),
		user("supplementalGroups", looks("  securityContext: {runAsUser: 4000, supplementalGroups: [4005, 4006]}", ""), 4000, 0, 4005, 4006),
		user("fsGroup is a group of every process", looks("  securityContext: {runAsUser: 4000, fsGroup: 4007}", ""), 4000, 0, 4007),
		user("fsGroup and supplementalGroups", looks("  securityContext: {runAsUser: 4000, runAsGroup: 4003, fsGroup: 4007, supplementalGroups: [4005]}", ""), 4000, 4003, 4005, 4007),
		user("supplementalGroupsPolicy Merge adds the image's groups", withImage(byNumber, "  securityContext: {supplementalGroupsPolicy: Merge, supplementalGroups: [4005]}", ""), 1500, 1500, 1600, 4005),
		strict,
		{
			name: "every container is somebody of its own",
			spec: looks("  securityContext: {runAsUser: 4000, fsGroup: 4007}\n  initContainers: [{name: i, image: KK, args: [look], securityContext: {runAsUser: 4001}}]",
				"  - {name: d, image: KK, args: [look], securityContext: {runAsUser: 4002, runAsGroup: 4003}}\n"),
			check: func(t *testing.T, s sight) {
				userIs(t, s, "i", 4001, 0, 4007)
				userIs(t, s, "c", 4000, 0, 4007)
				userIs(t, s, "d", 4002, 4003, 4007)
			},
		},
		{
			name: "the status says who the container runs as, where the runtime does",
			spec: looks("  securityContext: {runAsUser: 4000, runAsGroup: 4003, supplementalGroups: [4005]}", ""),
			check: func(t *testing.T, s sight) {
				got := s.Status(t, "c").User
				if strings.HasPrefix(the.daemon.Version(), "1.") {
					require.Nil(t, got)
					return
				}
				require.Equal(t, &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 4000, GID: 4003, SupplementalGroups: []int64{4003, 4005}}}, got)
			},
		},
		{
			name: "the sandbox runs as the pod's user",
			spec: looks("  securityContext: {runAsUser: 4000, runAsGroup: 4003, supplementalGroups: [4005], fsGroup: 4007}", "    securityContext: {runAsUser: 4002}\n"),
			check: func(t *testing.T, s sight) {
				sc := s.SandboxInfo(t).Config.Linux.SecurityContext
				require.EqualValues(t, 4000, sc.GetRunAsUser().GetValue())
				require.EqualValues(t, 4003, sc.GetRunAsGroup().GetValue())
				require.ElementsMatch(t, []int64{4005, 4007}, sc.SupplementalGroups)
			},
		},

		user("runAsNonRoot with a runAsUser that is not root", looks("  securityContext: {runAsNonRoot: true, runAsUser: 4000}", ""), 4000, 0),
		user("runAsNonRoot with an image of a numbered user", withImage(byNumber, "  securityContext: {runAsNonRoot: true}", ""), 1500, 1500, 1600),
		user("runAsNonRoot: false of the container goes before the pod's", looks("  securityContext: {runAsNonRoot: true}", "    securityContext: {runAsNonRoot: false}\n"), 0, 0),
		user("runAsUser tells who a named user of the image is", withImage(byName, "  securityContext: {runAsNonRoot: true, runAsUser: 1500}", ""), 1500, 1500, 1600),
		rootRefused("runAsNonRoot with runAsUser 0", withImage(byNumber, "  securityContext: {runAsNonRoot: true}", "    securityContext: {runAsUser: 0}\n"),
			"container's runAsUser breaks non-root policy"),
		rootRefused("runAsNonRoot with an image without a user", looks("", "    securityContext: {runAsNonRoot: true}\n"), "container has runAsNonRoot and image will run as root"),
		rootRefused("runAsNonRoot with an image whose user is 0", withImage(root, "  securityContext: {runAsNonRoot: true}", ""), "container has runAsNonRoot and image will run as root"),
		rootRefused("runAsNonRoot with an image whose user has only a name", withImage(byName, "  securityContext: {runAsNonRoot: true}", ""),
			"container has runAsNonRoot and image has non-numeric user (bob), cannot verify user is non-root"),
		{
			name:  "runAsNonRoot holds for init containers",
			spec:  looks("  securityContext: {runAsNonRoot: true, runAsUser: 4000}\n  initContainers: [{name: i, image: KK, args: [look], securityContext: {runAsUser: 0}}]", ""),
			until: waiting("i", "CreateContainerConfigError"),
			check: func(t *testing.T, s sight) {
				require.Contains(t, s.Status(t, "i").State.Waiting.Message, "container's runAsUser breaks non-root policy")
				require.Equal(t, "PodInitializing", s.Status(t, "c").State.Waiting.Reason)
				require.Empty(t, containers(t, s.Name, ""))
			},
		},
		{
			name:  "an image whose user is in none of its files can't start, in the runtime's words",
			spec:  withImage(unknown, "", ""),
			until: waiting("c", "CreateContainerError"),
			check: func(t *testing.T, s sight) { require.Contains(t, s.Status(t, "c").State.Waiting.Message, "user") },
		},
	})
}

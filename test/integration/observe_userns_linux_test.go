package integration_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownUsers is an observation of a pod with users of its own, where the runtime has
// them (it needs runc 1.2 and file systems with ID-mapped mounts). Elsewhere the
// pod must not run, as root of the node, and an event says why.
func ownUsers(t *testing.T, name, spec string, check func(t *testing.T, s sight)) observation {
	if can(t).UserNamespaces {
		return observation{name: name, spec: spec, check: check}
	}
	return observation{name: name + ", which this runtime can't do", spec: spec, until: pending, check: func(t *testing.T, s sight) {
		s.Warned(t, "FailedCreatePodSandBox", "can't set `spec.hostUsers: false`, runtime does not support user namespaces")
		require.Empty(t, sandboxes(t, s.Name))
	}}
}

func TestObserveUserNamespaces(t *testing.T) {
	const own = "  hostUsers: false\n"
	observe(t, Options{}, []observation{
		ownUsers(t, "hostUsers: false, root of the pod is nobody of the node", looks(own, "  - {name: d, image: KK, args: [look]}\n"), func(t *testing.T, s sight) {
			require.NotEqual(t, ownNamespace(t, "user"), s.Report.Namespaces["user"])
			require.Equal(t, 0, s.Report.UID)
			m := strings.Fields(s.Report.UIDMap)
			require.Len(t, m, 3, "one mapping")
			require.Equal(t, "0", m[0])
			first, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			require.True(t, first >= 65536 && first%65536 == 0, "first user %d", first)
			require.Equal(t, "65536", m[2])
			require.Equal(t, s.Report.UIDMap, s.Reports["d"].UIDMap)
		}),
		ownUsers(t, "another pod has other users", looks(own, "    args: [look, /etc/hosts]\n"), func(t *testing.T, s sight) {
			first, err := s.agent.Pod(observationName(0))
			require.NoError(t, err)
			neighbour := sight{agent: s.agent, Name: observationName(0), Pod: first}
			neighbour.readReports(t)
			require.NotEmpty(t, neighbour.Report.UIDMap)
			require.NotEqual(t, neighbour.Report.UIDMap, s.Report.UIDMap)
			require.Zero(t, s.Report.Files["/etc/hosts"].UID, "the node's files are the pod's root's")
		}),
		ownUsers(t, "volumes of a pod with users of its own belong to them", looks(own+"  securityContext: {runAsUser: 1000, fsGroup: 2000}\n  volumes: [{name: v, emptyDir: {}}, {name: w, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]",
			"    args: [look, /v, /w/name]\n    volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}]\n"), func(t *testing.T, s sight) {
			v, w := s.Report.Files["/v"], s.Report.Files["/w/name"]
			require.Equal(t, []int{0, 2000}, []int{v.UID, v.GID})
			require.True(t, v.Writable)
			require.Equal(t, []int{0, 2000}, []int{w.UID, w.GID})
			require.Equal(t, s.Pod.Name, w.Content)
		}),
		ownUsers(t, "procMount Unmasked, in a pod with users of its own", looks(own, "    securityContext: {procMount: Unmasked}\n"), func(t *testing.T, s sight) {
			for _, path := range append(maskedPaths(), readonlyPaths()...) {
				_, over := s.Report.Mount(path)
				require.False(t, over, "something is mounted over %s", path)
			}
		}),
		ownUsers(t, "a sysctl of the network, in a pod with users of its own",
			looks(own+"  securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"78\"}]}", "    args: [look, /proc/sys/net/ipv4/ip_unprivileged_port_start]\n"),
			func(t *testing.T, s sight) { sysctlIs(t, s, "net/ipv4/ip_unprivileged_port_start", "78") }),
	})
}

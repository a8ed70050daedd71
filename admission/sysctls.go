package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// namespace of the kernel that a sysctl belongs to, in the words of the messages.
type namespace string

const (
	ipcNamespace  namespace = "IPC"
	netNamespace  namespace = "Net"
	utsNamespace  namespace = "UTS"
	userNamespace namespace = "User"
)

// safe sysctls are allowed on every node: they change nothing outside of the pod.
// since is the kernel that gave each network namespace its own, 0.0 for all that
// run containers.
var safe = []struct {
	name  string
	since release
}{
	{"kernel.shm_rmid_forced", release{}},
	{"net.ipv4.ip_local_port_range", release{}},
	{"net.ipv4.tcp_syncookies", release{}},
	{"net.ipv4.ping_group_range", release{}},
	{"net.ipv4.ip_unprivileged_port_start", release{}},
	{"net.ipv4.ip_local_reserved_ports", release{3, 16}},
	{"net.ipv4.tcp_keepalive_time", release{4, 5}},
	{"net.ipv4.tcp_keepalive_intvl", release{4, 5}},
	{"net.ipv4.tcp_keepalive_probes", release{4, 5}},
	{"net.ipv4.tcp_fin_timeout", release{4, 6}},
	{"net.ipv4.tcp_notsent_lowat", release{4, 6}},
	{"net.ipv4.tcp_rmem", release{4, 15}},
	{"net.ipv4.tcp_wmem", release{4, 15}},
	{"net.ipv4.tcp_slow_start_after_idle", release{4, 15}},
}

// namespaced are the sysctls of which each namespace of a kind has its own. A star
// stands for any end.
var namespaced = []struct {
	pattern string
	ns      namespace
}{
	{"kernel.shm*", ipcNamespace},
	{"kernel.msg*", ipcNamespace},
	{"kernel.sem", ipcNamespace},
	{"fs.mqueue.*", ipcNamespace},
	{"net.*", netNamespace},
	{"kernel.domainname", utsNamespace},
	{"user.*", userNamespace},
}

// Sysctls refuses a pod with a sysctl that is neither safe nor in allowUnsafe, which
// has names, and beginnings of names that end in a star. kernel is the release of
// the node, as uname has it; with one that can't be read the sysctls that only newer
// kernels have in each namespace are not safe. The error is for a pattern that would
// let a pod change the host.
func Sysctls(allowUnsafe []string, kernel string) (Admitter, error) {
	var allowed []string
	for _, pattern := range allowUnsafe {
		pattern = podspec.SysctlName(pattern)
		if name := strings.TrimSuffix(strings.TrimSuffix(pattern, "*"), "."); !isSysctl(name) {
			return nil, fmt.Errorf("allowedUnsafeSysctls: %q is neither a sysctl nor the beginning of one with a star at its end", pattern)
		}
		if _, ok := namespaceOf(pattern); !ok {
			return nil, fmt.Errorf("allowedUnsafeSysctls: the sysctls %q are not known to be namespaced: a pod would set them for the whole host", pattern)
		}
		allowed = append(allowed, pattern)
	}
	node := parseRelease(kernel)
	for _, s := range safe {
		if node.atLeast(s.since) {
			allowed = append(allowed, s.name)
		}
	}
	return Func(func(a Attributes) Decision {
		if a.Pod.Spec.SecurityContext == nil {
			return yes()
		}
		for _, s := range a.Pod.Spec.SecurityContext.Sysctls {
			if wrong := sysctlProblem(a.Pod, podspec.SysctlName(s.Name), allowed); wrong != "" {
				return no(ReasonSysctl, "forbidden sysctl: "+wrong)
			}
		}
		return yes()
	}), nil
}

func sysctlProblem(pod *corev1.Pod, name string, allowed []string) string {
	if !isSysctl(name) || !slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, name) }) {
		return fmt.Sprintf("%q not allowlisted", name)
	}
	ns, _ := namespaceOf(name) // what is allowed has one
	hosts := map[namespace]bool{
		ipcNamespace:  pod.Spec.HostIPC,
		netNamespace:  pod.Spec.HostNetwork,
		userNamespace: pod.Spec.HostUsers == nil || *pod.Spec.HostUsers,
	}
	if hosts[ns] {
		return fmt.Sprintf("%q not allowed with host %s enabled", name, ns)
	}
	return ""
}

// namespaceOf a sysctl, or of all that a pattern stands for.
func namespaceOf(pattern string) (namespace, bool) {
	for _, n := range namespaced {
		if matches(n.pattern, pattern) {
			return n.ns, true
		}
	}
	return "", false
}

// isSysctl is false for a name that a runtime could take for a path to elsewhere.
func isSysctl(name string) bool {
	parts := strings.Split(strings.ReplaceAll(name, "/", "."), ".")
	return !slices.Contains(parts, "") && !strings.Contains(name, "*")
}

func matches(pattern, name string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, start)
	}
	return pattern == name
}

// release is the part of a kernel's version that features go by.
type release struct{ major, minor int }

func (r release) atLeast(o release) bool {
	return r.major > o.major || r.major == o.major && r.minor >= o.minor
}

// parseRelease reads the beginning of a release such as 6.1.0-18-amd64. One that
// can't be read is older than all.
func parseRelease(s string) release {
	major, rest, ok := strings.Cut(s, ".")
	if !ok {
		return release{}
	}
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		rest = rest[:i]
	}
	a, err1 := strconv.ParseUint(major, 10, 16)
	b, err2 := strconv.ParseUint(rest, 10, 16)
	if err1 != nil || err2 != nil {
		return release{}
	}
	return release{int(a), int(b)}
}

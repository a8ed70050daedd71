package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/admission"
)

func sysctl(names ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		for _, name := range names {
			pod.Spec.SecurityContext.Sysctls = append(pod.Spec.SecurityContext.Sysctls, corev1.Sysctl{Name: name, Value: "1"})
		}
	}
}

func TestSysctls(t *testing.T) {
	onHost := func(net, ipc bool) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.HostNetwork, pod.Spec.HostIPC = net, ipc }
	}
	users := func(host bool) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.HostUsers = &host } }
	unsafe := []string{"kernel.msg*", "net/core/*", "kernel.sem", "user.max_user_namespaces", "kernel.domainname"}
	tests := []struct {
		name   string
		kernel string // "" for 6.1
		allow  []string
		pod    *corev1.Pod
		want   string // the message behind "forbidden sysctl: ", "" for yes
	}{
		{name: "no security context", pod: newPod("a")},
		{name: "no sysctl", pod: newPod("a", sysctl())},
		{name: "safe ones", pod: newPod("a", sysctl("kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies", "net.ipv4.ip_unprivileged_port_start"))},
		{name: "a safe one with slashes", pod: newPod("a", sysctl("net/ipv4/tcp_syncookies"))},
		{name: "safe on newer kernels", pod: newPod("a", sysctl("net.ipv4.tcp_rmem", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout"))},
		{name: "4.15 is new enough", kernel: "4.15.0-213-generic", pod: newPod("a", sysctl("net.ipv4.tcp_rmem"))},
		{name: "4.14 is not", kernel: "4.14.322", pod: newPod("a", sysctl("net.ipv4.tcp_rmem")), want: `"net.ipv4.tcp_rmem" not allowlisted`},
		{name: "3.16 for reserved ports", kernel: "3.16", pod: newPod("a", sysctl("net.ipv4.ip_local_reserved_ports"))},
		{name: "but not for keepalive", kernel: "3.16", pod: newPod("a", sysctl("net.ipv4.tcp_keepalive_intvl")), want: `"net.ipv4.tcp_keepalive_intvl" not allowlisted`},
		{name: "a kernel that can't be read", kernel: "linux", pod: newPod("a", sysctl("net.ipv4.ip_local_reserved_ports")), want: `"net.ipv4.ip_local_reserved_ports" not allowlisted`},
		{name: "the others are safe on it", kernel: "linux", pod: newPod("a", sysctl("net.ipv4.ping_group_range"))},
		{name: "an unsafe one", pod: newPod("a", sysctl("net.ipv4.tcp_syncookies", "kernel.msgmax")), want: `"kernel.msgmax" not allowlisted`},
		{name: "one of the host", pod: newPod("a", sysctl("vm.swappiness")), want: `"vm.swappiness" not allowlisted`},
		{name: "allowed by name", allow: unsafe, pod: newPod("a", sysctl("kernel.sem"))},
		{name: "not allowed by another name", allow: unsafe, pod: newPod("a", sysctl("kernel.sem2")), want: `"kernel.sem2" not allowlisted`},
		{name: "allowed by its beginning", allow: unsafe, pod: newPod("a", sysctl("kernel.msgmax", "net.core.somaxconn", "net/core/somaxconn"))},
		{name: "not a path to elsewhere", allow: []string{"net.*"}, pod: newPod("a", sysctl("net.//.kernel.panic")), want: `"net.//.kernel.panic" not allowlisted`},
		{name: "not the pattern itself", allow: []string{"net.*"}, pod: newPod("a", sysctl("net.*")), want: `"net.*" not allowlisted`},
		{name: "a safe one of the host's network", pod: newPod("a", sysctl("net.ipv4.tcp_syncookies"), onHost(true, false)), want: `"net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{name: "an allowed one of the host's network", allow: unsafe, pod: newPod("a", sysctl("net.core.somaxconn"), onHost(true, false)), want: `"net.core.somaxconn" not allowed with host Net enabled`},
		{name: "one of the host's IPC", allow: unsafe, pod: newPod("a", sysctl("kernel.msgmax"), onHost(false, true)), want: `"kernel.msgmax" not allowed with host IPC enabled`},
		{name: "the other namespace is the host's", pod: newPod("a", sysctl("kernel.shm_rmid_forced"), onHost(true, false))},
		{name: "one of the host's users", allow: unsafe, pod: newPod("a", sysctl("user.max_user_namespaces")), want: `"user.max_user_namespaces" not allowed with host User enabled`},
		{name: "and said aloud", allow: unsafe, pod: newPod("a", sysctl("user.max_user_namespaces"), users(true)), want: `"user.max_user_namespaces" not allowed with host User enabled`},
		{name: "one of the pod's users", allow: unsafe, pod: newPod("a", sysctl("user.max_user_namespaces"), users(false))},
		{name: "the domain name, which is always the pod's", allow: unsafe, pod: newPod("a", sysctl("kernel.domainname"), onHost(true, true))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.kernel == "" {
				tt.kernel = "6.1.0-18-amd64"
			}
			admit, err := admission.Sysctls(tt.allow, tt.kernel)
			if err != nil {
				t.Fatal(err)
			}
			d := admit.Admit(admission.Attributes{Pod: tt.pod})
			switch {
			case tt.want == "" && !d.OK:
				t.Errorf("refused: %+v", d)
			case tt.want != "" && (d.OK || d.Reason != "SysctlForbidden" || d.Message != "forbidden sysctl: "+tt.want):
				t.Errorf("got %+v\nwant %s", d, tt.want)
			}
		})
	}
}

func TestPatternsThatReachTheHost(t *testing.T) {
	for pattern, want := range map[string]string{
		"vm.swappiness":      "not known to be namespaced",
		"kernel.*":           "not known to be namespaced",
		"kernel.s*":          "not known to be namespaced",
		"net*":               "not known to be namespaced",
		"*":                  "neither a sysctl nor",
		"":                   "neither a sysctl nor",
		"net.*.forwarding":   "neither a sysctl nor",
		"net..core.*":        "neither a sysctl nor",
		"kernel.shm**":       "neither a sysctl nor",
		"fs.mqueue":          "not known to be namespaced",
		"kernel.domainname*": "not known to be namespaced",
	} {
		if _, err := admission.Sysctls([]string{"kernel.sem", pattern}, ""); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+pattern+`"`) {
			t.Errorf("%q: error %v, want %q", pattern, err, want)
		}
	}
	for _, pattern := range []string{"net.*", "net/core/*", "kernel.shm*", "kernel.shmmax", "kernel.msg*", "kernel.sem", "fs.mqueue.*", "user.*", "kernel.domainname"} {
		if _, err := admission.Sysctls([]string{pattern}, ""); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func FuzzSysctls(f *testing.F) {
	f.Add("net.*", "6.1.0", "net/core/somaxconn")
	f.Add("kernel.msg*", "4.x", "kernel.msg//x")
	f.Fuzz(func(t *testing.T, pattern, kernel, name string) {
		admit, err := admission.Sysctls([]string{pattern}, kernel)
		if err != nil {
			return
		}
		d := admit.Admit(admission.Attributes{Pod: newPod("a", sysctl(name))})
		space := false // every sysctl that a pod may set is in some namespace
		for _, start := range []string{"net", "kernel", "fs", "user"} {
			space = space || strings.HasPrefix(name, start+".") || strings.HasPrefix(name, start+"/")
		}
		if d.OK && (!space || strings.Contains(name, "..") || strings.Contains(name, "//")) {
			t.Errorf("pattern %q on %q allows %q", pattern, kernel, name)
		}
	})
}

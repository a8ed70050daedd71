package podnet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podnet"
)

func newPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1"}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func policy(p corev1.DNSPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.DNSPolicy = p }
}

func onHostNetwork(pod *corev1.Pod) { pod.Spec.HostNetwork = true }

func own(c corev1.PodDNSConfig) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.DNSConfig = &c }
}

func opt(name string, value ...string) corev1.PodDNSConfigOption {
	o := corev1.PodDNSConfigOption{Name: name}
	if len(value) > 0 {
		o.Value = &value[0]
	}
	return o
}

// write makes a file and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open is a node; its events are written to the returned list as "reason: message",
// with the pod's name before those about a pod.
func open(t *testing.T, cfg podnet.Config) (*podnet.Net, *[]string) {
	t.Helper()
	events := &[]string{}
	cfg.Hooks.Event = func(pod *corev1.Pod, eventType, reason, message string) {
		if eventType != corev1.EventTypeWarning {
			t.Errorf("event of type %s", eventType)
		}
		if pod != nil {
			reason = pod.Name + " " + reason
		}
		*events = append(*events, reason+": "+message)
	}
	n, err := podnet.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return n, events
}

func TestDNSByPolicy(t *testing.T) {
	const host = "nameserver 192.0.2.53\nsearch corp.example example\noptions timeout:3 rotate\n"
	cluster := podnet.Config{ClusterDomain: "cluster.local", ClusterDNS: []string{"10.96.0.10"}}
	noDomain := podnet.Config{ClusterDNS: []string{"10.96.0.10"}}
	bare := podnet.Config{}
	type want = podnet.Settings
	ofHost := want{[]string{"192.0.2.53"}, []string{"corp.example", "example"}, []string{"timeout:3", "rotate"}}
	ofCluster := want{[]string{"10.96.0.10"},
		[]string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example", "example"}, []string{"ndots:5"}}
	tests := []struct {
		name   string
		cfg    podnet.Config
		pod    *corev1.Pod
		noHost bool // the node has no resolvConf
		want   want
		events int
	}{
		{name: "ClusterFirst", cfg: cluster, pod: newPod(policy(corev1.DNSClusterFirst)), want: ofCluster},
		{name: "no policy", cfg: cluster, pod: newPod(), want: ofCluster},
		{name: "a policy that nobody knows", cfg: cluster, pod: newPod(policy("Best")), want: ofCluster},
		{name: "ClusterFirst on the host network is Default", cfg: cluster, pod: newPod(policy(corev1.DNSClusterFirst), onHostNetwork), want: ofHost},
		{name: "ClusterFirstWithHostNet", cfg: cluster, pod: newPod(policy(corev1.DNSClusterFirstWithHostNet), onHostNetwork), want: ofCluster},
		{name: "ClusterFirstWithHostNet off it", cfg: cluster, pod: newPod(policy(corev1.DNSClusterFirstWithHostNet)), want: ofCluster},
		{name: "Default", cfg: cluster, pod: newPod(policy(corev1.DNSDefault)), want: ofHost},
		{name: "None", cfg: cluster, pod: newPod(policy(corev1.DNSNone))},
		{name: "without a cluster domain", cfg: noDomain, pod: newPod(policy(corev1.DNSClusterFirst)),
			want: want{[]string{"10.96.0.10"}, []string{"corp.example", "example"}, []string{"ndots:5"}}},
		{name: "without cluster DNS", cfg: bare, pod: newPod(policy(corev1.DNSClusterFirst)), want: ofHost, events: 2},
		{name: "without cluster DNS on the host network", cfg: bare, pod: newPod(policy(corev1.DNSClusterFirst), onHostNetwork), want: ofHost},
		{name: "without cluster DNS, WithHostNet", cfg: bare, pod: newPod(policy(corev1.DNSClusterFirstWithHostNet), onHostNetwork), want: ofHost, events: 2},
		{name: "without a host's file", cfg: cluster, pod: newPod(policy(corev1.DNSClusterFirst)), noHost: true,
			want: want{[]string{"10.96.0.10"}, []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}, []string{"ndots:5"}}},
		{name: "Default without a host's file", cfg: bare, pod: newPod(policy(corev1.DNSDefault)), noHost: true,
			want: want{[]string{"127.0.0.1"}, []string{"."}, nil}},
		{name: "Default without a host's file on a node with two families", pod: newPod(policy(corev1.DNSDefault)), noHost: true,
			cfg:  podnet.Config{NodeIPs: []string{"2001:db8::1", "192.0.2.1", "192.0.2.2"}},
			want: want{[]string{"::1", "127.0.0.1"}, []string{"."}, nil}},
		{name: "None with settings of its own", cfg: cluster,
			pod:  newPod(policy(corev1.DNSNone), own(corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"a"}, Options: []corev1.PodDNSConfigOption{opt("ndots", "2"), opt("edns0")}})),
			want: want{[]string{"192.0.2.1"}, []string{"a"}, []string{"ndots:2", "edns0"}}},
		{name: "ClusterFirst with settings of its own", cfg: cluster,
			pod: newPod(own(corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10", "192.0.2.1"}, Searches: []string{"example", "a"}, Options: []corev1.PodDNSConfigOption{opt("edns0"), opt("ndots", "2")}})),
			want: want{[]string{"10.96.0.10", "192.0.2.1"},
				[]string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example", "example", "a"}, []string{"ndots:2", "edns0"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.noHost {
				tt.cfg.ResolvConf = write(t, host)
			}
			n, events := open(t, tt.cfg)
			for range 20 { // the order is always the same
				got, err := n.DNS(tt.pod)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, want{got.Servers, got.Searches, got.Options}, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
			}
			if len(*events) != tt.events {
				t.Errorf("events %q, want %d", *events, tt.events)
			}
		})
	}
}

func TestMissingClusterDNSIsSaidOfTheNodeAndThePod(t *testing.T) {
	n, events := open(t, podnet.Config{})
	for range 2 {
		if _, err := n.DNS(newPod()); err != nil {
			t.Fatal(err)
		}
	}
	const words = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
	want := []string{"MissingClusterDNS: " + words, `web MissingClusterDNS: pod: "web_shop(u-1)". ` + words}
	if diff := cmp.Diff(want, *events); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheSameWarningIsGivenOnceInTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, events := open(t, podnet.Config{})
		servers := corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"}}
		pod := newPod(policy(corev1.DNSNone), own(servers))
		for range 60 {
			if _, err := n.DNS(pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if len(*events) != 1 {
			t.Errorf("%d events in ten minutes, want 1", len(*events))
		}
		if _, err := n.DNS(pod); err != nil {
			t.Fatal(err)
		}
		if len(*events) != 2 {
			t.Errorf("%d events after ten minutes, want 2", len(*events))
		}
		if _, err := n.DNS(newPod(policy(corev1.DNSNone), own(servers), func(p *corev1.Pod) { p.UID = "u-2" })); err != nil {
			t.Fatal(err)
		}
		if len(*events) != 3 {
			t.Errorf("%d events, want one for another pod", len(*events))
		}
	})
}

func TestDNSErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	bad := write(t, "search a\nnameserver\n")
	large := write(t, strings.Repeat("#\n", 6<<20))
	for path, want := range map[string]string{
		missing: "open " + missing + ": no such file or directory (the node's setting resolvConf names the file)",
		bad:     "read the host's DNS settings from " + bad + ": line 2: nameserver without an address",
		large:   "it has more than 10485760 bytes",
	} {
		n, _ := open(t, podnet.Config{ResolvConf: path, ClusterDNS: []string{"10.96.0.10"}})
		for _, p := range []corev1.DNSPolicy{corev1.DNSDefault, corev1.DNSClusterFirst} {
			if got, err := n.DNS(newPod(policy(p))); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, %v\nwant %s", p, got, err, want)
			}
		}
		if _, err := n.DNS(newPod(policy(corev1.DNSNone))); err != nil {
			t.Errorf("a pod that takes nothing from the host: %v", err)
		}
	}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name, file string
		want       podnet.Settings
	}{
		{"empty", "", podnet.Settings{}},
		{"comments and other keywords", "# nameserver 1\n;nameserver 2\n; nameserver 3\ndomain d\nsortlist 1\n\n \t\nrubbish\n", podnet.Settings{}},
		{"servers accumulate, as they are", "nameserver 192.0.2.1\n\tnameserver  fe80::1%eth0  # text\nnameserver 192.0.2.1", podnet.Settings{Servers: []string{"192.0.2.1", "fe80::1%eth0", "192.0.2.1"}}},
		{"the last search line counts", "search a b\nsearch c. . d.e.\r\n", podnet.Settings{Searches: []string{"c", "d.e"}}},
		{"an empty search line is the last one, too", "search a\nsearch\n", podnet.Settings{}},
		{"options accumulate, later ones win", "options ndots:1 rotate\noptions timeout:2 ndots:3", podnet.Settings{Options: []string{"ndots:3", "rotate", "timeout:2"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := podnet.Parse(tt.file)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	base := podnet.Settings{Servers: []string{"a", "b", "a"}, Searches: []string{"x", "y", "x"}, Options: []string{"ndots:5", "rotate", "timeout:1"}}
	tests := []struct {
		name string
		own  *corev1.PodDNSConfig
		want podnet.Settings
	}{
		{"nothing: duplicates go", nil, podnet.Settings{Servers: []string{"a", "b"}, Searches: []string{"x", "y"}, Options: []string{"ndots:5", "rotate", "timeout:1"}}},
		{"behind, without duplicates", &corev1.PodDNSConfig{Nameservers: []string{"c", "a"}, Searches: []string{"z", "y"}},
			podnet.Settings{Servers: []string{"a", "b", "c"}, Searches: []string{"x", "y", "z"}, Options: []string{"ndots:5", "rotate", "timeout:1"}}},
		{"options of the pod win in place, also without a value", &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{opt("edns0"), opt("timeout", ""), opt("ndots", "1"), opt("ndots", "2")}},
			podnet.Settings{Servers: []string{"a", "b"}, Searches: []string{"x", "y"}, Options: []string{"ndots:2", "rotate", "timeout", "edns0"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, podnet.Merge(base, tt.own), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if base.Servers[2] != "a" || base.Options[0] != "ndots:5" {
		t.Errorf("what is merged into has changed: %+v", base)
	}
}

func domains(n, size int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%0*d", size, i))
	}
	return list
}

func TestLimit(t *testing.T) {
	long := strings.Repeat("x", 254)
	tests := []struct {
		name              string
		servers, searches []string
		want              [2]int // how many are left
		cuts              []string
	}{
		{name: "nothing"},
		{name: "as much as there may be", servers: domains(3, 5), searches: domains(32, 63), want: [2]int{3, 32}},
		{name: "a server too many", servers: domains(4, 1), want: [2]int{3, 0},
			cuts: []string{"Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 0 1 2"}},
		{name: "a domain too many", searches: domains(33, 2), want: [2]int{0, 32},
			cuts: []string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(domains(32, 2), " ")}},
		{name: "a domain that is too long", searches: []string{"a", long, "b"}, want: [2]int{0, 2},
			cuts: []string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a b"}},
		{name: "long ones do not count", searches: append([]string{long}, domains(32, 2)...), want: [2]int{0, 32},
			cuts: []string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(domains(32, 2), " ")}},
		{name: "the longest line", searches: append(domains(15, 127), strings.Repeat("y", 128)), want: [2]int{0, 16}},
		{name: "a line one character longer", searches: append(domains(15, 127), strings.Repeat("y", 129), "z"), want: [2]int{0, 15},
			cuts: []string{"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " + strings.Join(domains(15, 127), " ")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, cuts := podnet.Limit(podnet.Settings{Servers: tt.servers, Searches: tt.searches, Options: []string{"o"}})
			if left := [2]int{len(got.Servers), len(got.Searches)}; left != tt.want || len(got.Options) != 1 {
				t.Errorf("left %v, want %v", left, tt.want)
			}
			if diff := cmp.Diff(tt.cuts, cuts); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckResolvConf(t *testing.T) {
	for name, tt := range map[string]struct {
		file, domain, want string
	}{
		"in order":                   {file: "nameserver 192.0.2.1\nsearch " + strings.Join(domains(29, 2), " "), domain: "cluster.local"},
		"three are the cluster's":    {file: "search " + strings.Join(domains(30, 2), " "), domain: "cluster.local", want: "the search line has 30 domains, pods get the first 29"},
		"without a cluster's":        {file: "search " + strings.Join(domains(32, 2), " ")},
		"too many":                   {file: "search " + strings.Join(domains(33, 2), " "), want: "the search line has 33 domains, pods get the first 32"},
		"a long domain":              {file: "search " + strings.Repeat("x", 254), want: "the search line has a domain of more than 253 characters, which pods do not get"},
		"a long line":                {file: "search " + strings.Join(domains(10, 250), " "), want: "the search line has 2509 characters, pods get the domains within the first 2048"},
		"bad":                        {file: "nameserver", want: "line 1: nameserver without an address"},
		"name server of the machine": {file: "nameserver 127.0.0.53"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, tt.file)
			n, events := open(t, podnet.Config{ResolvConf: path, ClusterDomain: tt.domain})
			err := n.CheckResolvConf()
			if tt.want == "" {
				if err != nil || len(*events) != 0 {
					t.Errorf("error %v, events %q", err, *events)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want %q and the file", err, tt.want)
			}
			if diff := cmp.Diff([]string{"CheckLimitsForResolvConf: " + err.Error()}, *events); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	n, events := open(t, podnet.Config{})
	if err := n.CheckResolvConf(); err != nil || len(*events) != 0 {
		t.Errorf("a node without a file: %v, %q", err, *events)
	}
}

func TestNewChecksTheServers(t *testing.T) {
	if _, err := podnet.New(podnet.Config{ClusterDNS: []string{"10.96.0.10", "dns.example"}}); err == nil || !strings.Contains(err.Error(), `"dns.example", want IP addresses`) {
		t.Errorf("error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"nameserver 192.0.2.1\nsearch a b.\noptions ndots:5 x\n", "nameserver", "options :\noptions", "search ...\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, file string) {
		s, err := podnet.Parse(file)
		if err != nil {
			return
		}
		s, _ = podnet.Limit(podnet.Merge(s, nil))
		if len(s.Servers) > 3 || len(s.Searches) > 32 || len(strings.Join(s.Searches, " ")) > 2048 {
			t.Errorf("%q is beyond the limits: %+v", file, s)
		}
		// What is written down again is read back.
		text := "search " + strings.Join(s.Searches, " ") + "\noptions " + strings.Join(s.Options, " ") + "\n"
		for _, server := range s.Servers {
			text += "nameserver " + server + "\n"
		}
		again, err := podnet.Parse(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for i := range s.Searches { // a dot at the end goes each time
			s.Searches[i] = strings.TrimSuffix(s.Searches[i], ".")
		}
		var kept []string
		for _, domain := range s.Searches {
			if domain != "" {
				kept = append(kept, domain)
			}
		}
		s.Searches = kept
		if diff := cmp.Diff(s, again, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-first +again):\n%s", text, diff)
		}
	})
}

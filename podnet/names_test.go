package podnet_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podnet"
)

func named(name string) func(*corev1.Pod)  { return func(p *corev1.Pod) { p.Name = name } }
func hostname(h string) func(*corev1.Pod)  { return func(p *corev1.Pod) { p.Spec.Hostname = h } }
func subdomain(s string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Subdomain = s } }
func override(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.HostnameOverride = &name }
}

func asFQDN(yes bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SetHostnameAsFQDN = &yes }
}

func TestHostname(t *testing.T) {
	x := strings.Repeat("x", 61)
	tests := []struct {
		name           string
		pod            *corev1.Pod
		noDomain       bool
		short, domain  string
		sandbox, error string // sandbox "" for the same as short
	}{
		{name: "the pod's name", pod: newPod(), short: "web"},
		{name: "a long name is cut", pod: newPod(named(x + "abc")), short: x + "ab"},
		{name: "and trimmed", pod: newPod(named(x + "-.c")), short: x},
		{name: "a name with nothing in it", pod: newPod(named(strings.Repeat("-", 64))), error: `hostname for pod "` + strings.Repeat("-", 64) + `" was invalid`},
		{name: "hostname", pod: newPod(hostname("db-0")), short: "db-0"},
		{name: "a hostname that is none", pod: newPod(hostname("db.0")), error: `pod Hostname "db.0" is not a valid DNS label: `},
		{name: "a long hostname", pod: newPod(hostname(x + "abc")), error: "is not a valid DNS label: must be no more than 63"},
		{name: "subdomain", pod: newPod(hostname("db-0"), subdomain("db")), short: "db-0", domain: "db.shop.svc.cluster.local"},
		{name: "subdomain without a cluster's", pod: newPod(subdomain("db")), noDomain: true, short: "web", domain: "db.shop.svc"},
		{name: "a subdomain that is none", pod: newPod(subdomain("Db")), error: `pod Subdomain "Db" is not a valid DNS label: `},
		{name: "FQDN", pod: newPod(subdomain("db"), asFQDN(true)), short: "web", domain: "db.shop.svc.cluster.local", sandbox: "web.db.shop.svc.cluster.local"},
		{name: "FQDN without a domain", pod: newPod(asFQDN(true)), short: "web"},
		{name: "no FQDN", pod: newPod(subdomain("db"), asFQDN(false)), short: "web", domain: "db.shop.svc.cluster.local"},
		{name: "override", pod: newPod(hostname("db-0"), subdomain("db"), override("a.example")), short: "a.example"},
		{name: "a long override is cut", pod: newPod(override(x + ".example")), short: x + ".e"},
		{name: "an override that is none", pod: newPod(override("a_b")), error: `pod HostnameOverride "a_b" is not a valid DNS subdomain: `},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := podnet.Config{ClusterDomain: "cluster.local"}
			if tt.noDomain {
				cfg.ClusterDomain = ""
			}
			n, _ := open(t, cfg)
			short, domain, err := n.Hostname(tt.pod)
			sandbox, err2 := n.SandboxHostname(tt.pod)
			if tt.error != "" {
				for _, err := range []error{err, err2} {
					if err == nil || !strings.Contains(err.Error(), tt.error) {
						t.Errorf("error %v, want %q", err, tt.error)
					}
				}
				if _, err := n.Hosts(tt.pod, nil); err == nil {
					t.Error("a pod with a bad name has a hosts file")
				}
				return
			}
			if tt.sandbox == "" {
				tt.sandbox = tt.short
			}
			if err != nil || err2 != nil || short != tt.short || domain != tt.domain || sandbox != tt.sandbox {
				t.Errorf("%q, %q, %q, %v, %v\nwant %q, %q, %q", short, domain, sandbox, err, err2, tt.short, tt.domain, tt.sandbox)
			}
		})
	}
}

func TestFQDNFitsIntoTheKernel(t *testing.T) {
	n, _ := open(t, podnet.Config{ClusterDomain: "cluster.local"})
	fqdn := func(size int) *corev1.Pod {
		return newPod(hostname(strings.Repeat("h", size-len(".db.shop.svc.cluster.local"))), subdomain("db"), asFQDN(true))
	}
	if got, err := n.SandboxHostname(fqdn(64)); err != nil || len(got) != 64 {
		t.Errorf("64 characters: %q, %v", got, err)
	}
	long := strings.Repeat("h", 39) + ".db.shop.svc.cluster.local"
	want := "failed to construct FQDN from pod hostname and cluster domain, FQDN " + long + " is too long (64 characters is the max, 65 characters requested)"
	if got, err := n.SandboxHostname(fqdn(65)); err == nil || err.Error() != want {
		t.Errorf("65 characters: %q, %v\nwant %s", got, err, want)
	}
}

func TestNoHostnameOnTheHostNetwork(t *testing.T) {
	n, _ := open(t, podnet.Config{})
	if got, err := n.SandboxHostname(newPod(onHostNetwork, hostname("Bad.Name"))); got != "" || err != nil {
		t.Errorf("host name %q, %v, want the host's", got, err)
	}
}

func TestHosts(t *testing.T) {
	const top = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	const hostTop = "# Kubernetes-managed hosts file (host network).\n"
	aliases := func(p *corev1.Pod) {
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"a", "b.example"}}, {IP: "fd00::7", Hostnames: []string{"c"}}}
	}
	const ofAliases = "\n# Entries added by HostAliases.\n192.0.2.7\ta\tb.example\nfd00::7\tc\n"
	tests := []struct {
		name string
		pod  *corev1.Pod
		node string
		want string
	}{
		{"one name per address", newPod(), "", top + "10.0.0.2\tweb\nfd00::2\tweb\n"},
		{"with a domain", newPod(subdomain("db"), hostname("db-0")), "", top + "10.0.0.2\tdb-0.db.shop.svc.cluster.local\tdb-0\nfd00::2\tdb-0.db.shop.svc.cluster.local\tdb-0\n"},
		{"aliases", newPod(aliases), "", top + "10.0.0.2\tweb\nfd00::2\tweb\n" + ofAliases},
		{"host network", newPod(onHostNetwork), "192.0.2.1\tnode\n", hostTop + "192.0.2.1\tnode\n"},
		{"host network, aliases behind a last line without an end", newPod(onHostNetwork, aliases), "192.0.2.1\tnode", hostTop + "192.0.2.1\tnode\n" + ofAliases},
		{"host network, empty file", newPod(onHostNetwork), "", hostTop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, _ := open(t, podnet.Config{ClusterDomain: "cluster.local", NodeHostsFile: write(t, tt.node)})
			got, err := n.Hosts(tt.pod, []string{"10.0.0.2", "fd00::2"})
			if diff := cmp.Diff(tt.want, string(got)); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	n, _ := open(t, podnet.Config{NodeHostsFile: "/nowhere/hosts"})
	if _, err := n.Hosts(newPod(onHostNetwork), nil); err == nil || !strings.Contains(err.Error(), "/nowhere/hosts") {
		t.Errorf("without the node's file: %v", err)
	}
}

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// managedHosts is the beginning of every hosts file that is a pod's own.
const managedHosts = `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// hostsAre wants the lines behind [managedHosts]; IP is the pod's address.
func hostsAre(t *testing.T, s sight, container, lines string) {
	t.Helper()
	f := s.Reports[container].Files["/etc/hosts"]
	require.Equal(t, managedHosts+strings.NewReplacer("IP", s.Pod.Status.PodIP, "POD", s.Pod.Name).Replace(lines), f.Content)
}

// hostname is an observation of the names of a pod: its host name, and the line of
// its hosts file, where IP is its address and POD its name.
func hostname(name, spec, want, hosts string) observation {
	return observation{
		name: name, spec: looks(spec, "    args: [look, /etc/hosts]\n"),
		check: func(t *testing.T, s sight) {
			require.Equal(t, strings.ReplaceAll(want, "POD", s.Pod.Name), s.Report.Hostname)
			require.Equal(t, s.Report.Hostname, s.Report.Env["HOSTNAME"])
			hostsAre(t, s, "c", hosts)
		},
	}
}

func TestObserveHostnames(t *testing.T) {
	long := strings.Repeat("x", 60) + ".yz"
	observe(t, Options{Config: map[string]any{"clusterDomain": "cluster.test"}}, []observation{
		hostname("the host name is the pod's", "", "POD", "IP\tPOD\n"),
		hostname("hostname", "  hostname: somebody", "somebody", "IP\tsomebody\n"),
		hostname("subdomain: a name in the cluster, in the hosts file only", "  subdomain: shop", "POD", "IP\tPOD.shop.default.svc.cluster.test\tPOD\n"),
		hostname("hostname and subdomain", "  hostname: db\n  subdomain: shop", "db", "IP\tdb.shop.default.svc.cluster.test\tdb\n"),
		hostname("setHostnameAsFQDN", "  hostname: db\n  subdomain: shop\n  setHostnameAsFQDN: true",
			"db.shop.default.svc.cluster.test", "IP\tdb.shop.default.svc.cluster.test\tdb\n"),
		hostname("setHostnameAsFQDN without a subdomain has no domain to add", "  hostname: db\n  setHostnameAsFQDN: true", "db", "IP\tdb\n"),
		hostname("hostnameOverride, with dots in it", "  hostnameOverride: db.example.org", "db.example.org", "IP\tdb.example.org\n"),
		hostname("hostnameOverride stands alone, whatever hostname and subdomain are", "  hostname: other\n  subdomain: shop\n  hostnameOverride: db", "db", "IP\tdb\n"),
		hostname("hostnameOverride of 64 characters is cut to 63", "  hostnameOverride: "+long+"w", long, "IP\t"+long+"\n"),
		{
			name:  "setHostnameAsFQDN with a name that the kernel does not take",
			spec:  looks("  hostname: "+strings.Repeat("y", 35)+"\n  subdomain: shop\n  setHostnameAsFQDN: true", ""),
			until: pending,
			check: func(t *testing.T, s sight) {
				s.Warned(t, "FailedCreatePodSandBox", "FQDN "+strings.Repeat("y", 35)+".shop.default.svc.cluster.test is too long (64 characters is the max, 65 characters requested)")
				require.Empty(t, sandboxes(t, s.Name))
			},
		},
		hostname("setHostnameAsFQDN with the longest name that it takes", "  hostname: "+strings.Repeat("y", 34)+"\n  subdomain: shop\n  setHostnameAsFQDN: true",
			strings.Repeat("y", 34)+".shop.default.svc.cluster.test", "IP\t"+strings.Repeat("y", 34)+".shop.default.svc.cluster.test\t"+strings.Repeat("y", 34)+"\n"),
		hostname("hostAliases", "  hostAliases: [{ip: 192.0.2.1, hostnames: [one, one.example.org]}, {ip: \"2001:db8::1\", hostnames: [six]}]", "POD",
			"IP\tPOD\n\n# Entries added by HostAliases.\n192.0.2.1\tone\tone.example.org\n2001:db8::1\tsix\n"),
		{
			name: "on the node's network the hosts file is the node's",
			spec: looks("  hostNetwork: true\n  hostAliases: [{ip: 192.0.2.1, hostnames: [one]}]", "    args: [look, /etc/hosts]\n"),
			check: func(t *testing.T, s sight) {
				own, err := os.ReadFile("/etc/hosts")
				require.NoError(t, err)
				require.Equal(t, "# Kubernetes-managed hosts file (host network).\n"+string(own)+"\n# Entries added by HostAliases.\n192.0.2.1\tone\n", s.Report.Files["/etc/hosts"].Content)
			},
		},
		{
			name: "every user may read the hosts file, and every container has the same",
			spec: looks("  securityContext: {runAsUser: 4000}\n  initContainers: [{name: i, image: KK, args: [look, /etc/hosts]}]", "    args: [look, /etc/hosts]\n  - {name: d, image: KK, args: [look, /etc/hosts]}\n"),
			check: func(t *testing.T, s sight) {
				for _, name := range []string{"i", "c", "d"} {
					hostsAre(t, s, name, "IP\tPOD\n")
					f := s.Reports[name].Files["/etc/hosts"]
					require.Equal(t, "-rw-r--r-- 0644", f.Mode)
					require.False(t, f.Writable)
				}
			},
		},
		{
			name: "a container that mounts a hosts file of its own has that one, and only that container",
			objects: `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default}
data: {hosts: "192.0.2.9 own\n"}
`,
			spec: looks("  volumes: [{name: v, configMap: {name: NAME}}]",
				"    args: [look, /etc/hosts]\n    volumeMounts: [{name: v, mountPath: /etc/hosts, subPath: hosts}]\n  - {name: d, image: KK, args: [look, /etc/hosts]}\n"),
			check: func(t *testing.T, s sight) {
				require.Equal(t, "192.0.2.9 own\n", s.Report.Files["/etc/hosts"].Content)
				hostsAre(t, s, "d", "IP\tPOD\n")
			},
		},
	})
}

// resolvConf is an observation of a pod's resolv.conf: lines as name servers,
// search domains and options, each with blanks between.
func resolvConf(name, spec, servers, searches, options string) observation {
	return observation{
		name: name, spec: looks(spec, "    args: [look, /etc/resolv.conf]\n"),
		check: func(t *testing.T, s sight) { resolvConfIs(t, s, servers, searches, options) },
	}
}

func resolvConfIs(t *testing.T, s sight, servers, searches, options string) {
	t.Helper()
	got := map[string][]string{}
	text := s.Report.Files["/etc/resolv.conf"].Content
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			got[f[0]] = append(got[f[0]], f[1:]...)
		}
	}
	require.Equal(t, strings.Fields(servers), append([]string{}, got["nameserver"]...), text)
	require.Equal(t, strings.Fields(searches), append([]string{}, got["search"]...), text)
	require.Equal(t, strings.Fields(options), append([]string{}, got["options"]...), text)
}

// warned adds an event of the pod to what has to be seen.
func (o observation) warned(reason, text string) observation {
	check := o.check
	o.check = func(t *testing.T, s sight) {
		check(t, s)
		s.Warned(t, reason, text)
	}
	return o
}

// The node's own file, and what is made of it.
const (
	nodeResolvConf = `# of the node
domain ignored.example
search old.example
search host.example example.org.
nameserver 192.0.2.1
nameserver 2001:db8::1
options ndots:2 rotate
`
	nodeServers  = "192.0.2.1 2001:db8::1"
	nodeSearches = "host.example example.org"
	nodeOptions  = "ndots:2 rotate"

	clusterServers  = "192.0.2.53 192.0.2.54"
	clusterSearches = "default.svc.cluster.test svc.cluster.test cluster.test " + nodeSearches
)

// dnsNode are options of an agent with a resolv.conf of its own.
func dnsNode(t *testing.T, config map[string]any) Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(file, []byte(nodeResolvConf), 0o644))
	config["resolvConf"] = file
	return Options{Config: config}
}

// names are n search domains.
func names(n int, form string) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(form, i))
	}
	return all
}

func searches(list []string) string {
	return "  dnsConfig: {searches: [" + strings.Join(list, ", ") + "]}"
}

func TestObserveDNSOfACluster(t *testing.T) {
	many := names(30, "s%d.example")
	// 168 bytes each: alone they are 2027 characters, which the API takes.
	long := names(12, "l%02d."+strings.Repeat("a", 60)+"."+strings.Repeat("b", 60)+"."+strings.Repeat("c", 42))
	cluster := strings.Fields(clusterSearches)
	fit := slices.Concat(cluster, long)
	for len(strings.Join(fit, " ")) > 2048 {
		fit = fit[:len(fit)-1]
	}
	require.Greater(t, len(fit), len(cluster))
	require.Less(t, len(fit), len(cluster)+len(long))

	observe(t, dnsNode(t, map[string]any{"clusterDNS": strings.Fields(clusterServers), "clusterDomain": "cluster.test"}), []observation{
		resolvConf("without a policy it is ClusterFirst", "", clusterServers, clusterSearches, "ndots:5"),
		resolvConf("ClusterFirst", "  dnsPolicy: ClusterFirst", clusterServers, clusterSearches, "ndots:5"),
		resolvConf("ClusterFirst on the node's network is Default", "  dnsPolicy: ClusterFirst\n  hostNetwork: true", nodeServers, nodeSearches, nodeOptions),
		resolvConf("ClusterFirstWithHostNet on the node's network", "  dnsPolicy: ClusterFirstWithHostNet\n  hostNetwork: true", clusterServers, clusterSearches, "ndots:5"),
		resolvConf("ClusterFirstWithHostNet on the pod's network", "  dnsPolicy: ClusterFirstWithHostNet", clusterServers, clusterSearches, "ndots:5"),
		resolvConf("Default", "  dnsPolicy: Default", nodeServers, nodeSearches, nodeOptions),
		resolvConf("None", "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.7]}", "192.0.2.7", "", ""),
		resolvConf("None with all there is", "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.7, \"2001:db8::7\"], searches: [a.example, a.example, _b.example], options: [{name: ndots, value: \"1\"}, {name: edns0}]}",
			"192.0.2.7 2001:db8::7", "a.example _b.example", "ndots:1 edns0"),
		resolvConf("dnsConfig comes behind the policy, and what is there twice is there once",
			"  dnsConfig: {nameservers: [192.0.2.54, 192.0.2.7], searches: [svc.cluster.test, own.example], options: [{name: timeout, value: \"1\"}]}",
			clusterServers+" 192.0.2.7", clusterSearches+" own.example", "ndots:5 timeout:1"),
		resolvConf("an option of the pod goes before the policy's", "  dnsConfig: {options: [{name: ndots, value: \"3\"}]}", clusterServers, clusterSearches, "ndots:3"),
		resolvConf("dnsConfig with policy Default", "  dnsPolicy: Default\n  dnsConfig: {searches: [own.example], options: [{name: rotate}, {name: edns0}]}",
			nodeServers, nodeSearches+" own.example", nodeOptions+" edns0"),
		resolvConf("more than three name servers", "  dnsConfig: {nameservers: [192.0.2.7, 192.0.2.8, 192.0.2.9]}", clusterServers+" 192.0.2.7", clusterSearches, "ndots:5").
			warned("DNSConfigForming", "the applied nameserver line is: "+clusterServers+" 192.0.2.7"),
		resolvConf("more than 32 search domains", searches(many), clusterServers, clusterSearches+" "+strings.Join(many[:27], " "), "ndots:5").
			warned("DNSConfigForming", "the applied search line is: "+clusterSearches+" "+strings.Join(many[:27], " ")),
		resolvConf("search domains of more than 2048 characters", searches(long), clusterServers, strings.Join(fit, " "), "ndots:5").
			warned("DNSConfigForming", "Search Line limits were exceeded"),
		{
			name: "the policy is the pod's, for all its containers",
			spec: looks("  dnsPolicy: Default\n  initContainers: [{name: i, image: KK, args: [look, /etc/resolv.conf]}]", "    args: [look, /etc/resolv.conf]\n"),
			check: func(t *testing.T, s sight) {
				resolvConfIs(t, s, nodeServers, nodeSearches, nodeOptions)
				require.Equal(t, s.Report.Files["/etc/resolv.conf"].Content, s.Reports["i"].Files["/etc/resolv.conf"].Content)
				require.Equal(t, strings.Fields(nodeServers), s.SandboxInfo(t).Config.GetDnsConfig().GetServers())
			},
		},
	})
}

func TestObserveDNSWithoutACluster(t *testing.T) {
	const missing = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
	o := dnsNode(t, map[string]any{})
	o.Flags = []string{"--v=1"} // a node without a cluster DNS is nothing to warn of: the event is a Normal one
	observe(t, o, []observation{
		resolvConf("ClusterFirst falls back to Default, and says so", "", nodeServers, nodeSearches, nodeOptions).warned("MissingClusterDNS", missing),
		resolvConf("so does ClusterFirstWithHostNet", "  dnsPolicy: ClusterFirstWithHostNet\n  hostNetwork: true", nodeServers, nodeSearches, nodeOptions).
			warned("MissingClusterDNS", missing),
		{
			name: "Default has nothing to say",
			spec: looks("  dnsPolicy: Default", "    args: [look, /etc/resolv.conf]\n"),
			check: func(t *testing.T, s sight) {
				resolvConfIs(t, s, nodeServers, nodeSearches, nodeOptions)
				require.False(t, s.agent.logHas(t, "pod=default/"+s.Pod.Name+" ", "MissingClusterDNS"))
			},
		},
		resolvConf("None", "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.7]}", "192.0.2.7", "", ""),
		resolvConf("dnsConfig", "  dnsPolicy: Default\n  dnsConfig: {searches: [own.example], options: [{name: ndots, value: \"3\"}]}", nodeServers, nodeSearches+" own.example", "ndots:3 rotate"),
		hostname("subdomain without a cluster's domain", "  hostname: db\n  subdomain: shop", "db", "IP\tdb.shop.default.svc\tdb\n"),
	})
}

func TestObserveDNSWithoutAFile(t *testing.T) {
	observe(t, Options{Config: map[string]any{"resolvConf": "", "clusterDNS": []string{"192.0.2.53"}}}, []observation{
		resolvConf("Default without a file of the node asks the pod's own address", "  dnsPolicy: Default", "127.0.0.1", ".", ""),
		resolvConf("ClusterFirst without a domain and a file has no search domains", "", "192.0.2.53", "", "ndots:5"),
		resolvConf("dnsConfig adds to it", "  dnsPolicy: Default\n  dnsConfig: {nameservers: [192.0.2.7]}", "127.0.0.1 192.0.2.7", ".", ""),
	})
}

func TestObserveDNSOfAMissingFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "no.conf")
	observe(t, Options{Config: map[string]any{"resolvConf": file}}, []observation{
		{
			name:  "a pod that inherits from a file that is not there waits, and an event names the file",
			spec:  looks("", ""),
			until: pending,
			check: func(t *testing.T, s sight) {
				s.Warned(t, "FailedCreatePodSandBox", "open "+file+": no such file or directory (the node's setting resolvConf names the file)")
				require.Empty(t, sandboxes(t, s.Name))
			},
		},
		resolvConf("a pod that inherits nothing starts", "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.7]}", "192.0.2.7", "", ""),
	})
}

package podnet

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Programs and tests recognise a managed file by its first line.
const (
	hostsHeader     = "# Kubernetes-managed hosts file.\n"
	nodeHostsHeader = "# Kubernetes-managed hosts file (host network).\n"
	aliasesHeader   = "\n# Entries added by HostAliases.\n"
)

// hostsLoopback is what a hosts file begins with: the loopback names, and the
// multicast names of IPv6.
const hostsLoopback = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"

// Hosts is the content of the pod's /etc/hosts: the pod's names for each of ips. A
// pod on the host's network has the node's file instead. hostAliases come last.
func (n *Net) Hosts(pod *corev1.Pod, ips []string) ([]byte, error) {
	var out bytes.Buffer
	if pod.Spec.HostNetwork {
		node, err := os.ReadFile(n.cfg.NodeHostsFile)
		if err != nil {
			return nil, fmt.Errorf("read the node's hosts file for a pod on the host network: %w", err)
		}
		out.WriteString(nodeHostsHeader)
		out.Write(node)
		if len(node) > 0 && node[len(node)-1] != '\n' {
			out.WriteByte('\n') // else an alias would be part of the last line
		}
	} else {
		short, domain, err := n.Hostname(pod)
		if err != nil {
			return nil, err
		}
		names := short
		if domain != "" {
			names = short + "." + domain + "\t" + short
		}
		out.WriteString(hostsHeader + hostsLoopback)
		for _, ip := range ips {
			out.WriteString(ip + "\t" + names + "\n")
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		out.WriteString(aliasesHeader)
	}
	for _, alias := range pod.Spec.HostAliases {
		out.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return out.Bytes(), nil
}

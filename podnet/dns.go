package podnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a resolver library takes. glibc and musl ask three servers; a longer search
// list is cut by some and crashes others (KEP-2595).
const (
	maxServers    = 3
	maxSearches   = 32
	maxSearch     = validation.DNS1123SubdomainMaxLength
	maxSearchLine = 2048 // with the spaces between
)

// ndots is the one option of ClusterFirst: a name like db.shop.svc goes through the
// search domains first.
const ndots = "ndots:5"

// DNS is the content of the pod's resolv.conf. It is never nil. What is more than
// resolvers take is left out, and an event says so.
func (n *Net) DNS(pod *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	s, err := n.byPolicy(pod)
	if err != nil {
		return nil, err
	}
	s, cuts := limit(merge(s, pod.Spec.DNSConfig))
	for _, message := range cuts {
		n.warn(pod, ReasonForming, message)
	}
	return &runtimeapi.DNSConfig{Servers: s.servers, Searches: s.searches, Options: s.options}, nil
}

// byPolicy is what the pod has without a dnsConfig. The host's file is not read for
// a pod that takes nothing from it.
func (n *Net) byPolicy(pod *corev1.Pod) (settings, error) {
	policy := pod.Spec.DNSPolicy
	switch policy {
	case corev1.DNSNone:
		return settings{}, nil
	case corev1.DNSDefault, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet:
	default:
		if policy != "" { // validation lets none through
			n.cfg.Log.Info("unknown DNS policy, taken for ClusterFirst", "pod", pod.Namespace+"/"+pod.Name, "policy", policy)
		}
		policy = corev1.DNSClusterFirst
	}
	host, err := n.host()
	if err != nil {
		return settings{}, err
	}
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	if policy != corev1.DNSDefault {
		if len(n.cfg.ClusterDNS) > 0 {
			return n.cluster(pod.Namespace, host), nil
		}
		n.warnNoDNS(pod)
	}
	if n.cfg.ResolvConf == "" {
		return n.loopback(), nil
	}
	return host, nil
}

// cluster asks the cluster's servers. The host's options are not for them.
func (n *Net) cluster(namespace string, host settings) settings {
	var searches []string
	if domain := n.cfg.ClusterDomain; domain != "" {
		searches = []string{namespace + ".svc." + domain, "svc." + domain, domain}
	}
	return settings{servers: n.cfg.ClusterDNS, searches: slices.Concat(searches, host.searches), options: []string{ndots}}
}

// loopback is what is left without a host's file: a server in the pod itself, and
// no search.
func (n *Net) loopback() settings {
	var s settings
	for _, ip := range n.cfg.NodeIPs {
		if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() && !addr.Is4In6() {
			s.servers = append(s.servers, "::1")
		} else {
			s.servers = append(s.servers, "127.0.0.1")
		}
	}
	if len(s.servers) == 0 {
		s.servers = []string{"127.0.0.1"}
	}
	s.searches = []string{"."}
	return s
}

func (n *Net) warnNoDNS(pod *corev1.Pod) {
	message := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
		corev1.DNSClusterFirst, corev1.DNSDefault)
	n.warn(nil, ReasonNoDNS, message)
	n.warn(pod, ReasonNoDNS, fmt.Sprintf("pod: %q. %s", fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID), message))
}

// merge adds the pod's own settings, and drops what comes twice.
func merge(s settings, own *corev1.PodDNSConfig) settings {
	if own == nil {
		own = &corev1.PodDNSConfig{}
	}
	options := make([]string, 0, len(own.Options))
	for _, o := range own.Options {
		if o.Value != nil && *o.Value != "" {
			options = append(options, o.Name+":"+*o.Value)
		} else {
			options = append(options, o.Name)
		}
	}
	return settings{
		servers:  unique(slices.Concat(s.servers, own.Nameservers)),
		searches: unique(slices.Concat(s.searches, own.Searches)),
		options:  mergeOptions(s.options, options),
	}
}

// mergeOptions gives an option of base the value that it has in more. Others come
// behind.
func mergeOptions(base, more []string) []string {
	at := map[string]int{}
	var out []string
	for _, option := range slices.Concat(base, more) {
		name, _, _ := strings.Cut(option, ":")
		if i, ok := at[name]; ok {
			out[i] = option
			continue
		}
		at[name] = len(out)
		out = append(out, option)
	}
	return out
}

func unique(list []string) []string {
	seen := make(map[string]bool, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		before := seen[s]
		seen[s] = true
		return before
	})
}

// limit leaves out what resolvers do not take, from the end, and tells what it did.
func limit(s settings) (settings, []string) {
	var cuts []string
	if len(s.servers) > maxServers {
		s.servers = s.servers[:maxServers]
		cuts = append(cuts, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(s.servers, " "))
	}
	var searches []string
	size := 0
	for _, domain := range s.searches {
		if len(domain) > maxSearch {
			continue // glibc 2.28 aborts on it; the shorter ones behind it count
		}
		size += len(domain) + 1
		if len(searches) == maxSearches || size-1 > maxSearchLine {
			break
		}
		searches = append(searches, domain)
	}
	if len(searches) < len(s.searches) {
		cuts = append(cuts, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(searches, " "))
	}
	s.searches = searches
	return s, cuts
}

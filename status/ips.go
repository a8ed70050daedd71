package status

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// setIPs fills the addresses. A pod keeps its last ones while it has no sandbox
// or the runtime said nothing about the network.
func setIPs(in *Input, st *corev1.PodStatus) {
	hosts := parse(in.HostIPs)
	preferV6 := len(hosts) > 0 && hosts[0].Is6()
	st.HostIP, st.HostIPs = in.Last.HostIP, in.Last.HostIPs
	if len(hosts) > 0 {
		st.HostIP, st.HostIPs = hosts[0].String(), nil
		for _, ip := range onePerFamily(hosts, preferV6) {
			st.HostIPs = append(st.HostIPs, corev1.HostIP{IP: ip.String()})
		}
	}
	ips := podIPs(in, hosts, preferV6)
	if len(ips) == 0 {
		return
	}
	st.PodIP, st.PodIPs = ips[0], nil
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, corev1.PodIP{IP: ip})
	}
}

func podIPs(in *Input, hosts []netip.Addr, preferV6 bool) []string {
	var last []string
	for _, ip := range in.Last.PodIPs {
		last = append(last, ip.IP)
	}
	if in.Pod.Spec.HostNetwork {
		// Set once: a pod does not follow its node to another address. The
		// second family may still join the first.
		now := texts(onePerFamily(hosts, preferV6))
		if len(last) == 0 || len(last) == 1 && len(now) == 2 && now[0] == last[0] {
			return now
		}
		return last
	}
	sandbox, ok := readySandbox(in.Seen)
	if !ok || len(sandbox.IPs) == 0 && !sandbox.NetworkReported {
		return last
	}
	return texts(onePerFamily(parse(sandbox.IPs), preferV6))
}

func readySandbox(seen observed.Pod) (observed.Sandbox, bool) {
	for _, s := range seen.Sandboxes {
		if s.Ready {
			return s, true
		}
	}
	return observed.Sandbox{}, false
}

// onePerFamily returns the first address of the node's primary family and then
// the first of the other one.
func onePerFamily(ips []netip.Addr, preferV6 bool) []netip.Addr {
	var list []netip.Addr
	for _, v6 := range []bool{preferV6, !preferV6} {
		for _, ip := range ips {
			if ip.Is6() == v6 {
				list = append(list, ip)
				break
			}
		}
	}
	return list
}

// parse leaves out what is no address.
func parse(texts []string) []netip.Addr {
	var list []netip.Addr
	for _, s := range texts {
		if ip, err := netip.ParseAddr(s); err == nil {
			list = append(list, ip.Unmap())
		}
	}
	return list
}

func texts(ips []netip.Addr) []string {
	var list []string
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return list
}

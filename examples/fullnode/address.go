package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// nodeAddresses returns the node's addresses: those of the flag, or the first
// global unicast address of an interface that is up, or loopback on a machine
// without a network. At most one per family, IPv4 first unless the flag says
// otherwise.
func nodeAddresses(flag string) ([]string, error) {
	if flag != "" {
		var ips []string
		for _, s := range strings.Split(flag, ",") {
			ip, err := netip.ParseAddr(strings.TrimSpace(s))
			if err != nil {
				return nil, fmt.Errorf("--node-ip: %q is not an IP address", s)
			}
			ips = append(ips, ip.String())
		}
		if len(ips) > 2 || len(ips) == 2 && isIPv4(ips[0]) == isIPv4(ips[1]) {
			return nil, fmt.Errorf("--node-ip %s: at most two addresses, one per family", flag)
		}
		return ips, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses (give --node-ip): %w", err)
	}
	var v4, v6 string
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok || !ipnet.IP.IsGlobalUnicast() {
			continue
		}
		if ipnet.IP.To4() != nil && v4 == "" {
			v4 = ipnet.IP.String()
		} else if ipnet.IP.To4() == nil && v6 == "" {
			v6 = ipnet.IP.String()
		}
	}
	switch {
	case v4 != "":
		return []string{v4}, nil
	case v6 != "":
		return []string{v6}, nil
	default:
		return []string{"127.0.0.1"}, nil
	}
}

func isIPv4(ip string) bool { return netip.MustParseAddr(ip).Unmap().Is4() }

package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// setUpNetwork makes the bridge and the CNI configuration. The bridge exists
// from the start and carries the gateway's address, so that the next daemon
// on this machine sees that the subnet is taken.
func setUpNetwork(ctx context.Context, at layout, masquerade bool) error {
	subnet, err := freeSubnet(at.network)
	if err != nil {
		return err
	}
	gateway := netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits())
	for _, args := range [][]string{
		{"link", "add", at.network, "type", "bridge"},
		{"addr", "add", gateway.String(), "dev", at.network},
		{"link", "set", at.network, "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("make bridge %s: ip %v: %w: %s", at.network, args, err, out)
		}
	}
	type m = map[string]any
	conf, err := json.MarshalIndent(m{
		"cniVersion": "0.4.0", "name": at.network,
		"plugins": []m{{
			"type": "bridge", "bridge": at.network,
			"isGateway": true, "hairpinMode": true, "ipMasq": masquerade,
			"ipam": m{
				"type": "host-local", "dataDir": at.cniData,
				"ranges": [][]m{{{"subnet": subnet.String()}}},
				"routes": []m{{"dst": "0.0.0.0/0"}},
			},
		}, {
			"type": "portmap", "capabilities": m{"portMappings": true},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(at.cniConf, "10-pods.conflist"), conf, 0o644)
}

// freeSubnet picks one of the 4096 /22 networks of 10.64.0.0/10: the one that
// the name hashes to, or the next one that no link of this machine is in.
func freeSubnet(network string) (netip.Prefix, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("pick a pod subnet: %w", err)
	}
	first := 0
	for _, b := range []byte(network) {
		first = (first*31 + int(b)) % 4096
	}
	for n := range 4096 {
		i := (first + n) % 4096
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>6), byte(i << 2), 0}), 22)
		clash := slices.ContainsFunc(taken, func(a net.Addr) bool {
			other, err := netip.ParsePrefix(a.String())
			return err == nil && other.Overlaps(p)
		})
		if !clash {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("pick a pod subnet: all of 10.64.0.0/10 is taken")
}

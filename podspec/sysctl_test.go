package podspec_test

import (
	"testing"

	"github.com/kubeletkit/kubeletkit/podspec"
)

func TestSysctlName(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		"vm":                               "vm",
		"net.core.somaxconn":               "net.core.somaxconn",
		"net/core/somaxconn":               "net.core.somaxconn",
		"net/ipv4/conf/eno2.100/rp_filter": "net.ipv4.conf.eno2/100.rp_filter",
		"net.ipv4.conf.eno2/100.rp_filter": "net.ipv4.conf.eno2/100.rp_filter",
	} {
		if got := podspec.SysctlName(in); got != want {
			t.Errorf("SysctlName(%q) = %q, want %q", in, got, want)
		}
	}
}

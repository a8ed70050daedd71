package main

import (
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/admission"
)

// honouredForPods are the fields that decide what a pod gets of the node; see
// [honoured].
var honouredForPods = []string{
	"cgroupRoot", "cgroupsPerQOS", "cgroupDriver", "failCgroupV1", "cpuCFSQuota", "cpuCFSQuotaPeriod", "podPidsLimit",
	"singleProcessOOMKill", "memorySwap", "failSwapOn", "memoryThrottlingFactor", "memoryReservationPolicy",
	"clusterDomain", "clusterDNS", "resolvConf", "allowedUnsafeSysctls", "seccompDefault", "userNamespaces",
	"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
}

// The swap behaviours of memorySwap.swapBehavior.
const (
	swapNone    = "NoSwap"
	swapLimited = "LimitedSwap"
)

const idsPerNamespace = 65536

// setPodDefaults fills in the kubelet's defaults. Two are not: a node with cgroup
// v1, or with swap, is refused only when the configuration asks for that. Small
// machines have both, and neither is dangerous: v1 is honoured, and no pod gets swap.
func setPodDefaults(cfg *kubeletconfig.KubeletConfiguration) {
	orDefault(&cfg.CgroupsPerQOS, true)
	orZero(&cfg.CgroupDriver, "cgroupfs")
	orDefault(&cfg.FailCgroupV1, false)
	orDefault(&cfg.FailSwapOn, false)
	orDefault(&cfg.CPUCFSQuota, true)
	orDefault(&cfg.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	orDefault(&cfg.PodPidsLimit, -1)
	orZero(&cfg.MemorySwap.SwapBehavior, swapNone)
	orZero(&cfg.MemoryReservationPolicy, kubeletconfig.NoneMemoryReservationPolicy)
	orDefault(&cfg.ResolverConfig, "/etc/resolv.conf")
	orDefault(&cfg.SeccompDefault, false)
	orZero(&cfg.ImagePullCredentialsVerificationPolicy, kubeletconfig.NeverVerifyPreloadedImages)
	if cfg.UserNamespaces == nil {
		cfg.UserNamespaces = &kubeletconfig.UserNamespaces{}
	}
	orDefault(&cfg.UserNamespaces.IDsPerPod, idsPerNamespace)
}

// validateForPods names every problem of these fields.
func validateForPods(cfg *kubeletconfig.KubeletConfiguration, bad func(format string, args ...any)) {
	oneOf := func(name, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			bad("%s %q must be one of %s", name, value, strings.Join(allowed, ", "))
		}
	}
	oneOf("cgroupDriver", cfg.CgroupDriver, "cgroupfs", "systemd")
	oneOf("memorySwap.swapBehavior", cfg.MemorySwap.SwapBehavior, swapNone, swapLimited)
	oneOf("memoryReservationPolicy", string(cfg.MemoryReservationPolicy),
		string(kubeletconfig.NoneMemoryReservationPolicy), string(kubeletconfig.TieredReservationMemoryReservationPolicy))
	oneOf("imagePullCredentialsVerificationPolicy", string(cfg.ImagePullCredentialsVerificationPolicy),
		string(kubeletconfig.NeverVerify), string(kubeletconfig.NeverVerifyPreloadedImages),
		string(kubeletconfig.NeverVerifyAllowlistedImages), string(kubeletconfig.AlwaysVerify))
	if n := len(cfg.PreloadedImagesVerificationAllowlist); n > 0 && cfg.ImagePullCredentialsVerificationPolicy != kubeletconfig.NeverVerifyAllowlistedImages {
		bad("preloadedImagesVerificationAllowlist needs imagePullCredentialsVerificationPolicy %s", kubeletconfig.NeverVerifyAllowlistedImages)
	}
	if d := cfg.CPUCFSQuotaPeriod.Duration; d < time.Millisecond || d > time.Second {
		bad("cpuCFSQuotaPeriod %v must be between 1ms and 1s", d)
	}
	if f := cfg.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		bad("memoryThrottlingFactor %v must be greater than 0 and at most 1", *f)
	}
	if root := cfg.CgroupRoot; root != "" && (!filepath.IsAbs(root) || filepath.Clean(root) != root) {
		bad("cgroupRoot %q must be an absolute path without . or ..", root)
	}
	for _, ip := range cfg.ClusterDNS {
		if net.ParseIP(ip) == nil {
			bad("clusterDNS %q is no IP address", ip)
		}
	}
	if d := cfg.ClusterDomain; d != "" && len(validation.IsDNS1123Subdomain(d)) > 0 {
		bad("clusterDomain %q must be a DNS name", d)
	}
	if n := *cfg.UserNamespaces.IDsPerPod; n <= 0 || n%idsPerNamespace != 0 || n > 1<<32-1 {
		bad("userNamespaces.idsPerPod %d must be a multiple of %d below 2^32", n, idsPerNamespace)
	}
	if _, err := admission.Sysctls(cfg.AllowedUnsafeSysctls, ""); err != nil {
		bad("allowedUnsafeSysctls: %v", err)
	}
}

// hasCgroups reports whether there are cgroups to put pods into.
func (o *options) hasCgroups() bool { return o.runtime != "fake" && runtime.GOOS == "linux" }

// withCgroups reports whether pods get cgroups of their own. Without, their containers
// are all in cgroupRoot.
func (o *options) withCgroups() bool {
	return o.hasCgroups() && ptr.Deref(o.config.CgroupsPerQOS, true)
}

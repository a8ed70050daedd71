package main

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFieldsForPodsAreChecked(t *testing.T) {
	for lines, want := range map[string]string{
		"cgroupDriver: runc":                              `cgroupDriver "runc" must be one of cgroupfs, systemd`,
		"cgroupRoot: a/b":                                 `cgroupRoot "a/b" must be an absolute path`,
		"cpuCFSQuotaPeriod: 2s":                           "cpuCFSQuotaPeriod 2s must be between 1ms and 1s",
		"memorySwap: {swapBehavior: Some}":                `memorySwap.swapBehavior "Some" must be one of`,
		"memoryThrottlingFactor: 1.5":                     "memoryThrottlingFactor 1.5 must be greater than 0",
		"memoryReservationPolicy: Most":                   `memoryReservationPolicy "Most" must be one of`,
		"clusterDNS: [dns.example]":                       `clusterDNS "dns.example" is no IP address`,
		"clusterDomain: -x":                               `clusterDomain "-x" must be a DNS name`,
		"userNamespaces: {idsPerPod: 1000}":               "userNamespaces.idsPerPod 1000 must be a multiple of 65536",
		"allowedUnsafeSysctls: [vm.swappiness]":           "allowedUnsafeSysctls",
		"imagePullCredentialsVerificationPolicy: Perhaps": `imagePullCredentialsVerificationPolicy "Perhaps" must be one of`,
		"preloadedImagesVerificationAllowlist: [a/b]":     "preloadedImagesVerificationAllowlist needs imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages",
	} {
		_, err := parseFlags([]string{"--config", writeConfig(t, header+lines+"\n"), "--hostname-override", "n"}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", lines, err, want)
		}
	}
}

func TestWhatTheMachineDoesNotHaveIsAnError(t *testing.T) {
	swap, v1, v2 := machine{swap: 1 << 30, cgroupV2: true}, machine{}, machine{cgroupV2: true}
	for lines, tt := range map[string]struct {
		m    machine
		want string
	}{
		"failCgroupV1: true\n":                    {v1, "failCgroupV1"},
		"failSwapOn: true\n":                      {swap, "failSwapOn"},
		"memorySwap: {swapBehavior: LimitedSwap}": {v1, "LimitedSwap needs cgroup v2"},
		"failCgroupV1: true\nfailSwapOn: true\n":  {v2, ""},
		"":                                        {v1, ""},
		"cgroupDriver: systemd":                   {swap, ""},
	} {
		o, err := parseFlags([]string{"--config", writeConfig(t, header+lines+"\n"), "--hostname-override", "n"}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		err = fits(&o.config, tt.m, true)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: error = %v, want %q", lines, err, tt.want)
		}
	}
}

func TestLabelsOfTheNode(t *testing.T) {
	o, err := parseFlags([]string{"--hostname-override", "Edge-1", "--node-labels", "disk=ssd,example.com/zone=b"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"disk": "ssd", "example.com/zone": "b", corev1.LabelHostname: "edge-1", corev1.LabelOSStable: "linux"} {
		if o.labels[key] != want {
			t.Errorf("label %s = %q, want %q", key, o.labels[key], want)
		}
	}
	for _, bad := range []string{"a b=c", "disk=a b", "=x"} {
		if _, err := parseFlags([]string{"--hostname-override", "n", "--node-labels", bad}, io.Discard); err == nil {
			t.Errorf("--node-labels %q was taken", bad)
		}
	}
}

package cgroup_test

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cgroup"
	"github.com/kubeletkit/kubeletkit/observed"
)

func TestName(t *testing.T) {
	const uid = "6a4f2e3b-1c9d-4a5e-8f7b-2d3e4f5a6b7c"
	for name, tc := range map[string]struct {
		driver cgroup.Driver
		root   string
		qos    corev1.PodQOSClass
		uid    observed.UID
		want   string
	}{
		"Guaranteed pods live in kubepods itself": {cgroup.Cgroupfs, "", corev1.PodQOSGuaranteed, uid, "/kubepods/pod" + uid},
		"Burstable":          {cgroup.Cgroupfs, "/", corev1.PodQOSBurstable, uid, "/kubepods/burstable/pod" + uid},
		"BestEffort":         {cgroup.Cgroupfs, "/", corev1.PodQOSBestEffort, uid, "/kubepods/besteffort/pod" + uid},
		"a root goes before": {cgroup.Cgroupfs, "/a-b/c", corev1.PodQOSBurstable, uid, "/a-b/c/kubepods/burstable/pod" + uid},
		"an underscore is none of systemd's business":  {cgroup.Cgroupfs, "", corev1.PodQOSGuaranteed, "web_1", "/kubepods/podweb_1"},
		"systemd, Guaranteed":                          {cgroup.Systemd, "", corev1.PodQOSGuaranteed, uid, "/kubepods.slice/kubepods-pod6a4f2e3b_1c9d_4a5e_8f7b_2d3e4f5a6b7c.slice"},
		"systemd, Burstable":                           {cgroup.Systemd, "", corev1.PodQOSBurstable, "a-b", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"},
		"systemd, BestEffort":                          {cgroup.Systemd, "/", corev1.PodQOSBestEffort, "a-b", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice"},
		"systemd, the name of a root is in every name": {cgroup.Systemd, "/r/my-root", corev1.PodQOSGuaranteed, "a", "/r.slice/r-my_root.slice/r-my_root-kubepods.slice/r-my_root-kubepods-poda.slice"},
		"systemd, an underscore stays apart from dash": {cgroup.Systemd, "", corev1.PodQOSGuaranteed, "a_b", `/kubepods.slice/kubepods-poda\x5fb.slice`},
		"systemd, what a unit can't hold is escaped":   {cgroup.Systemd, "", corev1.PodQOSGuaranteed, "é %", `/kubepods.slice/kubepods-pod\xc3\xa9\x20\x25.slice`},
		"the hash that stands for a static pod's UID":  {cgroup.Systemd, "", corev1.PodQOSBurstable, "d41d8cd98f00b204e9800998ecf8427e", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podd41d8cd98f00b204e9800998ecf8427e.slice"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroup.Name(tc.driver, tc.root, tc.qos, tc.uid)
			if err != nil || got != tc.want {
				t.Fatalf("Name = %q, %v, want %q", got, err, tc.want)
			}
			if back, ok := cgroup.Parse(tc.driver, got); !ok || back != tc.uid {
				t.Errorf("Parse = %q, %v, want %q", back, ok, tc.uid)
			}
		})
	}
}

func TestNameRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		driver cgroup.Driver
		root   string
		uid    observed.UID
		want   string
	}{
		"no UID":                          {cgroup.Cgroupfs, "", "", "has no UID"},
		"a UID that is the tier itself":   {cgroup.Cgroupfs, "", ".", "metadata.uid"},
		"a UID that leads up":             {cgroup.Cgroupfs, "", "..", "metadata.uid"},
		"a UID that leads out":            {cgroup.Cgroupfs, "", "x/../../system", "metadata.uid"},
		"systemd, a UID that leads out":   {cgroup.Systemd, "", "../x", "metadata.uid"},
		"a UID that breaks /proc files":   {cgroup.Cgroupfs, "", "a\nb", "metadata.uid"},
		"a UID with a zero byte":          {cgroup.Cgroupfs, "", "a\x00", "metadata.uid"},
		"a UID the runtime can't be told": {cgroup.Cgroupfs, "", "a\xff", "metadata.uid"},
		"a UID too long for the kernel":   {cgroup.Cgroupfs, "", observed.UID(strings.Repeat("a", 253)), "too long"},
		"a UID too long once escaped":     {cgroup.Systemd, "", observed.UID(strings.Repeat("_", 60)), "too long"},
		"a root that is not absolute":     {cgroup.Cgroupfs, "a", "u", "absolute"},
		"a root that leads up":            {cgroup.Cgroupfs, "/a/../..", "u", "absolute"},
		"systemd, a root of other signs":  {cgroup.Systemd, "/a b", "u", "slice"},
		"a driver nobody knows":           {"runc", "", "u", "cgroupfs or systemd"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroup.Name(tc.driver, tc.root, corev1.PodQOSBurstable, tc.uid)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Name = %q, %v, want an error with %q", got, err, tc.want)
			}
		})
	}
}

func TestParseTakesNoOtherCgroupForAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		driver cgroup.Driver
		in     string
	}{
		"nothing":                             {cgroup.Cgroupfs, ""},
		"a tier":                              {cgroup.Cgroupfs, "/kubepods/burstable"},
		"a pod of no name":                    {cgroup.Cgroupfs, "/kubepods/pod"},
		"a container":                         {cgroup.Cgroupfs, "/kubepods/burstable/podx/0123abcd"},
		"a foreign pod":                       {cgroup.Cgroupfs, "/machine/podx"},
		"systemd's form under cgroupfs":       {cgroup.Cgroupfs, "/kubepods.slice/kubepods-podx.slice"},
		"cgroupfs' form under systemd":        {cgroup.Systemd, "/kubepods/podx"},
		"a scope":                             {cgroup.Systemd, "/kubepods.slice/kubepods-podx.scope"},
		"a foreign slice":                     {cgroup.Systemd, "/machine.slice/machine-podx.slice"},
		"a slice of no kubepods":              {cgroup.Systemd, "/podx.slice"},
		"an escape that escape does not make": {cgroup.Systemd, `/kubepods.slice/kubepods-poda\x61.slice`},
		"an escape that ends too early":       {cgroup.Systemd, `/kubepods.slice/kubepods-poda\x6.slice`},
		"an escaped slash":                    {cgroup.Systemd, `/kubepods.slice/kubepods-pod\x2f.slice`},
	} {
		t.Run(name, func(t *testing.T) {
			if uid, ok := cgroup.Parse(tc.driver, tc.in); ok {
				t.Errorf("Parse(%q) = %q, want none", tc.in, uid)
			}
		})
	}
}

func FuzzNameAndBack(f *testing.F) {
	for _, uid := range []string{"6a4f2e3b-1c9d-4a5e-8f7b-2d3e4f5a6b7c", "a_b", "..", "x/y", "é", `\x2f`, "a.slice", "podx", "kubepods-podx", ""} {
		f.Add(uid, "/r-1", uint8(1))
	}
	qos := []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}
	f.Fuzz(func(t *testing.T, uid, root string, tier uint8) {
		for _, driver := range []cgroup.Driver{cgroup.Cgroupfs, cgroup.Systemd} {
			class := qos[int(tier)%len(qos)]
			name, err := cgroup.Name(driver, root, class, observed.UID(uid))
			if err != nil {
				continue
			}
			if path.Clean(name) != name {
				t.Errorf("Name(%s, %q, %q) = %q, which leads elsewhere", driver, root, uid, name)
			}
			// A sister has the same parent: the UID did not move the cgroup.
			sister, err := cgroup.Name(driver, root, class, "x")
			if err != nil || path.Dir(sister) != path.Dir(name) {
				t.Errorf("Name(%s, %q, %q) = %q, not beside %q", driver, root, uid, name, sister)
			}
			if back, ok := cgroup.Parse(driver, name); !ok || string(back) != uid {
				t.Errorf("Parse(%q) = %q, %v, want %q", name, back, ok, uid)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("/kubepods/burstable/podx")
	f.Add(`/kubepods.slice/kubepods-poda\x5fb.slice`)
	f.Fuzz(func(t *testing.T, in string) {
		for _, driver := range []cgroup.Driver{cgroup.Cgroupfs, cgroup.Systemd} {
			uid, ok := cgroup.Parse(driver, in)
			if !ok || len(uid) > 200 {
				continue
			}
			// What is taken for a pod's cgroup is one that Name gives that pod.
			name, err := cgroup.Name(driver, "", corev1.PodQOSGuaranteed, uid)
			if last := path.Base(name); err != nil || driver == cgroup.Cgroupfs && last != path.Base(in) {
				t.Errorf("Parse(%q) = %q, but Name gives that pod %q, %v", in, uid, last, err)
			}
		}
	})
}

package cgroup

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Driver is who makes cgroups on the node.
type Driver string

const (
	// Cgroupfs writes to the kernel's files.
	Cgroupfs Driver = "cgroupfs"
	// Systemd asks systemd for slices. It has to be the init system.
	Systemd Driver = "systemd"
)

// tiers in the order in which they are made: Guaranteed pods live in kubepods
// itself, beside the other two tiers.
var tiers = []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}

const (
	topOfPods = "kubepods"
	podPrefix = "pod"
	slice     = ".slice"
	// maxName is what the kernel takes as the name of one cgroup, and systemd as
	// the name of a unit.
	maxName = 255
)

// Name is the cgroup of a pod, as the path below the mount point of a hierarchy.
// It is also what the runtime gets as the sandbox's cgroup parent.
//
// A static pod's UID is whatever its manifest says, so one that can't be the name
// of exactly one cgroup below the tier is an error. With [Systemd] a dash becomes
// an underscore, as the kubelet has it, and everything else that a unit's name
// can't hold is escaped in systemd's way, so that two UIDs never share a cgroup.
func Name(driver Driver, root string, qos corev1.PodQOSClass, uid observed.UID) (string, error) {
	n, err := newNames(driver, root)
	if err != nil {
		return "", err
	}
	return n.pod(qos, uid)
}

// Parse is the way back from [Name], for any root: ok is false for what is no
// pod's cgroup.
func Parse(driver Driver, name string) (uid observed.UID, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), "/")
	last := parts[len(parts)-1]
	if driver == Systemd {
		unit, isSlice := strings.CutSuffix(last, slice)
		if !isSlice {
			return "", false
		}
		parts = strings.Split(unit, "-")
		last = parts[len(parts)-1]
	}
	tail, isPod := strings.CutPrefix(last, podPrefix)
	if !isPod || !inTier(parts[:len(parts)-1]) {
		return "", false
	}
	uid = observed.UID(tail)
	if driver == Systemd {
		if uid, ok = unescape(tail); !ok {
			return "", false
		}
	}
	return uid, checkUID(uid) == nil
}

// inTier reports whether a cgroup's name ends as a tier's does.
func inTier(parts []string) bool {
	if n := len(parts); n > 0 && (parts[n-1] == "burstable" || parts[n-1] == "besteffort") {
		parts = parts[:n-1]
	}
	return len(parts) > 0 && parts[len(parts)-1] == topOfPods
}

// names makes the cgroups' names of one node.
type names struct {
	driver Driver
	root   []string
}

func newNames(driver Driver, root string) (names, error) {
	if driver != Cgroupfs && driver != Systemd {
		return names{}, fmt.Errorf("cgroup: driver %q is unknown, want %s or %s", driver, Cgroupfs, Systemd)
	}
	n := names{driver: driver}
	if root == "" || root == "/" {
		return n, nil
	}
	if !path.IsAbs(root) || path.Clean(root) != root {
		return names{}, fmt.Errorf("cgroup: root %q must be an absolute path in its shortest form", root)
	}
	for part := range strings.SplitSeq(root[1:], "/") {
		if driver == Systemd {
			if strings.IndexFunc(part, func(r rune) bool { return !inUnit(r) && r != '-' && r != '_' }) >= 0 {
				return names{}, fmt.Errorf("cgroup: root %q can't be a slice of systemd; a name there has letters, digits, and - _ . : alone", root)
			}
			part = strings.ReplaceAll(part, "-", "_")
		}
		n.root = append(n.root, part)
	}
	return n, nil
}

// top is the cgroup that kubepods is in.
func (n names) top() string { return n.join() }

func (n names) tier(qos corev1.PodQOSClass) string { return n.join(tierParts(qos)...) }

func tierParts(qos corev1.PodQOSClass) []string {
	switch qos {
	case corev1.PodQOSBurstable:
		return []string{topOfPods, "burstable"}
	case corev1.PodQOSBestEffort:
		return []string{topOfPods, "besteffort"}
	default:
		return []string{topOfPods}
	}
}

func (n names) pod(qos corev1.PodQOSClass, uid observed.UID) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	last := podPrefix + string(uid)
	if n.driver == Systemd {
		last = podPrefix + escape(uid)
	}
	name := n.join(append(tierParts(qos), last)...)
	if len(path.Base(name)) > maxName {
		return "", fmt.Errorf("cgroup: pod UID %q is too long for a cgroup's name", uid)
	}
	return name, nil
}

// join puts the parts below the root. A slice of systemd carries the names of all
// slices above it: a.slice/a-b.slice.
func (n names) join(parts ...string) string {
	parts = append(append([]string(nil), n.root...), parts...)
	if n.driver == Cgroupfs {
		return "/" + strings.Join(parts, "/")
	}
	if len(parts) == 0 {
		return "/"
	}
	var all strings.Builder
	for i := range parts {
		all.WriteString("/" + strings.Join(parts[:i+1], "-") + slice)
	}
	return all.String()
}

// checkUID refuses what would lead out of the tree, or what the kernel or the
// runtime's protocol can't carry.
func checkUID(uid observed.UID) error {
	s := string(uid)
	switch {
	case s == "":
		return fmt.Errorf("cgroup: the pod has no UID")
	case s == "." || s == "..", strings.Contains(s, "/"), !utf8.ValidString(s), strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("cgroup: pod UID %q can't be part of a cgroup's name; give metadata.uid another value", uid)
	}
	return nil
}

// inUnit reports whether r stands for itself in the name of a unit.
func inUnit(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '.' || r == ':'
}

func escape(uid observed.UID) string {
	var b strings.Builder
	for _, c := range []byte(uid) {
		switch {
		case c == '-':
			b.WriteByte('_')
		case inUnit(rune(c)):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// unescape takes only what [escape] gives, so that each cgroup has one UID.
func unescape(s string) (observed.UID, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '_':
			b.WriteByte('-')
		case s[i] == '\\' && len(s) >= i+4:
			c, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(c))
			i += 3
		default:
			b.WriteByte(s[i])
		}
	}
	uid := observed.UID(b.String())
	return uid, escape(uid) == s
}

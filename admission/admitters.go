package admission

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// Reasons of refusals, in the kubelet's words.
const (
	ReasonAppArmor = "AppArmor"
	ReasonFeature  = "PodFeatureUnsupported"
	ReasonGroups   = "SupplementalGroupsPolicyNotSupported"
	ReasonNodeName = "NodeName"
	ReasonOS       = "PodOSNotSupported"
	ReasonOSLabel  = "PodOSSelectorNodeLabelDoesNotMatch"
	ReasonPods     = outOf + "pods"
	ReasonPorts    = "NodePorts"
	ReasonSysctl   = "SysctlForbidden"

	// outOf begins the reason of a resource that there is not enough of.
	outOf = "OutOf"
)

// maxPaths is how many fields a message of [Unmapped] names.
const maxPaths = 20

// Unmapped refuses a pod that sets a field which this version would have to
// ignore: half of what a pod asks for is not what it asks for. check returns one
// error per such field.
func Unmapped(check func(*corev1.Pod) field.ErrorList) Admitter {
	return Func(func(a Attributes) Decision {
		errs := check(a.Pod)
		if len(errs) == 0 {
			return yes()
		}
		var paths []string
		for _, e := range errs[:min(len(errs), maxPaths)] {
			path := e.Field
			if e.Detail != "" {
				path += " (" + e.Detail + ")"
			}
			paths = append(paths, path)
		}
		list := strings.Join(paths, ", ")
		if more := len(errs) - len(paths); more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		return no(ReasonFeature, "Pod requires node features that are not available in this version: "+
			list+". Remove these fields, or run the pod on another node")
	})
}

// NodeName refuses a pod that is bound to another node.
func NodeName(name string) Admitter {
	return Func(func(a Attributes) Decision {
		if wants := a.Pod.Spec.NodeName; wants != "" && wants != name {
			return no(ReasonNodeName, fmt.Sprintf(
				"Predicate NodeName failed: node(s) didn't match the requested node name: spec.nodeName is %q, this node is %q", wants, name))
		}
		return yes()
	})
}

// OS refuses a pod for another operating system, as its spec or its label
// kubernetes.io/os has it. goos is in Go's words, for example linux.
func OS(goos string) Admitter {
	return Func(func(a Attributes) Decision {
		if label, ok := a.Pod.Labels[corev1.LabelOSStable]; ok && label != goos {
			return no(ReasonOSLabel, fmt.Sprintf(
				"Failed to admit pod as the `kubernetes.io/os` label doesn't match node label: the pod has %q, the node is %q", label, goos))
		}
		if os := a.Pod.Spec.OS; os != nil && string(os.Name) != goos {
			return no(ReasonOS, fmt.Sprintf(
				"Failed to admit pod as the OS field doesn't match node OS: spec.os.name is %q, the node is %q", os.Name, goos))
		}
		return yes()
	})
}

// MaxPods refuses a pod above the number that the node takes.
func MaxPods(capacity int) Admitter {
	return Func(func(a Attributes) Decision {
		used := 0
		for range a.others {
			used++
		}
		if used >= capacity {
			return no(ReasonPods, fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", used, capacity))
		}
		return yes()
	})
}

// HostPorts refuses a pod that asks for a port of the node which another pod
// holds. Who was admitted first keeps it, so pods have to come in the order of
// [Sort].
func HostPorts() Admitter {
	return Func(func(a Attributes) Decision {
		wanted := hostPorts(a.Pod)
		if len(wanted) == 0 {
			return yes()
		}
		for other := range a.others {
			for _, held := range hostPorts(other) {
				for _, want := range wanted {
					if want.clashes(held) {
						return no(ReasonPorts, fmt.Sprintf(
							"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: %s is held by pod %s/%s",
							want, other.Namespace, other.Name))
					}
				}
			}
		}
		return yes()
	})
}

type hostPort struct {
	ip       netip.Addr // invalid: every address
	protocol corev1.Protocol
	port     int32
}

func (p hostPort) String() string {
	if p.ip.IsValid() {
		return fmt.Sprintf("hostPort %d/%s on %s", p.port, p.protocol, p.ip)
	}
	return fmt.Sprintf("hostPort %d/%s", p.port, p.protocol)
}

func (p hostPort) clashes(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol && (p.ip == o.ip || !p.ip.IsValid() || !o.ip.IsValid())
}

// hostPorts are those of the containers that run side by side: not of the init
// containers that come and go before.
func hostPorts(pod *corev1.Pod) []hostPort {
	var ports []hostPort
	for c, kind := range podspec.All(pod) {
		if kind == podspec.Ephemeral || kind == podspec.Init && !podspec.IsSidecar(c) {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			h := hostPort{protocol: p.Protocol, port: p.HostPort}
			if h.protocol == "" {
				h.protocol = corev1.ProtocolTCP // the API's default
			}
			// What is no address is taken for every address: too careful is
			// better than two pods on one port.
			if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
				h.ip = ip.Unmap()
			}
			ports = append(ports, h)
		}
	}
	return ports
}

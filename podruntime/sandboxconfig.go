package podruntime

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// sandboxConfig describes the pod's sandbox to the runtime.
func (r *Runtime) sandboxConfig(pod *corev1.Pod, spec SandboxSpec, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	logDir, err := r.podLogDir(pod)
	if err != nil {
		return nil, err
	}
	security, err := sandboxSecurity(pod, spec)
	if err == nil && pod.Spec.Resources != nil {
		err = r.rules.checkHugePages(pod.Spec.Resources.Limits, func() *field.Path { return field.NewPath("spec") })
	}
	if err != nil {
		return nil, fmt.Errorf("configure sandbox of pod %s: %w", podName(pod), err)
	}
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = make(map[string]string, 3)
	}
	maps.Copy(labels, podLabels(pod))
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		LogDirectory: logDir,
		DnsConfig:    spec.DNS,
		PortMappings: portMappings(pod),
		Labels:       labels,
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    spec.CgroupParent,
			SecurityContext: security,
			Sysctls:         sysctls(pod),
			Resources:       r.rules.sandboxResources(pod),
			Overhead:        r.rules.overhead(pod),
		},
	}
	if !pod.Spec.HostNetwork {
		config.Hostname = spec.Hostname
	}
	return config, nil
}

func podLabels(pod *corev1.Pod) map[string]string {
	return map[string]string{
		observed.LabelPodName:      pod.Name,
		observed.LabelPodNamespace: pod.Namespace,
		observed.LabelPodUID:       string(pod.UID),
	}
}

// sandboxSecurity is about the process that holds the pod's namespaces. It always
// has the runtime's seccomp profile: it does nothing that the profile forbids.
func sandboxSecurity(pod *corev1.Pod, spec SandboxSpec) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	mapping, err := users(pod, spec.UserNamespace)
	if err != nil {
		return nil, err
	}
	sc := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, mapping),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for c := range podspec.All(pod) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			sc.Privileged = true
		}
	}
	if pod.Spec.SecurityContext == nil {
		return sc, nil
	}
	all := pod.Spec.SecurityContext
	if u := all.RunAsUser; u != nil {
		if wrongID(*u) {
			return nil, invalidID(*u, field.NewPath("spec", "securityContext", "runAsUser"))
		}
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *u}
		// CRI has runtimes refuse a group without a user. The group of this one
		// process is nobody's concern then.
		if g := all.RunAsGroup; g != nil {
			if wrongID(*g) {
				return nil, invalidID(*g, field.NewPath("spec", "securityContext", "runAsGroup"))
			}
			sc.RunAsGroup = &runtimeapi.Int64Value{Value: *g}
		}
	}
	sc.SelinuxOptions = selinux(all.SELinuxOptions)
	if sc.SupplementalGroups, err = groups(all, nil); err != nil {
		return nil, err
	}
	sc.SupplementalGroupsPolicy, err = groupsPolicy(all)
	return sc, err
}

// sysctls are named with dots for the runtime.
func sysctls(pod *corev1.Pod) map[string]string {
	sc := pod.Spec.SecurityContext
	if sc == nil || len(sc.Sysctls) == 0 {
		return nil
	}
	all := make(map[string]string, len(sc.Sysctls))
	for _, s := range sc.Sysctls {
		all[dotted(s.Name)] = s.Value
	}
	return all
}

// dotted reads a name as sysctl(8) does: the first separator tells which of the two
// it is written with, and the other one belongs to the names of interfaces:
// net/ipv4/conf/eth0.1/forwarding is net.ipv4.conf.eth0/1.forwarding.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}

// portMappings takes the ports of regular containers only. Of two equal ones the
// first counts; which port they mean is the same either way.
func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	type key struct {
		protocol       corev1.Protocol
		ip             string
		port, hostPort int32
	}
	seen := make(map[key]bool)
	var all []*runtimeapi.PortMapping
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			k := key{p.Protocol, p.HostIP, p.ContainerPort, p.HostPort}
			if seen[k] {
				continue
			}
			seen[k] = true
			all = append(all, &runtimeapi.PortMapping{
				Protocol:      protocol(p.Protocol),
				ContainerPort: p.ContainerPort,
				HostPort:      p.HostPort,
				HostIp:        p.HostIP,
			})
		}
	}
	return all
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

package podnet

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxHostname is the length of a DNS label.
	maxHostname = validation.DNS1123LabelMaxLength
	// maxKernelName is what sethostname(2) takes on Linux.
	maxKernelName = 64
)

// Hostname is the pod's name inside itself, and the domain that it has with a
// subdomain; the domain is empty otherwise. A name that is too long is cut.
func (n *Net) Hostname(pod *corev1.Pod) (short, domain string, err error) {
	if o := pod.Spec.HostnameOverride; o != nil {
		if wrong := validation.IsDNS1123Subdomain(*o); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(wrong, "; "))
		}
		short, err = cut(pod, *o)
		return short, "", err // KEP-4762: the override stands alone
	}
	if h := pod.Spec.Hostname; h != "" {
		if wrong := validation.IsDNS1123Label(h); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod Hostname %q is not a valid DNS label: %s", h, strings.Join(wrong, "; "))
		}
		short = h
	} else if short, err = cut(pod, pod.Name); err != nil {
		return "", "", err
	}
	if sub := pod.Spec.Subdomain; sub != "" {
		if wrong := validation.IsDNS1123Label(sub); len(wrong) > 0 {
			return "", "", fmt.Errorf("pod Subdomain %q is not a valid DNS label: %s", sub, strings.Join(wrong, "; "))
		}
		domain = sub + "." + pod.Namespace + ".svc"
		if n.cfg.ClusterDomain != "" {
			domain += "." + n.cfg.ClusterDomain
		}
	}
	return short, domain, nil
}

func cut(pod *corev1.Pod, name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	if short := strings.TrimRight(name[:maxHostname], "-."); short != "" {
		return short, nil
	}
	return "", fmt.Errorf("hostname for pod %q was invalid: %q", pod.Name, name)
}

// SandboxHostname is the host name to set in the pod's sandbox: with
// setHostnameAsFQDN the name with the domain, if there is one. It is empty for a pod
// on the host's network, which has the host's.
func (n *Net) SandboxHostname(pod *corev1.Pod) (string, error) {
	if pod.Spec.HostNetwork {
		return "", nil
	}
	short, domain, err := n.Hostname(pod)
	if err != nil {
		return "", err
	}
	if domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return short, nil
	}
	fqdn := short + "." + domain
	if len(fqdn) > maxKernelName {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is the max, %d characters requested)",
			fqdn, maxKernelName, len(fqdn))
	}
	return fqdn, nil
}

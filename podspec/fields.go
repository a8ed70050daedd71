package podspec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrNoField is in the error for a downward API path that the API does not have.
var ErrNoField = errors.New("podspec: no such field")

// Addresses are what a pod can learn about its place in the network. Both lists
// have the primary address first.
type Addresses struct {
	PodIPs, HostIPs []string
}

// Field is the downward API: the value of one field of the pod, such as
// metadata.labels['app'] or status.podIP. A label or annotation that the pod does
// not have, and an address that is not known yet, is the empty string. The error
// for another path wraps [ErrNoField].
func Field(pod *corev1.Pod, at Addresses, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("%w: %q", ErrNoField, path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return properties(pod.Labels), nil
	case "metadata.annotations":
		return properties(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(at.HostIPs), nil
	case "status.hostIPs":
		return strings.Join(at.HostIPs, ","), nil
	case "status.podIP":
		return first(at.PodIPs), nil
	case "status.podIPs":
		return strings.Join(at.PodIPs, ","), nil
	}
	return "", fmt.Errorf("%w: %q", ErrNoField, path)
}

// subscript splits name['key'].
func subscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "['")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// properties writes a map as the downward API does: sorted lines of key="value".
func properties(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, k+"="+strconv.Quote(v))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// ResourceField is the downward API's resourceFieldRef: a request or limit of the
// named container, or of own when the selector names none, divided by the divisor
// and rounded up. A limit that the container does not have is the pod's, else what
// the node can allocate; a request that it does not have is 0.
func ResourceField(pod *corev1.Pod, own string, s *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	name := s.ContainerName
	if name == "" {
		name = own
	}
	c, _, ok := Find(pod, name)
	if !ok {
		return "", fmt.Errorf("container %q is not in the pod", name)
	}
	kind, what, _ := strings.Cut(s.Resource, ".")
	res := corev1.ResourceName(what)
	switch {
	case kind != "limits" && kind != "requests",
		res != corev1.ResourceCPU && res != corev1.ResourceMemory && res != corev1.ResourceEphemeralStorage &&
			!strings.HasPrefix(what, corev1.ResourceHugePagesPrefix):
		return "", fmt.Errorf("%w: resource %q", ErrNoField, s.Resource)
	}
	if kind == "requests" {
		return divided(c.Resources.Requests[res], s.Divisor, res), nil
	}
	limit, ok := c.Resources.Limits[res]
	if (!ok || limit.IsZero()) && pod.Spec.Resources != nil {
		limit, ok = pod.Spec.Resources.Limits[res]
	}
	if !ok || limit.IsZero() {
		limit = allocatable[res]
	}
	return divided(limit, s.Divisor, res), nil
}

// divided rounds up, in the unit that the divisor names; without one that is
// cores, or bytes.
func divided(q, divisor resource.Quantity, name corev1.ResourceName) string {
	value, by := q.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		// In thousandths, so that 1m and 1 are both exact.
		value, by = q.MilliValue(), divisor.MilliValue()
		if divisor.IsZero() {
			by = 1000
		}
	}
	if by <= 0 {
		by = 1
	}
	n := value / by
	if value%by > 0 {
		n++
	}
	return strconv.FormatInt(n, 10)
}

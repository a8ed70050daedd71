package podenv

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The API server's own service is shown to every pod.
const (
	masterNamespace = "default"
	masterService   = "kubernetes"
)

// services are the variables of the services that the pod is shown: the master's
// and, if the pod wants links, those of its own namespace. They are in the order of
// the services' names. Links that are not given are on, the API's default.
func (b *builder) services() ([]Var, error) {
	if b.in.Services == nil {
		return nil, nil
	}
	shown := map[string]*corev1.Service{}
	masters, err := b.in.Services(masterNamespace)
	if err != nil {
		return nil, fmt.Errorf("list services of namespace %s: %w", masterNamespace, err)
	}
	for _, s := range masters {
		if s.Name == masterService && hasClusterIP(s) {
			shown[s.Name] = s
		}
	}
	if links := b.in.Pod.Spec.EnableServiceLinks; links == nil || *links {
		own, err := b.in.Services(b.in.Pod.Namespace)
		if err != nil {
			return nil, fmt.Errorf("list services of namespace %s: %w", b.in.Pod.Namespace, err)
		}
		for _, s := range own {
			if hasClusterIP(s) {
				shown[s.Name] = s
			}
		}
	}
	sorted := make([]*corev1.Service, 0, len(shown))
	for _, s := range shown {
		sorted = append(sorted, s)
	}
	slices.SortFunc(sorted, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	var vars []Var
	for _, s := range sorted {
		vars = appendService(vars, s)
	}
	return vars, nil
}

func hasClusterIP(s *corev1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// appendService writes one service in both ways that programs know: host and port,
// and the older ones of container links.
func appendService(vars []Var, s *corev1.Service) []Var {
	name, ip := variable(s.Name), s.Spec.ClusterIP
	vars = append(vars, Var{name + "_SERVICE_HOST", ip})
	if len(s.Spec.Ports) == 0 {
		return vars
	}
	vars = append(vars, Var{name + "_SERVICE_PORT", strconv.Itoa(int(s.Spec.Ports[0].Port))})
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			vars = append(vars, Var{name + "_SERVICE_PORT_" + variable(p.Name), strconv.Itoa(int(p.Port))})
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := strings.ToLower(cmp.Or(string(p.Protocol), string(corev1.ProtocolTCP)))
		port := strconv.Itoa(int(p.Port))
		url := protocol + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			vars = append(vars, Var{name + "_PORT", url})
		}
		prefix := name + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		vars = append(vars, Var{prefix, url}, Var{prefix + "_PROTO", protocol},
			Var{prefix + "_PORT", port}, Var{prefix + "_ADDR", ip})
	}
	return vars
}

// variable is a name of the API as a shell can say it.
func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

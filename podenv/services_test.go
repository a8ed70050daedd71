package podenv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podenv"
)

func service(name, ip string, ports ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p})
	}
	return s
}

// services has one list per namespace.
func services(lists map[string][]*corev1.Service) podenv.Services {
	return func(namespace string) ([]*corev1.Service, error) { return lists[namespace], nil }
}

func TestServiceVariables(t *testing.T) {
	named := service("my-db", "10.0.0.9", 5432, 53)
	named.Spec.Ports[0].Name, named.Spec.Ports[1].Name, named.Spec.Ports[1].Protocol = "sql", "dns-udp", corev1.ProtocolUDP
	in := inputs([]corev1.EnvVar{value("MY_DB_SERVICE_HOST", "mine"), value("URL", "$(MY_DB_PORT) $(MY_DB_SERVICE_HOST)")})
	in.Services = services(map[string][]*corev1.Service{"shop": {named}})
	e, err := podenv.Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := `MY_DB_SERVICE_HOST=mine
URL=tcp://10.0.0.9:5432 mine
MY_DB_SERVICE_PORT=5432
MY_DB_SERVICE_PORT_SQL=5432
MY_DB_SERVICE_PORT_DNS_UDP=53
MY_DB_PORT=tcp://10.0.0.9:5432
MY_DB_PORT_5432_TCP=tcp://10.0.0.9:5432
MY_DB_PORT_5432_TCP_PROTO=tcp
MY_DB_PORT_5432_TCP_PORT=5432
MY_DB_PORT_5432_TCP_ADDR=10.0.0.9
MY_DB_PORT_53_UDP=udp://10.0.0.9:53
MY_DB_PORT_53_UDP_PROTO=udp
MY_DB_PORT_53_UDP_PORT=53
MY_DB_PORT_53_UDP_ADDR=10.0.0.9`
	if diff := cmp.Diff(want, lines(e)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := e.Expand([]string{"$(MY_DB_SERVICE_PORT)"}); got[0] != "5432" {
		t.Errorf("an argument has %q, want the service's port", got[0])
	}
}

func TestWhichServicesAPodIsShown(t *testing.T) {
	master := service("kubernetes", "10.96.0.1", 443)
	own := service("web", "10.0.0.1", 80)
	impostor := service("kubernetes", "10.0.0.66", 443)
	no := false
	tests := []struct {
		name  string
		links *bool
		lists map[string][]*corev1.Service
		want  string // NAME=IP
	}{
		{"the master's and its own", optional(true), map[string][]*corev1.Service{"default": {master, service("other", "10.0.0.7", 1)}, "shop": {own}}, "KUBERNETES=10.96.0.1 WEB=10.0.0.1"},
		{"links by default", nil, map[string][]*corev1.Service{"default": {master}, "shop": {own}}, "KUBERNETES=10.96.0.1 WEB=10.0.0.1"},
		{"only the master's without links", &no, map[string][]*corev1.Service{"default": {master}, "shop": {own}}, "KUBERNETES=10.96.0.1"},
		{"its own service of the master's name", optional(true), map[string][]*corev1.Service{"default": {master}, "shop": {impostor}}, "KUBERNETES=10.0.0.66"},
		{"no service without an address", optional(true), map[string][]*corev1.Service{"default": {service("kubernetes", "", 1)}, "shop": {service("headless", "None", 1), service("external", "", 1)}}, ""},
		{"an address without ports", optional(true), map[string][]*corev1.Service{"shop": {service("odd", "10.0.0.5")}}, "ODD=10.0.0.5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := inputs(nil)
			in.Pod.Spec.EnableServiceLinks, in.Services = tt.links, services(tt.lists)
			e, err := podenv.Build(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range e.Vars {
				if name, ok := strings.CutSuffix(v.Name, "_SERVICE_HOST"); ok {
					got = append(got, name+"="+v.Value)
				}
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("services %v, want %s", got, tt.want)
			}
		})
	}
}

func TestIPv6ServiceURL(t *testing.T) {
	in := inputs(nil)
	in.Services = services(map[string][]*corev1.Service{"shop": {service("six", "fd00::1", 80)}})
	e, err := podenv.Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Expand([]string{"$(SIX_PORT) $(SIX_SERVICE_HOST)"}); got[0] != "tcp://[fd00::1]:80 fd00::1" {
		t.Errorf("an IPv6 service is %q", got[0])
	}
}

func TestServicesThatAreNotKnownYetAreAnError(t *testing.T) {
	unknown := errors.New("services have not yet been read at least once, cannot construct envvars")
	for _, namespace := range []string{"default", "shop"} {
		in := inputs(nil)
		in.Services = func(ns string) ([]*corev1.Service, error) {
			if ns == namespace {
				return nil, unknown
			}
			return nil, nil
		}
		if _, err := podenv.Build(t.Context(), in); !errors.Is(err, unknown) {
			t.Errorf("error %v for namespace %s, want the reader's", err, namespace)
		}
	}
}

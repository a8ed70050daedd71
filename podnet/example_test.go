package podnet_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podnet"
)

// What a pod of a cluster sees.
func Example() {
	n, err := podnet.New(podnet.Config{ClusterDomain: "cluster.local", ClusterDNS: []string{"10.96.0.10"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	pod.Spec.Subdomain = "front"
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"corp.example"}}

	fmt.Println(n.Hostname(pod))
	dns, err := n.DNS(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dns.Servers, dns.Options)
	for _, domain := range dns.Searches {
		fmt.Println(domain)
	}
	// Output:
	// web front.shop.svc.cluster.local <nil>
	// [10.96.0.10] [ndots:5]
	// shop.svc.cluster.local
	// svc.cluster.local
	// cluster.local
	// corp.example
}

package podsource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) network(spec *corev1.PodSpec, at *field.Path) {
	c.optional(at.Child("hostname"), spec.Hostname, validation.IsDNS1123Label)
	c.optional(at.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label)
	if name := spec.HostnameOverride; name != nil && *name != "" {
		at := at.Child("hostnameOverride")
		c.matches(at, *name, validation.IsDNS1123Subdomain)
		c.invalid(len(*name) > 64, at, *name, "must be at most 64 characters")
		c.forbid(spec.HostNetwork, at, "may not be set together with hostNetwork")
		c.forbid(spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN, at, "may not be set together with setHostnameAsFQDN")
	}
	for i, alias := range spec.HostAliases {
		at := at.Child("hostAliases").Index(i)
		c.ip(at.Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			c.matches(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain)
		}
	}
	oneOf(c, at.Child("dnsPolicy"), &spec.DNSPolicy, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet,
		corev1.DNSDefault, corev1.DNSNone)
	c.dns(spec, at.Child("dnsConfig"))
}

func (c *checker) dns(spec *corev1.PodSpec, at *field.Path) {
	dns := spec.DNSConfig
	if dns == nil {
		dns = &corev1.PodDNSConfig{}
	}
	if spec.DNSPolicy == corev1.DNSNone && len(dns.Nameservers) == 0 {
		c.add(field.Required(at.Child("nameservers"), "must provide at least one DNS nameserver when dnsPolicy is None"))
	}
	// The limits of the API: three servers; 32 search domains in 2048 characters.
	c.invalid(len(dns.Nameservers) > 3, at.Child("nameservers"), dns.Nameservers, "must not have more than 3 nameservers")
	for i, server := range dns.Nameservers {
		c.ip(at.Child("nameservers").Index(i), server)
	}
	c.invalid(len(dns.Searches) > 32, at.Child("searches"), len(dns.Searches), "must not have more than 32 search paths")
	c.invalid(len(strings.Join(dns.Searches, " ")) > 2048, at.Child("searches"), len(dns.Searches), "must not have more than 2048 characters (including spaces) in the search list")
	for i, domain := range dns.Searches {
		if domain != "." {
			c.matches(at.Child("searches").Index(i), strings.TrimSuffix(domain, "."), validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range dns.Options {
		c.required(at.Child("options").Index(i).Child("name"), option.Name)
	}
}

// ip takes what the API takes: also an address that is not in canonical form,
// but none that programs read in different ways.
func (c *checker) ip(at *field.Path, ip string) {
	const strict = true
	c.errs = append(c.errs, validation.IsValidIPForLegacyField(at, ip, strict, nil)...)
}

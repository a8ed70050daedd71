package podsource

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate finds what the API server would refuse on create and this node would
// stumble over later. The pod has its defaults.
func validate(pod *corev1.Pod) field.ErrorList {
	c := &checker{spec: &pod.Spec}
	c.errs = apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	c.uid(string(pod.UID))
	spec := field.NewPath("spec")
	c.podSpec(&pod.Spec, spec)
	c.schedule(&pod.Spec, spec)
	c.network(&pod.Spec, spec)
	c.podSecurity(&pod.Spec, spec.Child("securityContext"))
	c.volumes(pod.Spec.Volumes, spec.Child("volumes"))
	c.containers(&pod.Spec, spec)
	return c.errs
}

// checker collects faults. Its methods check one thing each and go on.
type checker struct {
	errs field.ErrorList
	spec *corev1.PodSpec
	// volumeNames is filled before the containers that mount them are checked.
	volumeNames sets.Set[string]
}

func (c *checker) add(err *field.Error) { c.errs = append(c.errs, err) }

func (c *checker) invalid(is bool, path *field.Path, value any, why string) {
	if is {
		c.add(field.Invalid(path, value, why))
	}
}

func (c *checker) forbid(is bool, path *field.Path, why string) {
	if is {
		c.add(field.Forbidden(path, why))
	}
}

// required reports an empty value, and whether there is one to check further.
func (c *checker) required(path *field.Path, value string) bool {
	if value == "" {
		c.add(field.Required(path, ""))
	}
	return value != ""
}

// matches applies one of apimachinery's checks, which answer with messages.
func (c *checker) matches(path *field.Path, value string, check func(string) []string) {
	for _, why := range check(value) {
		c.add(field.Invalid(path, value, why))
	}
}

// optional is matches for a field that may be empty.
func (c *checker) optional(path *field.Path, value string, check func(string) []string) {
	if value != "" {
		c.matches(path, value, check)
	}
}

func (c *checker) number(path *field.Path, value, least, most int64) {
	switch {
	case value >= least && value <= most:
	case most >= math.MaxInt32:
		c.add(field.Invalid(path, value, fmt.Sprintf("must be at least %d and fit its type", least)))
	default:
		c.add(field.Invalid(path, value, validation.InclusiveRangeError(int(least), int(most))))
	}
}

// oneOf checks an enumeration. A nil pointer is a field that is not set.
func oneOf[T ~string](c *checker, path *field.Path, value *T, allowed ...T) {
	if value != nil && !slices.Contains(allowed, *value) {
		c.add(field.NotSupported(path, *value, allowed))
	}
}

// twice reports a value that stands in the list before.
func twice[T comparable](c *checker, seen sets.Set[T], path *field.Path, value T) {
	if seen.Has(value) {
		c.add(field.Duplicate(path, value))
	}
	seen.Insert(value)
}

var uidForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// uid must be fit for a directory name and for a cgroup name.
func (c *checker) uid(uid string) {
	c.invalid(!uidForm.MatchString(uid), field.NewPath("metadata", "uid"), uid,
		"want at most 128 letters, digits, '-', '_' or '.', with a letter or digit at both ends")
}

func (c *checker) podSpec(spec *corev1.PodSpec, at *field.Path) {
	oneOf(c, at.Child("restartPolicy"), &spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	c.number(at.Child("terminationGracePeriodSeconds"), *spec.TerminationGracePeriodSeconds, 0, math.MaxInt64)
	if deadline := spec.ActiveDeadlineSeconds; deadline != nil {
		c.number(at.Child("activeDeadlineSeconds"), *deadline, 1, math.MaxInt32)
	}
	c.forbid(len(spec.EphemeralContainers) > 0, at.Child("ephemeralContainers"), "may only be added to a running pod")
	c.forbid(spec.HostPID && spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace,
		at.Child("shareProcessNamespace"), "may not be true together with hostPID")
	if spec.HostUsers != nil && !*spec.HostUsers {
		c.forbid(spec.HostNetwork, at.Child("hostNetwork"), "may not be true when hostUsers is false")
		c.forbid(spec.HostPID, at.Child("hostPID"), "may not be true when hostUsers is false")
		c.forbid(spec.HostIPC, at.Child("hostIPC"), "may not be true when hostUsers is false")
	}
	if spec.OS != nil {
		oneOf(c, at.Child("os", "name"), &spec.OS.Name, corev1.Linux, corev1.Windows)
	}
	if class := spec.RuntimeClassName; class != nil {
		c.matches(at.Child("runtimeClassName"), *class, validation.IsDNS1123Subdomain)
	}
	for i, gate := range spec.ReadinessGates {
		c.matches(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName)
	}
	c.quantities(spec.Overhead, at.Child("overhead"))
	if spec.Resources != nil {
		c.podResources(spec.Resources, at.Child("resources"))
	}
}

func (c *checker) schedule(spec *corev1.PodSpec, at *field.Path) {
	c.matches(at.Child("schedulerName"), spec.SchedulerName, validation.IsDNS1123Subdomain)
	c.optional(at.Child("priorityClassName"), spec.PriorityClassName, validation.IsDNS1123Subdomain)
	oneOf(c, at.Child("preemptionPolicy"), spec.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	c.forbid(len(spec.SchedulingGates) > 0, at.Child("schedulingGates"), "the pod is on a node already")
	c.errs = append(c.errs, metavalidation.ValidateLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	for i, t := range spec.Tolerations {
		at := at.Child("tolerations").Index(i)
		c.optional(at.Child("key"), t.Key, validation.IsQualifiedName)
		exists := t.Operator == corev1.TolerationOpExists
		c.invalid(t.Key == "" && !exists, at.Child("operator"), t.Operator, "must be Exists when key is empty")
		c.invalid(exists && t.Value != "", at.Child("value"), t.Value, "must be empty when operator is Exists")
		c.invalid(t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute,
			at.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set")
		oneOf(c, at.Child("effect"), &t.Effect, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
		oneOf(c, at.Child("operator"), &t.Operator, "", corev1.TolerationOpEqual, corev1.TolerationOpExists,
			corev1.TolerationOpLt, corev1.TolerationOpGt)
	}
}

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
		c.errs = append(c.errs, validation.IsValidIP(at.Child("ip"), alias.IP)...)
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
		c.add(field.Required(at.Child("nameservers"), "dnsPolicy None needs at least one"))
	}
	// The limits of the API: three servers; 32 search domains in 2048 characters.
	c.invalid(len(dns.Nameservers) > 3, at.Child("nameservers"), dns.Nameservers, "must be at most 3")
	for i, server := range dns.Nameservers {
		c.errs = append(c.errs, validation.IsValidIP(at.Child("nameservers").Index(i), server)...)
	}
	c.invalid(len(dns.Searches) > 32, at.Child("searches"), len(dns.Searches), "must be at most 32 domains")
	c.invalid(len(strings.Join(dns.Searches, " ")) > 2048, at.Child("searches"), len(dns.Searches), "must be at most 2048 characters together")
	for i, domain := range dns.Searches {
		if domain != "." {
			c.matches(at.Child("searches").Index(i), strings.TrimSuffix(domain, "."), validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range dns.Options {
		c.required(at.Child("options").Index(i).Child("name"), option.Name)
	}
}

func (c *checker) podSecurity(spec *corev1.PodSpec, at *field.Path) {
	sc := spec.SecurityContext
	c.userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	for i, id := range sc.SupplementalGroups {
		for _, why := range validation.IsValidGroupID(id) {
			c.add(field.Invalid(at.Child("supplementalGroups").Index(i), id, why))
		}
	}
	if sc.FSGroup != nil {
		for _, why := range validation.IsValidGroupID(*sc.FSGroup) {
			c.add(field.Invalid(at.Child("fsGroup"), *sc.FSGroup, why))
		}
	}
	oneOf(c, at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	oneOf(c, at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	c.profiles(sc.SeccompProfile, sc.AppArmorProfile, at)
	c.sysctls(spec, at.Child("sysctls"))
}

// sysctlForm is a sysctl's name, with dots or slashes between its parts.
var sysctlForm = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c *checker) sysctls(spec *corev1.PodSpec, at *field.Path) {
	names := sets.New[string]()
	for i, s := range spec.SecurityContext.Sysctls {
		at := at.Index(i).Child("name")
		if !c.required(at, s.Name) {
			continue
		}
		c.invalid(!sysctlForm.MatchString(s.Name) || len(s.Name) > 253, at, s.Name, "want the name of a sysctl, such as net.core.somaxconn")
		twice(c, names, at, strings.ReplaceAll(s.Name, "/", "."))
	}
}

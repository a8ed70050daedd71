package podsource

import (
	"fmt"
	"math"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate finds what the API server would refuse on create and this node would
// stumble over later. The pod has its defaults.
func validate(pod *corev1.Pod) field.ErrorList {
	c := &checker{spec: &pod.Spec}
	c.know(&pod.Spec)
	c.errs = apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	c.uid(string(pod.UID))
	c.annotations(pod.Annotations, field.NewPath("metadata", "annotations"))
	spec := field.NewPath("spec")
	c.podSpec(&pod.Spec, spec)
	c.os(&pod.Spec, spec)
	c.schedule(&pod.Spec, spec)
	c.network(&pod.Spec, spec)
	c.podSecurity(&pod.Spec, spec.Child("securityContext"))
	c.podVolumes(pod.Spec.Volumes, spec.Child("volumes"))
	c.podContainers(&pod.Spec, spec)
	return c.errs
}

// checker collects faults. Its methods check one thing each and go on.
type checker struct {
	errs field.ErrorList
	spec *corev1.PodSpec
	// What other fields refer to by name.
	volumes    map[string]*corev1.Volume
	containers sets.Set[string]
}

func (c *checker) know(spec *corev1.PodSpec) {
	c.volumes = make(map[string]*corev1.Volume, len(spec.Volumes))
	for i := range spec.Volumes {
		c.volumes[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	c.containers = sets.New[string]()
	eachContainer(spec, func(ctr *corev1.Container, _ *field.Path) { c.containers.Insert(ctr.Name) })
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
	case value < least && most >= math.MaxInt32:
		c.add(field.Invalid(path, value, fmt.Sprintf("must be greater than or equal to %d", least)))
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
	if class := spec.RuntimeClassName; class != nil {
		c.matches(at.Child("runtimeClassName"), *class, validation.IsDNS1123Subdomain)
	}
	for i, gate := range spec.ReadinessGates {
		c.matches(at.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName)
	}
	c.quantities(spec.Overhead, at.Child("overhead"))
	c.hugePages(spec.Overhead, at.Child("overhead"))
	if spec.Resources != nil {
		c.podResources(spec.Resources, at.Child("resources"))
	}
}

package podsource

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// setDefaults fills what the API server fills on create. The values are those
// of the v1 API documentation; what admission plug-ins of a cluster would add
// (priority, service account, runtime class overhead) is not among them.
func setDefaults(pod *corev1.Pod) {
	spec := &pod.Spec
	orElse(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orElse(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orElse(&spec.SchedulerName, corev1.DefaultSchedulerName)
	pointTo(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	pointTo(&spec.SecurityContext, corev1.PodSecurityContext{})
	pointTo(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	eachContainer(spec, func(c *corev1.Container, _ *field.Path) {
		defaultContainer(c, spec.HostNetwork)
	})
	// Init containers that end before anything else starts can't be resized.
	for i := range spec.InitContainers {
		if isSidecar(&spec.InitContainers[i]) {
			defaultResizePolicy(&spec.InitContainers[i])
		}
	}
	for i := range spec.Containers {
		defaultResizePolicy(&spec.Containers[i])
	}
	roundUp(spec.Overhead)
	defaultPodResources(spec)
}

// orElse sets an empty field.
func orElse[T comparable](at *T, value T) {
	var empty T
	if *at == empty {
		*at = value
	}
}

// pointTo sets a missing optional field.
func pointTo[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	orElse(&c.ImagePullPolicy, pullPolicyFor(c.Image))
	orElse(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orElse(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orElse(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			orElse(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				pointTo(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for name, limit := range c.Resources.Limits {
		request(&c.Resources, name, limit)
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

// pullPolicyFor is Always for what may change under its name: the tag latest,
// also when it is only implied.
func pullPolicyFor(image string) corev1.PullPolicy {
	name, _, hasDigest := strings.Cut(image, "@")
	_, tag, hasTag := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !hasTag && !hasDigest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		orElse(&ref.APIVersion, "v1")
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	orElse(&p.TimeoutSeconds, 1)
	orElse(&p.PeriodSeconds, 10)
	orElse(&p.SuccessThreshold, 1)
	orElse(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		pointTo(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		orElse(&get.Path, "/")
		orElse(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// defaultResizePolicy says that cpu and memory, where they are given, may
// change without a restart.
func defaultResizePolicy(c *corev1.Container) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, limited := c.Resources.Limits[name]
		_, requested := c.Resources.Requests[name]
		has := slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.ResourceName == name })
		if (limited || requested) && !has {
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{
				ResourceName: name, RestartPolicy: corev1.NotRequired})
		}
	}
}

// roundUp brings quantities to the finest that the API stores, one thousandth.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// request sets a missing request.
func request(r *corev1.ResourceRequirements, name corev1.ResourceName, q resource.Quantity) {
	if _, ok := r.Requests[name]; ok {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	r.Requests[name] = q.DeepCopy()
}

// defaultPodResources fills the requests of the pod as a whole, where it has
// resources of its own: what its containers request together, else its limits.
func defaultPodResources(spec *corev1.PodSpec) {
	if spec.Resources == nil {
		return
	}
	roundUp(spec.Resources.Limits)
	roundUp(spec.Resources.Requests)
	for name, q := range requestsOfContainers(spec) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name) {
			request(spec.Resources, name, q)
		}
		// Pages can't be overcommitted: the limit is what is requested.
		if _, limited := spec.Resources.Limits[name]; isHugePages(name) && !limited {
			if spec.Resources.Limits == nil {
				spec.Resources.Limits = corev1.ResourceList{}
			}
			spec.Resources.Limits[name] = q.DeepCopy()
		}
	}
	for name, limit := range spec.Resources.Limits {
		request(spec.Resources, name, limit)
	}
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// requestsOfContainers is what the containers need at the most demanding moment:
// all of them beside the sidecars, or one init container beside the sidecars
// that stand before it (KEP-753).
func requestsOfContainers(spec *corev1.PodSpec) corev1.ResourceList {
	running, peak := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if isSidecar(c) {
			addTo(running, c.Resources.Requests)
			continue
		}
		now := maps.Clone(running)
		addTo(now, c.Resources.Requests)
		raiseTo(peak, now)
	}
	for i := range spec.Containers {
		addTo(running, spec.Containers[i].Resources.Requests)
	}
	raiseTo(peak, running)
	return peak
}

func addTo(sum, more corev1.ResourceList) {
	for name, q := range more {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

func raiseTo(peak, list corev1.ResourceList) {
	for name, q := range list {
		if old, ok := peak[name]; !ok || old.Cmp(q) < 0 {
			peak[name] = q.DeepCopy()
		}
	}
}

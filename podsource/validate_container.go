package podsource

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podContainers(spec *corev1.PodSpec, at *field.Path) {
	if len(spec.Containers) == 0 {
		c.add(field.Required(at.Child("containers"), "a pod has at least one"))
	}
	names := sets.New[string]()
	hostPorts := sets.New[corev1.ContainerPort]()
	eachContainer(spec, func(ctr *corev1.Container, at *field.Path) {
		if c.required(at.Child("name"), ctr.Name) {
			c.matches(at.Child("name"), ctr.Name, validation.IsDNS1123Label)
			twice(c, names, at.Child("name"), ctr.Name)
		}
		c.container(ctr, at)
		c.restart(ctr, at)
		c.ports(ctr, at.Child("ports"))
		c.env(ctr, at)
		c.resources(&ctr.Resources, at.Child("resources"))
		c.mounts(ctr, at)
		c.probes(ctr, at)
		c.security(ctr.SecurityContext, at.Child("securityContext"))
	})
	for i := range spec.InitContainers {
		ctr, at := &spec.InitContainers[i], at.Child("initContainers").Index(i)
		if !isSidecar(ctr) {
			c.runsToItsEnd(ctr, at)
		}
		c.hostPorts(ctr, at.Child("ports"), sets.New[corev1.ContainerPort]())
	}
	for i := range spec.Containers {
		c.hostPorts(&spec.Containers[i], at.Child("containers").Index(i).Child("ports"), hostPorts)
	}
}

func (c *checker) container(ctr *corev1.Container, at *field.Path) {
	if c.required(at.Child("image"), ctr.Image) {
		c.invalid(strings.TrimSpace(ctr.Image) != ctr.Image, at.Child("image"), ctr.Image, "must not have leading or trailing whitespace")
	}
	oneOf(c, at.Child("imagePullPolicy"), &ctr.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	oneOf(c, at.Child("terminationMessagePolicy"), &ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	c.resizePolicy(ctr, at.Child("resizePolicy"))
}

// resizePolicy: a container that runs once can't be resized by running it again.
func (c *checker) resizePolicy(ctr *corev1.Container, at *field.Path) {
	never := c.spec.RestartPolicy == corev1.RestartPolicyNever
	if ctr.RestartPolicy != nil {
		never = *ctr.RestartPolicy == corev1.ContainerRestartPolicyNever
	}
	policies := sets.New[corev1.ResourceName]()
	for i, p := range ctr.ResizePolicy {
		at := at.Index(i)
		oneOf(c, at.Child("resourceName"), &p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		twice(c, policies, at.Child("resourceName"), p.ResourceName)
		if !c.required(at.Child("restartPolicy"), string(p.RestartPolicy)) {
			continue
		}
		oneOf(c, at.Child("restartPolicy"), &p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		c.invalid(never && p.RestartPolicy == corev1.RestartContainer, at.Child("restartPolicy"), p.RestartPolicy,
			"must be 'NotRequired' when `restartPolicy` is 'Never'")
	}
}

// runsToItsEnd checks an init container that is no sidecar: it is over before
// there is anything to probe or to stop.
func (c *checker) runsToItsEnd(ctr *corev1.Container, at *field.Path) {
	const why = "may not be set for init containers without restartPolicy=Always"
	c.forbid(ctr.LivenessProbe != nil, at.Child("livenessProbe"), why)
	c.forbid(ctr.ReadinessProbe != nil, at.Child("readinessProbe"), why)
	c.forbid(ctr.StartupProbe != nil, at.Child("startupProbe"), why)
	c.forbid(ctr.Lifecycle != nil, at.Child("lifecycle"), why)
}

// restart checks a container's own restart policy (KEP-753, KEP-5307).
func (c *checker) restart(ctr *corev1.Container, at *field.Path) {
	oneOf(c, at.Child("restartPolicy"), ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways,
		corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
	rules := at.Child("restartPolicyRules")
	if len(ctr.RestartPolicyRules) > 0 && ctr.RestartPolicy == nil {
		c.add(field.Required(at.Child("restartPolicy"), "restartPolicyRules need one to fall back on"))
	}
	c.invalid(len(ctr.RestartPolicyRules) > 20, rules, len(ctr.RestartPolicyRules), "must be at most 20")
	for i, rule := range ctr.RestartPolicyRules {
		at := rules.Index(i)
		oneOf(c, at.Child("action"), &rule.Action, corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.add(field.Required(at.Child("exitCodes"), ""))
			continue
		}
		oneOf(c, at.Child("exitCodes", "operator"), &rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		c.number(at.Child("exitCodes", "values"), int64(len(rule.ExitCodes.Values)), 1, 255)
	}
}

func (c *checker) ports(ctr *corev1.Container, at *field.Path) {
	names := sets.New[string]()
	for i, p := range ctr.Ports {
		at := at.Index(i)
		if p.Name != "" {
			c.matches(at.Child("name"), p.Name, validation.IsValidPortName)
			twice(c, names, at.Child("name"), p.Name)
		}
		c.number(at.Child("containerPort"), int64(p.ContainerPort), 1, 65535)
		c.number(at.Child("hostPort"), int64(p.HostPort), 0, 65535)
		c.invalid(c.spec.HostNetwork && p.HostPort != p.ContainerPort, at.Child("hostPort"), p.HostPort,
			"must match `containerPort` when `hostNetwork` is true")
		if p.HostIP != "" {
			c.ip(at.Child("hostIP"), p.HostIP)
		}
		oneOf(c, at.Child("protocol"), &p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	}
}

// hostPorts are taken once per protocol and address. Init containers may reuse
// them: they run at other times.
func (c *checker) hostPorts(ctr *corev1.Container, at *field.Path, taken sets.Set[corev1.ContainerPort]) {
	for i, p := range ctr.Ports {
		if p.HostPort != 0 {
			twice(c, taken, at.Index(i).Child("hostPort"), corev1.ContainerPort{HostPort: p.HostPort, Protocol: p.Protocol, HostIP: p.HostIP})
		}
	}
}

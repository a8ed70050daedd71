package podsource

import (
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) containers(spec *corev1.PodSpec, at *field.Path) {
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
		if ctr := &spec.InitContainers[i]; !isSidecar(ctr) {
			c.runsToItsEnd(ctr, at.Child("initContainers").Index(i))
		}
	}
	for i := range spec.Containers {
		c.hostPorts(&spec.Containers[i], at.Child("containers").Index(i).Child("ports"), hostPorts)
	}
}

func (c *checker) container(ctr *corev1.Container, at *field.Path) {
	if c.required(at.Child("image"), ctr.Image) {
		c.invalid(strings.TrimSpace(ctr.Image) != ctr.Image, at.Child("image"), ctr.Image, "must not begin or end with white space")
	}
	oneOf(c, at.Child("imagePullPolicy"), &ctr.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	oneOf(c, at.Child("terminationMessagePolicy"), &ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	policies := sets.New[corev1.ResourceName]()
	for i, p := range ctr.ResizePolicy {
		at := at.Child("resizePolicy").Index(i)
		oneOf(c, at.Child("resourceName"), &p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		oneOf(c, at.Child("restartPolicy"), &p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		twice(c, policies, at.Child("resourceName"), p.ResourceName)
	}
}

// runsToItsEnd checks an init container that is no sidecar: it is over before
// there is anything to probe or to stop.
func (c *checker) runsToItsEnd(ctr *corev1.Container, at *field.Path) {
	const why = "may not be set for an init container without restartPolicy Always"
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
			"must equal containerPort when hostNetwork is true")
		if p.HostIP != "" {
			c.errs = append(c.errs, validation.IsValidIP(at.Child("hostIP"), p.HostIP)...)
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

func (c *checker) env(ctr *corev1.Container, at *field.Path) {
	for i, e := range ctr.Env {
		at := at.Child("env").Index(i)
		if c.required(at.Child("name"), e.Name) {
			c.matches(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		}
		if e.ValueFrom == nil {
			continue
		}
		at = at.Child("valueFrom")
		c.invalid(e.Value != "", at, "{...}", "may not be set together with value")
		c.exactlyOne(at, e.ValueFrom.FieldRef != nil, e.ValueFrom.ResourceFieldRef != nil, e.ValueFrom.ConfigMapKeyRef != nil,
			e.ValueFrom.SecretKeyRef != nil, e.ValueFrom.FileKeyRef != nil)
		c.fieldRef(e.ValueFrom.FieldRef, at.Child("fieldRef"), "spec.nodeName", "spec.serviceAccountName",
			"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs")
		c.resourceRef(e.ValueFrom.ResourceFieldRef, at.Child("resourceFieldRef"))
		if key := e.ValueFrom.FileKeyRef; key != nil {
			at := at.Child("fileKeyRef")
			c.required(at.Child("key"), key.Key)
			c.relative(at.Child("path"), key.Path)
			if c.required(at.Child("volumeName"), key.VolumeName) && !c.volumeNames.Has(key.VolumeName) {
				c.add(field.NotFound(at.Child("volumeName"), key.VolumeName))
			}
		}
	}
	for i, from := range ctr.EnvFrom {
		at := at.Child("envFrom").Index(i)
		c.optional(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
		c.exactlyOne(at, from.ConfigMapRef != nil, from.SecretRef != nil)
	}
}

// exactlyOne checks a union.
func (c *checker) exactlyOne(at *field.Path, set ...bool) {
	n := 0
	for _, is := range set {
		if is {
			n++
		}
	}
	if n == 0 {
		c.add(field.Required(at, "must specify one of its members"))
	}
	c.forbid(n > 1, at, "may not specify more than one of its members")
}

// fieldRef checks a downward reference to a field of the pod; more are the
// fields that are allowed here beside those of metadata.
func (c *checker) fieldRef(ref *corev1.ObjectFieldSelector, at *field.Path, more ...string) {
	if ref == nil {
		return
	}
	oneOf(c, at.Child("apiVersion"), &ref.APIVersion, "v1")
	at = at.Child("fieldPath")
	if !c.required(at, ref.FieldPath) {
		return
	}
	if whole, key, ok := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['"); ok {
		oneOf(c, at, &whole, "metadata.labels", "metadata.annotations")
		c.matches(at, strings.ToLower(key), validation.IsQualifiedName)
		return
	}
	allowed := append([]string{"metadata.name", "metadata.namespace", "metadata.uid"}, more...)
	oneOf(c, at, &ref.FieldPath, allowed...)
}

func (c *checker) resourceRef(ref *corev1.ResourceFieldSelector, at *field.Path) {
	if ref == nil || !c.required(at.Child("resource"), ref.Resource) {
		return
	}
	_, name, _ := strings.Cut(ref.Resource, ".")
	if !isHugePages(corev1.ResourceName(name)) {
		oneOf(c, at.Child("resource"), &ref.Resource, "limits.cpu", "limits.memory", "limits.ephemeral-storage",
			"requests.cpu", "requests.memory", "requests.ephemeral-storage")
	}
	if ref.ContainerName != "" && !slices.ContainsFunc(slices.Concat(c.spec.InitContainers, c.spec.Containers),
		func(ctr corev1.Container) bool { return ctr.Name == ref.ContainerName }) {
		c.add(field.NotFound(at.Child("containerName"), ref.ContainerName))
	}
}

func (c *checker) mounts(ctr *corev1.Container, at *field.Path) {
	paths := sets.New[string]()
	privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
	for i, m := range ctr.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if c.required(at.Child("name"), m.Name) && !c.volumeNames.Has(m.Name) {
			c.add(field.NotFound(at.Child("name"), m.Name))
		}
		if c.required(at.Child("mountPath"), m.MountPath) {
			c.invalid(strings.Contains(m.MountPath, ":"), at.Child("mountPath"), m.MountPath, "must not contain ':'")
			twice(c, paths, at.Child("mountPath"), m.MountPath)
		}
		if m.SubPath != "" {
			c.relative(at.Child("subPath"), m.SubPath)
			c.forbid(m.SubPathExpr != "", at.Child("subPathExpr"), "may not be set together with subPath")
		}
		if m.SubPathExpr != "" {
			c.relative(at.Child("subPathExpr"), m.SubPathExpr)
		}
		oneOf(c, at.Child("mountPropagation"), m.MountPropagation, corev1.MountPropagationNone,
			corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
		c.forbid(m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged,
			at.Child("mountPropagation"), "Bidirectional is for privileged containers only")
		oneOf(c, at.Child("recursiveReadOnly"), m.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled,
			corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
		c.forbid(m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly,
			at.Child("recursiveReadOnly"), "needs readOnly true")
		for j, option := range m.BindMountOptions {
			oneOf(c, at.Child("bindMountOptions").Index(j), &option, "noexec", "nodev", "nosuid")
		}
	}
	for i, d := range ctr.VolumeDevices {
		at := at.Child("volumeDevices").Index(i)
		if c.required(at.Child("name"), d.Name) && !c.volumeNames.Has(d.Name) {
			c.add(field.NotFound(at.Child("name"), d.Name))
		}
		if c.required(at.Child("devicePath"), d.DevicePath) {
			twice(c, paths, at.Child("devicePath"), d.DevicePath)
		}
	}
}

// relative checks a path that must stay inside its volume.
func (c *checker) relative(at *field.Path, p string) {
	if c.required(at, p) {
		c.invalid(path.IsAbs(p), at, p, "must be a relative path")
		c.noUpwards(at, p)
	}
}

func (c *checker) noUpwards(at *field.Path, p string) {
	c.invalid(slices.Contains(strings.Split(p, "/"), ".."), at, p, "must not contain '..'")
}

func (c *checker) probes(ctr *corev1.Container, at *field.Path) {
	c.probe(ctr.LivenessProbe, at.Child("livenessProbe"), true)
	c.probe(ctr.ReadinessProbe, at.Child("readinessProbe"), false)
	c.probe(ctr.StartupProbe, at.Child("startupProbe"), true)
	if ctr.Lifecycle == nil {
		return
	}
	at = at.Child("lifecycle")
	c.handler(ctr.Lifecycle.PostStart, at.Child("postStart"))
	c.handler(ctr.Lifecycle.PreStop, at.Child("preStop"))
	if s := ctr.Lifecycle.StopSignal; s != nil {
		c.forbid(c.spec.OS == nil, at.Child("stopSignal"), "needs spec.os.name")
		c.invalid(!strings.HasPrefix(string(*s), "SIG"), at.Child("stopSignal"), *s, "want the name of a signal, such as SIGTERM")
	}
}

// probe checks one probe. One that kills has no use for several successes.
func (c *checker) probe(p *corev1.Probe, at *field.Path, kills bool) {
	if p == nil {
		return
	}
	c.exactlyOne(at, p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil)
	c.actions(p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		c.number(at.Child("grpc", "port"), int64(p.GRPC.Port), 1, 65535)
		oneOf(c, at.Child("grpc", "mode"), p.GRPC.Mode, corev1.GRPCProbeModePlaintext, corev1.GRPCProbeModeTLS)
	}
	c.number(at.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds), 0, math.MaxInt32)
	c.number(at.Child("timeoutSeconds"), int64(p.TimeoutSeconds), 1, math.MaxInt32)
	c.number(at.Child("periodSeconds"), int64(p.PeriodSeconds), 1, math.MaxInt32)
	c.number(at.Child("successThreshold"), int64(p.SuccessThreshold), 1, math.MaxInt32)
	c.number(at.Child("failureThreshold"), int64(p.FailureThreshold), 1, math.MaxInt32)
	c.invalid(kills && p.SuccessThreshold > 1, at.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	if grace := p.TerminationGracePeriodSeconds; grace != nil {
		c.number(at.Child("terminationGracePeriodSeconds"), *grace, 1, math.MaxInt64)
		c.forbid(!kills, at.Child("terminationGracePeriodSeconds"), "a readiness probe stops nothing")
	}
}

func (c *checker) handler(h *corev1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	c.exactlyOne(at, h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.Sleep != nil)
	c.actions(h.Exec, h.HTTPGet, h.TCPSocket, at)
	if h.Sleep != nil {
		c.number(at.Child("sleep", "seconds"), h.Sleep.Seconds, 0, max(0, *c.spec.TerminationGracePeriodSeconds))
	}
}

// actions checks what probes and lifecycle hooks have in common.
func (c *checker) actions(exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction, at *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		c.add(field.Required(at.Child("exec", "command"), ""))
	}
	if tcp != nil {
		c.port(tcp.Port, at.Child("tcpSocket", "port"))
	}
	if get == nil {
		return
	}
	at = at.Child("httpGet")
	c.port(get.Port, at.Child("port"))
	oneOf(c, at.Child("scheme"), &get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	oneOf(c, at.Child("protocol"), get.Protocol, corev1.HTTPProtocolHTTP1, corev1.HTTPProtocolHTTP2)
	c.invalid(get.Protocol != nil && *get.Protocol == corev1.HTTPProtocolHTTP2 && get.Scheme != corev1.URISchemeHTTP,
		at.Child("scheme"), get.Scheme, "must be HTTP when protocol is HTTP2")
	for i, h := range get.HTTPHeaders {
		c.matches(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName)
	}
}

func (c *checker) port(p intstr.IntOrString, at *field.Path) {
	if p.Type == intstr.String {
		c.matches(at, p.StrVal, validation.IsValidPortName)
		return
	}
	c.number(at, int64(p.IntVal), 1, 65535)
}

package podsource

import (
	"fmt"
	"math"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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
		c.stopSignal(*s, at.Child("stopSignal"))
	}
}

// stopSignal: what the signals are is a matter of the system that the pod names.
func (c *checker) stopSignal(s corev1.Signal, at *field.Path) {
	switch {
	case c.spec.OS == nil:
		c.add(field.Forbidden(at, "may not be set for containers with an empty `spec.os.name`"))
	case c.spec.OS.Name == corev1.Windows:
		oneOf(c, at, &s, corev1.SIGKILL, corev1.SIGTERM)
	default:
		c.invalid(!signalForm.MatchString(string(s)), at, s, "must be the name of a Linux signal, such as SIGTERM or SIGRTMIN+1")
	}
}

// signalForm matches the values that the API documents for Linux.
var signalForm = regexp.MustCompile(`^SIG(ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|` +
	`SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(\+([1-9]|1[0-5]))?|RTMAX(-([1-9]|1[0-4]))?)$`)

// probe checks one probe. One that kills has no use for several successes.
func (c *checker) probe(p *corev1.Probe, at *field.Path, kills bool) {
	if p == nil {
		return
	}
	c.oneHandler(at, p.ProbeHandler)
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
		at := at.Child("terminationGracePeriodSeconds")
		c.invalid(*grace <= 0, at, *grace, "must be greater than 0")
		c.invalid(!kills, at, *grace, "must not be set for readinessProbes")
	}
}

func (c *checker) handler(h *corev1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	c.oneHandler(at, *h)
	c.actions(h.Exec, h.HTTPGet, h.TCPSocket, at)
	if h.Sleep != nil {
		grace := max(0, *c.spec.TerminationGracePeriodSeconds)
		c.invalid(h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace, at.Child("sleep", "seconds"), h.Sleep.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", grace))
	}
}

func (c *checker) oneHandler(at *field.Path, handler any) {
	if !c.onlyFirst(at, handler, "may not specify more than 1 handler type") {
		c.add(field.Required(at, "must specify a handler type"))
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

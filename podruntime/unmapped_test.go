package podruntime_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/podruntime"
)

// defaulted is a pod as the API's defaulting leaves it, with every mapped field.
func defaulted() *corev1.Pod {
	p := pod("Always", "i:i0", "s:s", "a")
	s := &p.Spec
	s.NodeName, s.SchedulerName = "node", "default-scheduler"
	s.Tolerations = []corev1.Toleration{{Effect: "NoExecute", Operator: "Exists"}}
	s.Priority, s.PriorityClassName, s.PreemptionPolicy = ptr(int32(1)), "high", ptr(corev1.PreemptLowerPriority)
	s.EnableServiceLinks, s.AutomountServiceAccountToken = ptr(true), ptr(false)
	s.ServiceAccountName, s.DeprecatedServiceAccount = "default", "default"
	s.TerminationGracePeriodSeconds, s.ActiveDeadlineSeconds = ptr(int64(30)), ptr(int64(60))
	s.HostNetwork, s.HostPID, s.HostIPC, s.HostUsers, s.ShareProcessNamespace = true, true, true, ptr(true), ptr(true)
	s.Hostname, s.SetHostnameAsFQDN, s.DNSPolicy = "h", ptr(false), corev1.DNSClusterFirst
	s.OS = &corev1.PodOS{Name: corev1.Linux}
	s.SecurityContext = &corev1.PodSecurityContext{}
	s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1}}
	s.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{},
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}},
	}
	s.Volumes = []corev1.Volume{
		{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv", Type: ptr(corev1.HostPathDirectory)}}},
		{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	for _, c := range []*corev1.Container{&s.InitContainers[0], &s.InitContainers[1], &s.Containers[0]} {
		c.ImagePullPolicy = corev1.PullIfNotPresent
		c.Command, c.Args, c.WorkingDir = []string{"x"}, []string{"y"}, "/"
		c.Env = []corev1.EnvVar{{Name: "A", Value: "1"}}
		c.Ports = []corev1.ContainerPort{{Name: "p", HostPort: 1, ContainerPort: 1, Protocol: "TCP", HostIP: "::1"}}
		c.Resources = corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
		c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: "NotRequired"}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "h", MountPath: "/h", ReadOnly: true,
			RecursiveReadOnly: ptr(corev1.RecursiveReadOnlyDisabled), MountPropagation: ptr(corev1.MountPropagationNone)}}
		c.VolumeDevices = []corev1.VolumeDevice{} // written out, and empty
		c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
		c.SecurityContext = &corev1.SecurityContext{}
		c.Stdin, c.StdinOnce, c.TTY = true, true, true
	}
	c := &s.Containers[0]
	c.RestartPolicy = ptr(corev1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{1}}}}
	return p
}

func TestWhatIsMappedPasses(t *testing.T) {
	if errs := podruntime.Unmapped(defaulted()); len(errs) > 0 {
		t.Errorf("Unmapped = %v", errs)
	}
}

func TestWhatIsNotMappedIsRefusedByItsPath(t *testing.T) {
	tests := []struct {
		path   string
		change func(*corev1.PodSpec)
	}{
		{"spec.automountServiceAccountToken", func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = ptr(true) }},
		{"spec.resourceClaims", func(s *corev1.PodSpec) { s.ResourceClaims = make([]corev1.PodResourceClaim, 1) }},
		{"spec.os.name", func(s *corev1.PodSpec) { s.OS.Name = corev1.Windows }},
		{"spec.securityContext.windowsOptions", func(s *corev1.PodSpec) { s.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{} }},
		{"spec.overhead[example.com/gpu]", func(s *corev1.PodSpec) { s.Overhead = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")} }},
		{"spec.evictionResponders", func(s *corev1.PodSpec) { s.EvictionResponders = make([]corev1.EvictionResponder, 1) }},
		{"spec.volumes[1].emptyDir.sizeLimit", func(s *corev1.PodSpec) { s.Volumes[1].EmptyDir.SizeLimit = resource.NewQuantity(0, "") }},
		{"spec.volumes[0].persistentVolumeClaim", func(s *corev1.PodSpec) {
			s.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{}
		}},
		{"spec.volumes[0].nfs", func(s *corev1.PodSpec) { s.Volumes[0].NFS = &corev1.NFSVolumeSource{} }},
		{"spec.volumes[0].projected.sources[0].serviceAccountToken", func(s *corev1.PodSpec) {
			s.Volumes[0].Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}
		}},
		{"spec.containers[0].livenessProbe", func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe = &corev1.Probe{} }},
		{"spec.containers[0].resources.limits[nvidia.com/gpu]", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits["nvidia.com/gpu"] = resource.MustParse("1")
		}},
		{"spec.containers[0].resources.claims", func(s *corev1.PodSpec) { s.Containers[0].Resources.Claims = make([]corev1.ResourceClaim, 1) }},
		{"spec.containers[0].volumeMounts[0].bindMountOptions", func(s *corev1.PodSpec) { s.Containers[0].VolumeMounts[0].BindMountOptions = []string{"noexec"} }},
		{"spec.containers[0].volumeDevices", func(s *corev1.PodSpec) { s.Containers[0].VolumeDevices = make([]corev1.VolumeDevice, 1) }},
		{"spec.initContainers[1].startupProbe", func(s *corev1.PodSpec) { s.InitContainers[1].StartupProbe = &corev1.Probe{} }},
		{"spec.containers[0].resources.limits[ephemeral-storage]", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits["ephemeral-storage"] = resource.MustParse("1")
		}},
		{"spec.containers[0].lifecycle.preStop.httpGet.protocol", func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Protocol: ptr(corev1.HTTPProtocol("H2C"))}}}
		}},
		{"spec.ephemeralContainers[0].livenessProbe", func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{LivenessProbe: &corev1.Probe{}}}}
		}},
		{"spec.containers[0].securityContext.windowsOptions", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			p := defaulted()
			tt.change(&p.Spec)
			errs := podruntime.Unmapped(p)
			if len(errs) != 1 || errs[0].Field != tt.path {
				t.Errorf("Unmapped = %v, want just %s", errs, tt.path)
			}
		})
	}
}

// fill sets every field below v to something, three levels of lists deep.
func fill(v reflect.Value, depth int) {
	if depth > 12 {
		return
	}
	switch v.Type() {
	case reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		v.Set(reflect.ValueOf(intstr.FromInt32(1)))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, depth+1)
		for _, key := range []string{"cpu", "memory", "other"} {
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	}
}

// A pod with every field of the API set: each field is either in the table or
// refused, and each entry of the table is a field.
func TestEveryFieldOfTheAPIIsDecided(t *testing.T) {
	var p corev1.Pod
	fill(reflect.ValueOf(&p.Spec).Elem(), 0)
	refused := map[string]bool{}
	for _, err := range podruntime.Unmapped(&p) {
		refused[strings.TrimPrefix(err.Field, "spec.")] = true
	}
	podKeys, containerKeys := podruntime.Mapped()
	exists := func(key string) bool { return fieldExists(reflect.TypeFor[corev1.PodSpec](), key) }
	for _, key := range podKeys {
		if !exists(key) {
			t.Errorf("the table has %s, the API does not", key)
		}
	}
	for _, key := range containerKeys {
		if !exists("containers[]."+key) && !exists("ephemeralContainers[]."+key) {
			t.Errorf("the table has containers[].%s, the API does not", key)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[corev1.PodSpec]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		below := func(r string) bool {
			return r == name || strings.HasPrefix(r, name+".") || strings.HasPrefix(r, name+"[")
		}
		decided := slices.Contains(podKeys, name)
		for r := range refused {
			decided = decided || below(r)
		}
		if !decided {
			t.Errorf("spec.%s is neither mapped nor refused", name)
		}
	}
	for _, want := range []string{"ephemeralContainers[0].livenessProbe", "containers[0].livenessProbe", "initContainers[0].volumeDevices",
		"securityContext.windowsOptions", "volumes[0].csi", "containers[0].resources.requests[other]", "resourceClaims"} {
		if !refused[want] {
			t.Errorf("spec.%s is set and was not refused", want)
		}
	}
}

func fieldExists(typ reflect.Type, key string) bool {
	for part := range strings.SplitSeq(key, ".") {
		name, index, list := strings.Cut(part, "[")
		found := false
		for _, f := range reflect.VisibleFields(typ) {
			if n, _, _ := strings.Cut(f.Tag.Get("json"), ","); n == name {
				typ, found = f.Type, true
			}
		}
		if !found {
			return false
		}
		for typ.Kind() == reflect.Pointer || list && (typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map) {
			if typ.Kind() == reflect.Slice != (index == "]") && typ.Kind() != reflect.Pointer {
				return false
			}
			typ = typ.Elem()
		}
	}
	return true
}

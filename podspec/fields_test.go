package podspec_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

func TestField(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u-1",
			Labels:      map[string]string{"b": "2", "a": "1"},
			Annotations: map[string]string{"text": "two\nlines and a \"quote\""},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "robot"},
	}
	at := podspec.Addresses{PodIPs: []string{"10.0.0.2", "fd00::2"}, HostIPs: []string{"192.0.2.1"}}
	for path, want := range map[string]string{
		"metadata.name":                "web",
		"metadata.namespace":           "shop",
		"metadata.uid":                 "u-1",
		"metadata.labels":              "a=\"1\"\nb=\"2\"",
		"metadata.labels['b']":         "2",
		"metadata.labels['none']":      "",
		"metadata.annotations":         `text="two\nlines and a \"quote\""`,
		"metadata.annotations['text']": "two\nlines and a \"quote\"",
		"spec.nodeName":                "node-1",
		"spec.serviceAccountName":      "robot",
		"status.podIP":                 "10.0.0.2",
		"status.podIPs":                "10.0.0.2,fd00::2",
		"status.hostIP":                "192.0.2.1",
		"status.hostIPs":               "192.0.2.1",
	} {
		if got, err := podspec.Field(pod, at, path); err != nil || got != want {
			t.Errorf("Field(%s) = %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "metadata", "spec.nodeName['a']", "status.phase", "metadata.labels[b]", "['a']"} {
		if got, err := podspec.Field(pod, at, path); !errors.Is(err, podspec.ErrNoField) {
			t.Errorf("Field(%q) = %q, %v, want ErrNoField", path, got, err)
		}
	}
	if got, err := podspec.Field(pod, podspec.Addresses{}, "status.podIP"); got != "" || err != nil {
		t.Errorf("the address of a pod without one = %q, %v, want nothing", got, err)
	}
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestResourceField(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: list("cpu", "250m", "memory", "100Mi"), Limits: list("cpu", "1500m", "hugepages-2Mi", "4Mi"),
			}},
			{Name: "bare"},
		},
	}}
	node := list("cpu", "8", "memory", "16Gi", "ephemeral-storage", "100G")
	tests := []struct {
		container, resource, divisor, want string
	}{
		{"", "requests.cpu", "", "1"}, // rounded up to whole cores
		{"", "requests.cpu", "1m", "250"},
		{"", "limits.cpu", "", "2"},
		{"", "limits.cpu", "1m", "1500"},
		{"", "requests.memory", "", "104857600"},
		{"", "requests.memory", "1Mi", "100"},
		{"", "requests.memory", "1G", "1"},
		{"", "limits.memory", "1Gi", "16"}, // the node's
		{"", "limits.ephemeral-storage", "1G", "100"},
		{"", "requests.ephemeral-storage", "", "0"},
		{"", "limits.hugepages-2Mi", "1Mi", "4"},
		{"bare", "limits.cpu", "", "8"},
		{"bare", "requests.cpu", "", "0"},
	}
	field := func(container, res, divisor string) (string, error) {
		s := &corev1.ResourceFieldSelector{ContainerName: container, Resource: res}
		if divisor != "" {
			s.Divisor = resource.MustParse(divisor)
		}
		return podspec.ResourceField(pod, "app", s, node)
	}
	for _, tt := range tests {
		if got, err := field(tt.container, tt.resource, tt.divisor); err != nil || got != tt.want {
			t.Errorf("%s of %q by %q = %q, %v, want %s", tt.resource, tt.container, tt.divisor, got, err, tt.want)
		}
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: list("memory", "1Gi", "cpu", "7")}
	if got, err := field("bare", "limits.memory", "1Mi"); err != nil || got != "1024" {
		t.Errorf("limit of a container without one = %q, %v, want the pod's 1024", got, err)
	}
	for _, bad := range []string{"limits.disk", "cpu", "capacity.cpu", ""} {
		if got, err := field("", bad, ""); !errors.Is(err, podspec.ErrNoField) {
			t.Errorf("%q = %q, %v, want ErrNoField", bad, got, err)
		}
	}
	if got, err := field("nobody", "limits.cpu", ""); err == nil {
		t.Errorf("a container that is not there has %q", got)
	}
}

func TestReferences(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}, {}},
		InitContainers: []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}},
		}}},
		Containers: []corev1.Container{{Name: "c",
			Env: []corev1.EnvVar{
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}},
				{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}},
				{Name: "A", Value: "1"},
			},
			VolumeMounts:  []corev1.VolumeMount{{Name: "a"}},
			VolumeDevices: []corev1.VolumeDevice{{Name: "d"}},
		}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "e", VolumeMounts: []corev1.VolumeMount{{Name: "b"}},
		}}},
		Volumes: []corev1.Volume{
			{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "vol"}}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "vol"}}},
			{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "proj"}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "proj"}}},
			}}}},
		},
	}}
	want := map[podspec.Object]struct{}{}
	for _, name := range []string{"env", "key", "vol", "proj"} {
		want[podspec.Object{Kind: podspec.KindConfigMap, Name: name}] = struct{}{}
		want[podspec.Object{Kind: podspec.KindSecret, Name: name}] = struct{}{}
	}
	want[podspec.Object{Kind: podspec.KindSecret, Name: "pull"}] = struct{}{}
	if diff := cmp.Diff(want, podspec.References(pod)); diff != "" {
		t.Errorf("References (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "d": true}, podspec.MountedVolumes(pod)); diff != "" {
		t.Errorf("MountedVolumes (-want +got):\n%s", diff)
	}
}

func TestSharesAndQuota(t *testing.T) {
	for milli, want := range map[int64][2]int64{
		0: {2, 0}, 1: {2, 1000}, 10: {10, 1000}, 250: {256, 25000}, 1000: {1024, 100000}, 2500: {2560, 250000},
		1 << 40: {262144, 100 << 40}, 1<<63 - 1: {262144, (1<<63 - 1) / 1000},
	} {
		got := [2]int64{podspec.CPUShares(milli), podspec.CPUQuota(milli, 100_000)}
		if got != want {
			t.Errorf("%d thousandths of a processor are shares and quota %v, want %v", milli, got, want)
		}
	}
}

func TestAllLimited(t *testing.T) {
	limited := func(pairs ...string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(pairs...)}}
	}
	tests := map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"no container":      {corev1.PodSpec{}, false},
		"all have one":      {corev1.PodSpec{InitContainers: []corev1.Container{limited("memory", "1")}, Containers: []corev1.Container{limited("memory", "1")}}, true},
		"one has none":      {corev1.PodSpec{Containers: []corev1.Container{limited("memory", "1"), limited("cpu", "1")}}, false},
		"init has none":     {corev1.PodSpec{InitContainers: []corev1.Container{limited()}, Containers: []corev1.Container{limited("memory", "1")}}, false},
		"the pod has one":   {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("memory", "1")}, Containers: []corev1.Container{limited()}}, true},
		"zero is no limit":  {corev1.PodSpec{Containers: []corev1.Container{limited("memory", "0")}}, false},
		"ephemeral is free": {corev1.PodSpec{Containers: []corev1.Container{limited("memory", "1")}, EphemeralContainers: []corev1.EphemeralContainer{{}}}, true},
	}
	for name, tt := range tests {
		if got := podspec.AllLimited(&corev1.Pod{Spec: tt.spec}, corev1.ResourceMemory); got != tt.want {
			t.Errorf("%s: AllLimited = %v, want %v", name, got, tt.want)
		}
	}
}

func ExampleField() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"tier": "front"}}}
	fmt.Println(podspec.Field(pod, podspec.Addresses{}, "metadata.labels['tier']"))
	// Output: front <nil>
}

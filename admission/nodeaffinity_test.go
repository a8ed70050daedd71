package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/admission"
)

func TestNodeAffinity(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Labels: map[string]string{corev1.LabelOSStable: "linux", "disk": "ssd"}}}
	admit := admission.NodeAffinity(func() *corev1.Node { return node })
	required := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	disk := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: op, Values: values}}}
	}
	name := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
	}
	tests := map[string]struct {
		spec corev1.PodSpec
		ok   bool
	}{
		"a pod that asks for nothing":           {corev1.PodSpec{}, true},
		"a selector that matches":               {corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd", corev1.LabelOSStable: "linux"}}, true},
		"a selector with another value":         {corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}}, false},
		"a selector for a label that is absent": {corev1.PodSpec{NodeSelector: map[string]string{"gpu": ""}}, false},
		"one of two terms matches":              {required(disk(corev1.NodeSelectorOpIn, "hdd"), disk(corev1.NodeSelectorOpExists)), true},
		"no term matches":                       {required(disk(corev1.NodeSelectorOpIn, "hdd"), disk(corev1.NodeSelectorOpDoesNotExist)), false},
		"no terms match nothing":                {required(), false},
		"the node by its name":                  {required(name("edge-1")), true},
		"another node by its name":              {required(name("edge-2")), false},
		"a term that can't be parsed":           {required(disk("Near", "ssd")), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := admit.Admit(admission.Attributes{Pod: &corev1.Pod{Spec: tt.spec}})
			if d.OK != tt.ok || !d.OK && d.Reason != "NodeAffinity" {
				t.Errorf("Admit = %+v, want %v", d, tt.ok)
			}
		})
	}
}

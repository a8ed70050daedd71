package podsource

import (
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// schedule checks the shape of what a scheduler reads. The pod is on its node
// already, but a manifest is often one that came from a cluster or goes there.
func (c *checker) schedule(spec *corev1.PodSpec, at *field.Path) {
	c.matches(at.Child("schedulerName"), spec.SchedulerName, validation.IsDNS1123Subdomain)
	c.optional(at.Child("priorityClassName"), spec.PriorityClassName, validation.IsDNS1123Subdomain)
	oneOf(c, at.Child("preemptionPolicy"), spec.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	c.forbid(len(spec.SchedulingGates) > 0, at.Child("schedulingGates"), "may not be set once the pod is on a node")
	c.errs = append(c.errs, metavalidation.ValidateLabels(spec.NodeSelector, at.Child("nodeSelector"))...)
	for i := range spec.Tolerations {
		c.toleration(&spec.Tolerations[i], at.Child("tolerations").Index(i))
	}
	c.affinity(spec.Affinity, at.Child("affinity"))
	c.spread(spec.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))
	if group := spec.SchedulingGroup; group != nil {
		at := at.Child("schedulingGroup", "podGroupName")
		if group.PodGroupName == nil {
			c.add(field.Required(at, ""))
		} else {
			c.matches(at, *group.PodGroupName, validation.IsDNS1123Subdomain)
		}
	}
	c.responders(spec, at.Child("evictionResponders"))
}

func (c *checker) toleration(t *corev1.Toleration, at *field.Path) {
	c.optional(at.Child("key"), t.Key, validation.IsQualifiedName)
	c.invalid(t.Key == "" && t.Operator != corev1.TolerationOpExists, at.Child("operator"), t.Operator,
		"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
	c.invalid(t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute,
		at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	oneOf(c, at.Child("effect"), &t.Effect, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	oneOf(c, at.Child("operator"), &t.Operator, "", corev1.TolerationOpEqual, corev1.TolerationOpExists,
		corev1.TolerationOpLt, corev1.TolerationOpGt)
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		c.matches(at.Child("value"), t.Value, validation.IsValidLabelValue)
	case corev1.TolerationOpExists:
		c.invalid(t.Value != "", at.Child("value"), t.Value, "value must be empty when `operator` is 'Exists'")
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		c.integer(at.Child("value"), t.Value)
	}
}

func (c *checker) integer(at *field.Path, s string) {
	n, err := strconv.ParseInt(s, 10, 64)
	c.invalid(err != nil || strconv.FormatInt(n, 10) != s, at, s, "must be an integer without leading zeros or a plus sign")
}

func (c *checker) affinity(a *corev1.Affinity, at *field.Path) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		at := at.Child("nodeAffinity")
		if r := n.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			terms := at.Child(required, "nodeSelectorTerms")
			if len(r.NodeSelectorTerms) == 0 {
				c.add(field.Required(terms, "must have at least one node selector term"))
			}
			for i, term := range r.NodeSelectorTerms {
				c.nodeTerm(&term, terms.Index(i))
			}
		}
		for i, p := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			at := at.Child(preferred).Index(i)
			c.number(at.Child("weight"), int64(p.Weight), 1, 100)
			c.nodeTerm(&p.Preference, at.Child("preference"))
		}
	}
	pods := func(hard []corev1.PodAffinityTerm, soft []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range hard {
			c.podTerm(&hard[i], at.Child(required).Index(i))
		}
		for i := range soft {
			at := at.Child(preferred).Index(i)
			c.number(at.Child("weight"), int64(soft[i].Weight), 1, 100)
			c.podTerm(&soft[i].PodAffinityTerm, at.Child("podAffinityTerm"))
		}
	}
	if p := a.PodAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

func (c *checker) nodeTerm(t *corev1.NodeSelectorTerm, at *field.Path) {
	requirement := func(r *corev1.NodeSelectorRequirement, at *field.Path) {
		oneOf(c, at.Child("operator"), &r.Operator, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn,
			corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)
		at = at.Child("values")
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				c.add(field.Required(at, "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			c.forbid(len(r.Values) > 0, at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				c.add(field.Required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		}
	}
	for i := range t.MatchExpressions {
		at := at.Child("matchExpressions").Index(i)
		requirement(&t.MatchExpressions[i], at)
		c.errs = append(c.errs, metavalidation.ValidateLabelName(t.MatchExpressions[i].Key, at.Child("key"))...)
	}
	for i := range t.MatchFields {
		at := at.Child("matchFields").Index(i)
		requirement(&t.MatchFields[i], at)
		oneOf(c, at.Child("key"), &t.MatchFields[i].Key, metav1.ObjectNameField)
	}
}

func (c *checker) podTerm(t *corev1.PodAffinityTerm, at *field.Path) {
	c.selector(t.LabelSelector, at.Child("labelSelector"))
	c.selector(t.NamespaceSelector, at.Child("namespaceSelector"))
	for i, name := range t.Namespaces {
		c.matches(at.Child("namespaces").Index(i), name, validation.IsDNS1123Label)
	}
	if c.required(at.Child("topologyKey"), t.TopologyKey) {
		c.errs = append(c.errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
	}
	c.labelKeys(t.MatchLabelKeys, t.LabelSelector, at.Child("matchLabelKeys"))
	c.labelKeys(t.MismatchLabelKeys, t.LabelSelector, at.Child("mismatchLabelKeys"))
}

func (c *checker) selector(s *metav1.LabelSelector, at *field.Path) {
	c.errs = append(c.errs, metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)...)
}

func (c *checker) labelKeys(keys []string, beside *metav1.LabelSelector, at *field.Path) {
	c.forbid(len(keys) > 0 && beside == nil, at, "must not be specified when labelSelector is not set")
	for i, key := range keys {
		c.errs = append(c.errs, metavalidation.ValidateLabelName(key, at.Index(i))...)
	}
}

func (c *checker) spread(all []corev1.TopologySpreadConstraint, at *field.Path) {
	seen := sets.New[string]()
	for i, t := range all {
		at := at.Index(i)
		c.number(at.Child("maxSkew"), int64(t.MaxSkew), 1, math.MaxInt32)
		if c.required(at.Child("topologyKey"), t.TopologyKey) {
			c.errs = append(c.errs, metavalidation.ValidateLabelName(t.TopologyKey, at.Child("topologyKey"))...)
		}
		oneOf(c, at.Child("whenUnsatisfiable"), &t.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		twice(c, seen, at.Child("{topologyKey, whenUnsatisfiable}"), "{"+t.TopologyKey+", "+string(t.WhenUnsatisfiable)+"}")
		if n := t.MinDomains; n != nil {
			c.number(at.Child("minDomains"), int64(*n), 1, math.MaxInt32)
			c.invalid(t.WhenUnsatisfiable != corev1.DoNotSchedule, at.Child("minDomains"), *n,
				"can only use minDomains if whenUnsatisfiable=DoNotSchedule")
		}
		oneOf(c, at.Child("nodeAffinityPolicy"), t.NodeAffinityPolicy, corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor)
		oneOf(c, at.Child("nodeTaintsPolicy"), t.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore, corev1.NodeInclusionPolicyHonor)
		c.selector(t.LabelSelector, at.Child("labelSelector"))
		c.labelKeys(t.MatchLabelKeys, t.LabelSelector, at.Child("matchLabelKeys"))
	}
}

func (c *checker) responders(spec *corev1.PodSpec, at *field.Path) {
	all := spec.EvictionResponders
	c.forbid(len(all) > 0 && spec.SchedulingGroup != nil, at, "may not be set together with schedulingGroup")
	if len(all) > 10 {
		c.add(field.TooMany(at, len(all), 10))
	}
	names := sets.New[string]()
	for i, r := range all {
		at := at.Index(i)
		if c.required(at.Child("name"), r.Name) {
			c.errs = append(c.errs, validation.IsDomainPrefixedKey(at.Child("name"), r.Name)...)
			twice(c, names, at.Child("name"), r.Name)
		}
		if r.Priority == nil {
			c.add(field.Required(at.Child("priority"), ""))
		} else {
			c.number(at.Child("priority"), int64(*r.Priority), 0, 100000)
		}
	}
}

package integration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resizable is a manifest of a pod with a UID of its own, so that an edit of it is
// a change of the same pod and not another one. The UID is the name, too.
func resizable(name, spec string) string {
	return observation{meta: "  uid: uid-" + name, spec: "  restartPolicy: Always\n" + strings.Trim(spec, "\n")}.manifest(name)
}

// story is one pod while its resources change.
type story struct {
	*testing.T
	sight
	// started is the container "c" as it ran before.
	started string
}

// begin starts a pod and waits until it runs with nothing under way.
func begin(t *testing.T, a *Agent, name, spec string) *story {
	t.Helper()
	s := &story{T: t, sight: sight{agent: a, Name: name}}
	a.Write(name+".yaml", resizable(name, spec))
	s.until(60*time.Second, runs)
	require.EqualValues(t, "uid-"+name, s.Pod.UID)
	s.started = s.Status(t, "c").ContainerID
	return s
}

func (s *story) edit(spec string) {
	s.Helper()
	s.agent.Write(s.Name+".yaml", resizable(s.Name, spec))
}

// until waits for all of the conditions at once.
func (s *story) until(within time.Duration, all ...func(corev1.Pod) error) {
	s.Helper()
	Eventually(s.T, within, func() (err error) {
		if s.Pod, err = s.agent.Pod(s.Name); err != nil {
			return err
		}
		for _, one := range all {
			err = errors.Join(err, one(s.Pod))
		}
		return err
	})
}

// has waits for a container with these amounts, in force and allocated. The text is
// "cpu request/limit memory request/limit"; a dash is none.
func has(name, text string) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		want := amounts(text)
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if c.Name != name {
				continue
			}
			if c.Resources == nil {
				return fmt.Errorf("container %s has no resources: %s", name, states(p))
			}
			return errors.Join(
				sameAmounts(name+" requests", want.Requests, c.Resources.Requests),
				sameAmounts(name+" limits", want.Limits, c.Resources.Limits),
				sameAmounts(name+" allocated", want.Requests, c.AllocatedResources))
		}
		return fmt.Errorf("container %s has no status", name)
	}
}

func amounts(text string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for i, pair := range strings.Fields(text) {
		name := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[i]
		request, limit, _ := strings.Cut(pair, "/")
		if request != "-" {
			r.Requests[name] = resource.MustParse(request)
		}
		if limit != "-" {
			r.Limits[name] = resource.MustParse(limit)
		}
	}
	return r
}

func sameAmounts(what string, want, got corev1.ResourceList) error {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		w, g := want[name], got[name]
		if w.Cmp(g) != 0 {
			return fmt.Errorf("%s of %s are %s, want %s", what, name, g.String(), w.String())
		}
	}
	return nil
}

// resize waits for what is said of the pod's resize: a condition and its reason such
// as "PodResizePending Deferred", or nothing.
func resize(want string) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		var all []string
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
				all = append(all, strings.TrimSpace(string(c.Type)+" "+c.Reason))
				if c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() || c.LastProbeTime.IsZero() {
					return fmt.Errorf("condition %+v", c)
				}
			}
		}
		if got := strings.Join(all, ", "); got != want {
			return fmt.Errorf("of the resize is said %q, want %q: %v", got, want, p.Status.Conditions)
		}
		return nil
	}
}

// said is the message of a condition.
func (s *story) said(kind corev1.PodConditionType) string {
	for _, c := range s.Pod.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// untouched fails unless "c" still is the instance of before.
func (s *story) untouched() {
	s.Helper()
	c := s.Status(s.T, "c")
	require.Equal(s, s.started, c.ContainerID, "the container was restarted")
	require.Zero(s, c.RestartCount)
	require.Len(s, containers(s.T, s.Name, "c"), 1)
}

// box is the pod's cgroup.
func (s *story) box() box {
	tier := map[corev1.PodQOSClass][]string{corev1.PodQOSBurstable: {"burstable"}}[s.Pod.Status.QOSClass]
	return s.Box(tier...)
}

// oneContainer is a pod with "c". resources is YAML, and more are fields of "c".
func oneContainer(resources string, more ...string) string {
	spec := "  containers:\n  - name: c\n    image: KK\n    args: [sleep, forever]\n    resources: " + resources + "\n"
	for _, m := range more {
		spec += "    " + m + "\n"
	}
	return spec
}

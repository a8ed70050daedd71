package podruntime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// security reads the security context of a container beside that of its pod. For
// what both may say, the container's own word goes before the pod's.
type security struct {
	pod  *corev1.Pod
	c    *corev1.Container
	kind podspec.Kind
	own  corev1.SecurityContext
	all  corev1.PodSecurityContext
}

func securityOf(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind) security {
	s := security{pod: pod, c: c, kind: kind}
	if c.SecurityContext != nil {
		s.own = *c.SecurityContext
	}
	if pod.Spec.SecurityContext != nil {
		s.all = *pod.Spec.SecurityContext
	}
	return s
}

func (s security) runAsUser() *int64  { return cmp.Or(s.own.RunAsUser, s.all.RunAsUser) }
func (s security) runAsGroup() *int64 { return cmp.Or(s.own.RunAsGroup, s.all.RunAsGroup) }

// path is where a setting was written: in the container or, if not its own, in the
// pod.
func (s security) path(own bool, name string) *field.Path {
	if own {
		return containerPath(s.pod, s.c, s.kind).Child("securityContext", name)
	}
	return field.NewPath("spec", "securityContext", name)
}

// containerPath is the container's place in the pod.
func containerPath(pod *corev1.Pod, c *corev1.Container, kind podspec.Kind) *field.Path {
	list := map[podspec.Kind]string{podspec.Init: "initContainers", podspec.Regular: "containers", podspec.Ephemeral: "ephemeralContainers"}[kind]
	i := 0
	for other, k := range podspec.All(pod) {
		if k == kind && other.Name == c.Name {
			break
		}
		if k == kind {
			i++
		}
	}
	return field.NewPath("spec", list).Index(i)
}

// containerSecurity is the effective security context of one container.
func (r *Runtime) containerSecurity(s security, spec ContainerSpec, image observed.Image, n *runtimeapi.NamespaceOption) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:     capabilities(s.own.Capabilities),
		Privileged:       isTrue(s.own.Privileged),
		NamespaceOptions: n,
		SelinuxOptions:   selinux(cmp.Or(s.own.SELinuxOptions, s.all.SELinuxOptions)),
		ReadonlyRootfs:   isTrue(s.own.ReadOnlyRootFilesystem),
		NoNewPrivs:       s.own.AllowPrivilegeEscalation != nil && !*s.own.AllowPrivilegeEscalation,
	}
	if err := s.setUser(sc, image); err != nil {
		return nil, err
	}
	var err error
	if sc.SupplementalGroups, err = groups(&s.all, spec.SupplementalGroups); err != nil {
		return nil, err
	}
	if sc.SupplementalGroupsPolicy, err = groupsPolicy(&s.all); err != nil {
		return nil, err
	}
	if sc.MaskedPaths, sc.ReadonlyPaths, err = r.hiddenPaths(s); err != nil {
		return nil, err
	}
	if sc.Seccomp, err = r.seccomp(s); err != nil {
		return nil, err
	}
	if sc.Apparmor, err = apparmor(s); err != nil {
		return nil, err
	}
	//lint:ignore SA1019 containerd before 1.6 reads the name alone
	sc.ApparmorProfile = apparmorName(sc.Apparmor)
	return sc, nil
}

// setUser names the user, by number where anybody knows it: the spec, or else the
// image. An image that names none runs as root.
func (s security) setUser(sc *runtimeapi.LinuxContainerSecurityContext, image observed.Image) error {
	if g := s.runAsGroup(); g != nil {
		if wrongID(*g) {
			return invalidID(*g, s.path(s.own.RunAsGroup != nil, "runAsGroup"))
		}
		sc.RunAsGroup = &runtimeapi.Int64Value{Value: *g}
	}
	switch u := s.runAsUser(); {
	case u != nil:
		if wrongID(*u) {
			return invalidID(*u, s.path(s.own.RunAsUser != nil, "runAsUser"))
		}
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *u}
	case image.UID != nil:
		// Linux has 32 bits for it, and the last number stands for nobody at all.
		// A runtime that cuts a longer one off makes root of 4294967296.
		if *image.UID < 0 || *image.UID >= math.MaxUint32 {
			return fmt.Errorf("image has an invalid user id (%d); set runAsUser", *image.UID)
		}
		sc.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	case image.UserName != "":
		sc.RunAsUsername = image.UserName
	default:
		sc.RunAsUser = &runtimeapi.Int64Value{}
	}
	return nil
}

// wrongID: the API accepts no such user or group.
func wrongID(id int64) bool { return id < 0 || id > math.MaxInt32 }

func invalidID(id int64, path *field.Path) error {
	return field.Invalid(path, id, "must be between 0 and 2147483647, inclusive")
}

// verifyNonRoot holds a container to its runAsNonRoot. The image's user counts
// when the spec names none; one that cannot be told from root will not do. The
// words are the kubelet's.
func verifyNonRoot(pod *corev1.Pod, c *corev1.Container, image observed.Image) error {
	s := securityOf(pod, c, podspec.Regular)
	if !isTrue(cmp.Or(s.own.RunAsNonRoot, s.all.RunAsNonRoot)) {
		return nil
	}
	who := fmt.Sprintf("(pod: %q, container: %s)", podspec.Human(pod), c.Name)
	if user := s.runAsUser(); user != nil {
		if *user == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
		}
		return nil
	}
	switch uid := image.UID; {
	case uid == nil && image.UserName != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", image.UserName, who)
	case uid == nil || *uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	case wrongID(*uid):
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d) %s", *uid, who)
	}
	return nil
}

// groups are the supplemental groups of every process: the pod's volumes' group,
// the pod's own and more.
func groups(sc *corev1.PodSecurityContext, more []int64) ([]int64, error) {
	var all []int64
	if sc.FSGroup != nil {
		if wrongID(*sc.FSGroup) {
			return nil, invalidID(*sc.FSGroup, field.NewPath("spec", "securityContext", "fsGroup"))
		}
		all = append(all, *sc.FSGroup)
	}
	if i := slices.IndexFunc(sc.SupplementalGroups, wrongID); i >= 0 {
		return nil, invalidID(sc.SupplementalGroups[i], field.NewPath("spec", "securityContext", "supplementalGroups").Index(i))
	}
	return slices.Concat(all, sc.SupplementalGroups, more), nil
}

func groupsPolicy(sc *corev1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	switch *sc.SupplementalGroupsPolicy {
	case corev1.SupplementalGroupsPolicyMerge:
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	case corev1.SupplementalGroupsPolicyStrict:
		return runtimeapi.SupplementalGroupsPolicy_Strict, nil
	}
	return 0, field.NotSupported(field.NewPath("spec", "securityContext", "supplementalGroupsPolicy"), *sc.SupplementalGroupsPolicy,
		[]corev1.SupplementalGroupsPolicy{corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict})
}

// capabilities are passed on by their names; the runtime knows them, and what ALL
// means. CRI has them without CAP_, and containerd 1.6 ignores one that has it in
// silence: a container would keep what it asked to drop.
func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := new(runtimeapi.Capability)
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, strings.TrimPrefix(string(name), "CAP_"))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, strings.TrimPrefix(string(name), "CAP_"))
	}
	return out
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func isTrue(b *bool) bool { return b != nil && *b }

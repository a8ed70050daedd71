package podruntime

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// Mapper makes CRI configuration out of pods. Nothing runs.
type Mapper struct{ r *Runtime }

// NewMapper needs neither a runtime nor images, and looks at no machine but cfg's.
func NewMapper(cfg Config) (Mapper, error) {
	cfg.CRI, cfg.Images = struct{ CRI }{}, struct{ ImageEnsurer }{}
	if cfg.Resources.HugePageSizes == nil {
		cfg.Resources.HugePageSizes = []int64{}
	}
	r, err := New(cfg)
	if err != nil {
		return Mapper{}, err
	}
	r.maskedPaths = []string{"/proc/acpi", "/sys/devices/system/cpu/cpu0/thermal_throttle"}
	r.rules.page = 4096
	return Mapper{r}, nil
}

// Sandbox is what the runtime is told of the pod.
func (m Mapper) Sandbox(pod *corev1.Pod, spec SandboxSpec) (*runtimeapi.PodSandboxConfig, error) {
	return m.r.sandboxConfig(pod, spec, 0)
}

// Container is what the runtime is told of a container, which has to be one of the
// pod's, checks included.
func (m Mapper) Container(pod *corev1.Pod, name string, sandbox *runtimeapi.PodSandboxConfig, seen observed.Pod, spec ContainerSpec, image observed.Image) (*runtimeapi.ContainerConfig, error) {
	c, kind, _ := podspec.Find(pod, name)
	if err := verifyNonRoot(pod, c, image); err != nil {
		return nil, err
	}
	s := starting{pod: pod, c: c, kind: kind, seen: seen, sandbox: Sandbox{Config: sandbox}}
	return m.r.containerConfig(s, spec, image, 0)
}

// VerifyNonRoot is the check of runAsNonRoot.
func VerifyNonRoot(pod *corev1.Pod, c *corev1.Container, image observed.Image) error {
	return verifyNonRoot(pod, c, image)
}

// Dotted is the name of a sysctl as the runtime is told.
func Dotted(name string) string { return dotted(name) }

// PageName is the kernel's name of a page size.
func PageName(size int64) string { return pageName(size) }

// MaskedPaths are those of this machine.
func (r *Runtime) MaskedPaths() []string { return r.maskedPaths }

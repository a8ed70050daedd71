package imagepull

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/keyring"
	"github.com/kubeletkit/kubeletkit/observed"
)

// Images is what imagepull needs of the runtime. Every ImageManagerService of
// k8s.io/cri-api is one.
type Images interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Credentials is where what to show a registry comes from.
type Credentials interface {
	Lookup(ctx context.Context, image string, pod *corev1.Pod) (keyring.Answer, error)
}

var _ Credentials = (*keyring.Keyring)(nil)

// Config needs Images; everything else has a useful zero value.
type Config struct {
	Images Images
	// MaxParallel is how many pulls run at once: 0 is one, as the kubelet does it
	// by default, a negative number sets no limit. As many slow pulls as that make
	// every other pull wait; images that are there never wait.
	MaxParallel int
	// QPS and Burst limit how often a pull may begin; default 5 and 10. A pull
	// over the limit waits. A negative QPS sets no limit.
	QPS   float64
	Burst int
	// BackoffInitial and BackoffMax bound the delay after a failed pull; default
	// 10s and 300s.
	BackoffInitial, BackoffMax time.Duration
	// Credentials finds what to try for an image. Nil, or an empty answer, is one
	// anonymous try.
	Credentials Credentials
	// RecordsDir is where this node keeps who pulled what, so that a private image
	// does not become everybody's; the kubelet's is <root>/image_manager. Without it
	// there are no records, and Verify has to be NeverVerify or empty.
	RecordsDir string
	// Verify defaults to NeverVerifyPreloaded with RecordsDir.
	Verify VerifyPolicy
	// Allowlist is for NeverVerifyAllowlisted.
	Allowlist []string
	Log       logr.Logger
	Hooks     Hooks
}

// Hooks report work as it happens. They must not block.
type Hooks struct {
	// Event is a Kubernetes Event about a container. The words are the kubelet's.
	Event func(pod *corev1.Pod, container, eventType, reason, message string)
	// Pulled is called once per pull, however many wait for it. size is in bytes,
	// 0 when the runtime does not tell.
	Pulled func(image string, took time.Duration, size uint64, err error)
	// Ensured is called once per question. The last two are true, false or
	// unknown, as labels of the kubelet's metric.
	Ensured func(policy corev1.PullPolicy, presentLocally, pullRequired string)
}

// Puller makes images present. Its methods may be called at the same time.
type Puller struct {
	cfg   Config
	limit *rate.Limiter // nil: none
	slots chan struct{} // nil: no limit

	records *records // nil: none

	mu struct {
		sync.Mutex
		pulls   map[pullKey]*pull
		backoff map[backoffKey]backoff
		swept   time.Time
	}
}

// New checks cfg, reads which pulls an earlier process left in the middle, and
// starts nothing.
func New(cfg Config) (*Puller, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.BackoffInitial == 0 {
		cfg.BackoffInitial = 10 * time.Second
	}
	if cfg.BackoffMax == 0 {
		cfg.BackoffMax = 300 * time.Second
	}
	if cfg.QPS == 0 {
		cfg.QPS = 5
	}
	if cfg.Burst == 0 {
		cfg.Burst = 10
	}
	if cfg.Verify == "" {
		cfg.Verify = NeverVerifyPreloaded
	}
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	cfg.Hooks.fill()
	p := &Puller{cfg: cfg}
	if cfg.QPS > 0 {
		p.limit = rate.NewLimiter(rate.Limit(cfg.QPS), cfg.Burst)
	}
	if cfg.MaxParallel >= 0 {
		p.slots = make(chan struct{}, max(cfg.MaxParallel, 1))
	}
	p.mu.pulls = make(map[pullKey]*pull)
	p.mu.backoff = make(map[backoffKey]backoff)
	if cfg.RecordsDir != "" {
		var err error
		if p.records, err = openRecords(cfg.RecordsDir, cfg.Log); err != nil {
			return nil, fmt.Errorf("imagepull: %w", err)
		}
	}
	return p, nil
}

func (cfg *Config) check() error {
	switch {
	case cfg.Images == nil:
		return errors.New("imagepull: Config.Images is required")
	case cfg.BackoffInitial < 0 || cfg.BackoffMax < 0:
		return errors.New("imagepull: a back-off cannot be negative")
	case cfg.Burst < 0:
		return errors.New("imagepull: Config.Burst cannot be negative")
	}
	switch cfg.Verify {
	case "", NeverVerify:
	case NeverVerifyPreloaded, NeverVerifyAllowlisted, AlwaysVerify:
		if cfg.RecordsDir == "" {
			return fmt.Errorf("imagepull: Config.Verify %s needs Config.RecordsDir", cfg.Verify)
		}
	default:
		return fmt.Errorf("imagepull: Config.Verify: no policy is called %q", cfg.Verify)
	}
	return checkAllowlist(cfg.Allowlist)
}

func (h *Hooks) fill() {
	if h.Event == nil {
		h.Event = func(*corev1.Pod, string, string, string, string) {}
	}
	if h.Pulled == nil {
		h.Pulled = func(string, time.Duration, uint64, error) {}
	}
	if h.Ensured == nil {
		h.Ensured = func(corev1.PullPolicy, string, string) {}
	}
}

// The waiting reasons of a container whose image is not there.
const (
	ReasonInvalidName         = "InvalidImageName"
	ReasonInspectError        = "ImageInspectError"
	ReasonNeverPull           = "ErrImageNeverPull"
	ReasonPullFailed          = "ErrImagePull"
	ReasonBackOff             = "ImagePullBackOff"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignatureInvalid    = "SignatureValidationFailed"
)

// Error says why an image is not there.
type Error struct {
	Reason  string // the container's waiting reason
	Message string // the container's waiting message
	// Retry is when another try makes sense; zero when no back-off says so.
	Retry time.Time
	Err   error // the cause, if there is one beside the reason
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WaitingReason is Reason, for callers that ask through an interface.
func (e *Error) WaitingReason() string { return e.Reason }

// RetryAt is Retry, for callers that ask through an interface.
func (e *Error) RetryAt() time.Time { return e.Retry }

// EnsureImage makes the image of c present as its pull policy has it, and tells
// what the runtime knows of it. The error is an [*Error], or the context's when that
// ended first; a pull that nobody waits for any more is given up.
func (p *Puller) EnsureImage(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (observed.Image, error) {
	a := ask{p: p, pod: pod, c: c, sandbox: sandbox}
	image, err := WithTag(c.Image)
	if err != nil {
		a.event(corev1.EventTypeWarning, "InspectFailed", fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err))
		return observed.Image{}, &Error{
			Reason:  ReasonInvalidName,
			Message: fmt.Sprintf("Failed to apply default image tag %q: %v", c.Image, err),
			Err:     err,
		}
	}
	a.image = image
	a.spec = &runtimeapi.ImageSpec{Image: image, Annotations: pod.Annotations}
	policy := policyOf(c, image)
	if err := a.settle(ctx); err != nil {
		p.cfg.Hooks.Ensured(policy, "unknown", "unknown")
		return observed.Image{}, err
	}
	if policy == corev1.PullAlways {
		p.cfg.Hooks.Ensured(policy, "unknown", "true")
		return a.pull(ctx)
	}
	local, present, err := a.local(ctx)
	if err != nil {
		p.cfg.Hooks.Ensured(policy, "unknown", "unknown")
		return observed.Image{}, err
	}
	a.before = &local.ID
	if present && a.mayUse(ctx, local.ID) {
		p.cfg.Hooks.Ensured(policy, "true", "false")
		a.event(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine%s", image, p.andAllowed()))
		return local, nil
	}
	if policy == corev1.PullNever {
		// An image that is there for others only is as good as none, and the pod does
		// not learn which it is.
		p.cfg.Hooks.Ensured(policy, fmt.Sprint(present), fmt.Sprint(present))
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", image)
		a.event(corev1.EventTypeWarning, ReasonNeverPull, message)
		return observed.Image{}, &Error{Reason: ReasonNeverPull, Message: message}
	}
	p.cfg.Hooks.Ensured(policy, fmt.Sprint(present), "true")
	return a.pull(ctx)
}

// andAllowed is what the kubelet adds to an event when it keeps records.
func (p *Puller) andAllowed() string {
	if p.records == nil {
		return ""
	}
	return " and can be accessed by the pod"
}

// policyOf is the container's policy, or the API's default for its image.
func policyOf(c *corev1.Container, image string) corev1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	case isLatest(image):
		return corev1.PullAlways
	default:
		return corev1.PullIfNotPresent
	}
}

// ask is one call of [Puller.EnsureImage].
type ask struct {
	p       *Puller
	pod     *corev1.Pod
	c       *corev1.Container
	image   string // with a tag or a digest
	spec    *runtimeapi.ImageSpec
	sandbox *runtimeapi.PodSandboxConfig

	answer *keyring.Answer // nil: not asked for yet
	before *string         // the image's ID before a pull; nil: not known
	// unsure: an image without a record may have been pulled all the same.
	unsure bool
}

func (a *ask) event(eventType, reason, message string) {
	a.p.cfg.Hooks.Event(a.pod, a.c.Name, eventType, reason, message)
}

func (a *ask) backoffKey() backoffKey {
	return backoffKey{pod: observed.UID(a.pod.UID), image: a.image}
}

// local returns the image, ok false when it is not there.
func (a *ask) local(ctx context.Context) (image observed.Image, ok bool, err error) {
	resp, err := a.p.cfg.Images.ImageStatus(ctx, a.spec, false)
	if err == nil || errors.Is(criclient.Wrap("", err), criclient.ErrNotFound) {
		image = imageOf(resp.GetImage())
		return image, image.ID != "", nil
	}
	if ctx.Err() != nil {
		return image, false, fmt.Errorf("look for image %s: %w", a.image, ctx.Err())
	}
	return image, false, a.cannotInspect(err)
}

func (a *ask) cannotInspect(err error) error {
	message := fmt.Sprintf("Failed to inspect image %q: %s", a.image, criclient.Message(err))
	a.event(corev1.EventTypeWarning, "InspectFailed", message)
	return &Error{Reason: ReasonInspectError, Message: message, Err: err}
}

// imageOf is the zero Image for the nil answer of an image that is not there.
func imageOf(i *runtimeapi.Image) observed.Image {
	image := observed.Image{ID: i.GetId(), UserName: i.GetUsername(), Size: i.GetSize()}
	if uid := i.GetUid(); uid != nil {
		image.UID = &uid.Value
	}
	return image
}

// Forget drops the back-off of a pod. Call it when the pod is gone, or when its
// credentials have changed: the next pull is then another one.
func (p *Puller) Forget(pod observed.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.mu.backoff {
		if key.pod == pod {
			delete(p.mu.backoff, key)
		}
	}
}

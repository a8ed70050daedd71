package imagepull

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// pullKey tells which callers may share a pull: those that ask for the same
// image and would show the registry the same credentials.
type pullKey struct {
	image string
	auth  [sha256.Size]byte
}

// pull is one pull under way. waiting is guarded by the Puller's lock; the rest
// is written before done is closed.
type pull struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}

	image observed.Image
	began time.Time // when its turn came
	took  time.Duration
	err   error
}

// pull asks the back-off, and then waits for a pull of its own or a shared one.
func (a *ask) pull(ctx context.Context) (observed.Image, error) {
	if err := a.heldBack(); err != nil {
		a.event(corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", a.image))
		return observed.Image{}, err
	}
	a.event(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", a.image))
	begin := time.Now()
	var auths []*runtimeapi.AuthConfig
	if a.p.cfg.Credentials != nil {
		var err error
		if auths, err = a.p.cfg.Credentials(ctx, a.image, a.pod); err != nil {
			return observed.Image{}, a.failed(ctx, err)
		}
	}
	done, err := a.p.share(ctx, a, auths)
	if err != nil {
		return observed.Image{}, fmt.Errorf("pull image %s: %w", a.image, err)
	}
	if done.err != nil {
		return observed.Image{}, a.failed(ctx, done.err)
	}
	ms := func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }
	a.event(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
		a.image, ms(done.took), ms(time.Since(begin)), done.image.Size))
	return done.image, nil
}

// share joins the pull that is under way, or begins one. It returns an error only
// when ctx ends first. The last caller to leave ends the pull and waits for that.
func (p *Puller) share(ctx context.Context, a *ask, auths []*runtimeapi.AuthConfig) (*pull, error) {
	key := pullKey{image: a.image, auth: digestOf(auths)}
	p.mu.Lock()
	one := p.mu.pulls[key]
	if one == nil {
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &pull{cancel: cancel, done: make(chan struct{})}
		p.mu.pulls[key] = one
		go p.run(pullCtx, key, one, a, auths)
	}
	one.waiting++
	p.mu.Unlock()

	select {
	case <-one.done:
		return one, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	one.waiting--
	last := one.waiting == 0
	if last && p.mu.pulls[key] == one {
		delete(p.mu.pulls, key) // who comes now begins anew
	}
	p.mu.Unlock()
	if last {
		one.cancel()
		<-one.done
	}
	return nil, ctx.Err()
}

// run does one pull and tells everybody who waits.
func (p *Puller) run(ctx context.Context, key pullKey, one *pull, a *ask, auths []*runtimeapi.AuthConfig) {
	defer one.cancel()
	if one.err = p.turn(ctx); one.err == nil {
		one.began = time.Now()
		one.image.ID, one.err = p.try(ctx, a, auths)
		one.took = time.Since(one.began)
		if p.slots != nil {
			<-p.slots
		}
		if one.err == nil {
			one.image = p.lookAt(ctx, a, one.image.ID)
		}
		if ctx.Err() == nil {
			p.cfg.Hooks.Pulled(a.image, one.took, one.image.Size, one.err)
		}
	}
	p.mu.Lock()
	if p.mu.pulls[key] == one {
		delete(p.mu.pulls, key)
	}
	p.mu.Unlock()
	close(one.done)
}

// turn waits for the rate limit and then for a free slot.
func (p *Puller) turn(ctx context.Context) error {
	if p.limit != nil {
		if err := p.limit.Wait(ctx); err != nil {
			return err
		}
	}
	if p.slots == nil {
		return nil
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try pulls with each of the credentials until one does it; with none it pulls
// anonymously.
func (p *Puller) try(ctx context.Context, a *ask, auths []*runtimeapi.AuthConfig) (string, error) {
	if len(auths) == 0 {
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var errs []error
	for _, auth := range auths {
		id, err := p.cfg.Images.PullImage(ctx, a.spec, auth, a.sandbox)
		if err == nil {
			return id, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return "", errs[0]
	}
	return "", errors.Join(errs...)
}

// lookAt asks what was pulled: whom it runs as, and how large it is. id is what
// the pull returned.
func (p *Puller) lookAt(ctx context.Context, a *ask, id string) observed.Image {
	resp, err := p.cfg.Images.ImageStatus(ctx, a.spec, false)
	if err != nil {
		p.cfg.Log.V(1).Info("The pulled image cannot be looked at", "image", a.image, "err", err.Error())
	}
	image := imageOf(resp.GetImage())
	image.ID = id
	return image
}

// failed records the failure for this pod and puts it in the API's words.
func (a *ask) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pull image %s: %w", a.image, ctx.Err())
	}
	e := &Error{Reason: ReasonPullFailed, Message: messageOf(err), Err: err}
	a.event(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", a.image, e.Message))
	// The runtime has two ways to say that the image itself is not to blame.
	if rest, ok := strings.CutPrefix(e.Message, ReasonRegistryUnavailable); ok {
		e.Reason = ReasonRegistryUnavailable
		e.Message = fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", a.image, rest)
	}
	if rest, ok := strings.CutPrefix(e.Message, ReasonSignatureInvalid); ok {
		e.Reason = ReasonSignatureInvalid
		e.Message = fmt.Sprintf("image pull failed for %s because the signature validation failed%s", a.image, rest)
	}
	e.Retry = a.p.backOff(a.backoffKey(), e.Reason, e.Message, time.Now())
	return e
}

// messageOf is the runtime's own text, of each try if there were several.
func messageOf(err error) string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return criclient.Message(err)
	}
	if _, own := err.(*criclient.Error); own {
		return criclient.Message(err)
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = append(all, criclient.Message(e))
	}
	return strings.Join(all, "; ")
}

// digestOf tells credentials apart without keeping them.
func digestOf(auths []*runtimeapi.AuthConfig) [sha256.Size]byte {
	h := sha256.New()
	for _, a := range auths {
		fmt.Fprintf(h, "%q %q %q %q %q %q\n", a.GetUsername(), a.GetPassword(), a.GetAuth(),
			a.GetServerAddress(), a.GetIdentityToken(), a.GetRegistryToken())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

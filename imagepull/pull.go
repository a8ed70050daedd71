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
	"github.com/kubeletkit/kubeletkit/keyring"
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
	used  int       // which of the credentials did it; -1 for none
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
	answer, err := a.lookup(ctx)
	if err != nil {
		return observed.Image{}, a.failed(ctx, err)
	}
	done, err := a.p.share(ctx, a, answer.Credentials)
	if err != nil {
		return observed.Image{}, fmt.Errorf("pull image %s: %w", a.image, err)
	}
	if done.err != nil {
		if missing := answer.MissingSecrets; len(missing) > 0 && ctx.Err() == nil {
			a.event(corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
		}
		return observed.Image{}, a.failed(ctx, done.err)
	}
	a.record(done, answer.Credentials, false) // this pod's secret may be another one with the same content
	ms := func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }
	a.event(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.",
		a.image, ms(done.took), ms(time.Since(begin)), done.image.Size))
	return done.image, nil
}

// share joins the pull that is under way, or begins one. It returns an error only
// when ctx ends first. The last caller to leave ends the pull and waits for that.
func (p *Puller) share(ctx context.Context, a *ask, creds []keyring.Credential) (*pull, error) {
	key := pullKey{image: a.image, auth: digestOf(creds)}
	p.mu.Lock()
	one := p.mu.pulls[key]
	if one == nil {
		pullCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &pull{cancel: cancel, done: make(chan struct{})}
		p.mu.pulls[key] = one
		go p.run(pullCtx, key, one, a, creds)
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
func (p *Puller) run(ctx context.Context, key pullKey, one *pull, a *ask, creds []keyring.Credential) {
	defer one.cancel()
	if one.err = p.turn(ctx); one.err == nil {
		one.began = time.Now()
		p.noted(ctx, one, a, creds)
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

// noted pulls between a note that a pull begins and a record of what came of it.
func (p *Puller) noted(ctx context.Context, one *pull, a *ask, creds []keyring.Credential) {
	var unseen bool
	if p.records == nil {
		one.image.ID, one.used, _, one.err = p.try(ctx, a, creds)
		return
	}
	before, known := "", false
	if a.before != nil {
		before, known = *a.before, true
	} else if id, err := p.idOf(ctx, a.image); err == nil {
		before, known = id, true
	}
	if one.err = p.records.begin(a.image); one.err != nil {
		return
	}
	one.image.ID, one.used, unseen, one.err = p.try(ctx, a, creds)
	if one.err == nil {
		a.record(one, creds, true)
	} else if unseen {
		unseen = !p.cameToNothing(ctx, a.image, before, known)
	}
	p.records.end(a.image, unseen)
}

// cameToNothing looks for what a pull may have left whose answer did not arrive:
// a caller that went away, a runtime that did. It reports whether that is clear.
func (p *Puller) cameToNothing(ctx context.Context, image, before string, known bool) bool {
	id, err := p.idOf(context.WithoutCancel(ctx), image)
	switch {
	case err != nil || id != "" && !known:
		return false
	case id != "" && id != before:
		p.records.addUnknown(id)
	}
	return true
}

// record notes with what the image was pulled.
func (a *ask) record(one *pull, creds []keyring.Credential, pulled bool) {
	if a.p.records == nil {
		return
	}
	source := keyring.Source{Kind: keyring.Node} // anybody could have
	if one.used >= 0 {
		source = creds[one.used].Source
	}
	a.p.records.add(one.image.ID, keyring.Repository(a.image), source, pulled)
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

// try pulls with each of the credentials until one does it, and tells which; with
// none it pulls anonymously. unseen is set when the runtime did not say that it
// failed, so that the image may be there all the same.
func (p *Puller) try(ctx context.Context, a *ask, creds []keyring.Credential) (id string, used int, unseen bool, err error) {
	if len(creds) == 0 {
		id, err = p.cfg.Images.PullImage(ctx, a.spec, nil, a.sandbox)
		return id, -1, ctx.Err() != nil || unanswered(err), err
	}
	var errs []error
	for i, c := range creds {
		id, err := p.cfg.Images.PullImage(ctx, a.spec, c.Auth, a.sandbox)
		if err == nil {
			return id, i, false, nil
		}
		errs = append(errs, err)
		unseen = unseen || unanswered(err)
		if ctx.Err() != nil {
			unseen = true
			break
		}
	}
	if len(errs) == 1 {
		return "", -1, unseen, errs[0]
	}
	return "", -1, unseen, errors.Join(errs...)
}

func unanswered(err error) bool {
	err = criclient.Wrap("", err)
	return errors.Is(err, criclient.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// lookAt asks what was pulled: whom it runs as, and how large it is. id is what
// the pull returned; the name may be another image's by now.
func (p *Puller) lookAt(ctx context.Context, a *ask, id string) observed.Image {
	resp, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: id, Annotations: a.spec.Annotations}, false)
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
func digestOf(creds []keyring.Credential) [sha256.Size]byte {
	h := sha256.New()
	for _, c := range creds {
		a := c.Auth
		fmt.Fprintf(h, "%q %q %q %q %q %q\n", a.GetUsername(), a.GetPassword(), a.GetAuth(),
			a.GetServerAddress(), a.GetIdentityToken(), a.GetRegistryToken())
	}
	return [sha256.Size]byte(h.Sum(nil))
}

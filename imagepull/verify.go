package imagepull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/keyring"
)

// VerifyPolicy tells when a pod has to prove that it may use an image that is
// already there: with credentials that pulled the image before, or by a pull of
// its own. The words are KubeletConfiguration's imagePullCredentialsVerificationPolicy.
type VerifyPolicy string

// The policies.
const (
	NeverVerify VerifyPolicy = "NeverVerify"
	// NeverVerifyPreloaded asks for proof where this node has a record of the pull.
	NeverVerifyPreloaded VerifyPolicy = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlisted asks for proof unless Config.Allowlist has the image.
	NeverVerifyAllowlisted VerifyPolicy = "NeverVerifyAllowlistedImages"
	AlwaysVerify           VerifyPolicy = "AlwaysVerify"
)

// MustProve reports whether a pod has to prove that it may use an image that is
// present. recorded is whether the node has a record of having pulled it. Entries
// of the allowlist are names without tag and digest, or end in /*.
func (v VerifyPolicy) MustProve(image string, recorded bool, allowlist []string) bool {
	switch v {
	case NeverVerify:
		return false
	case NeverVerifyPreloaded:
		return recorded
	case NeverVerifyAllowlisted:
		return !allowlisted(keyring.Repository(image), allowlist)
	default:
		return true
	}
}

func allowlisted(name string, allowlist []string) bool {
	return slices.ContainsFunc(allowlist, func(entry string) bool {
		folder, ok := strings.CutSuffix(entry, "/*")
		if !ok {
			return keyring.Repository(entry) == name
		}
		// Two more parts make it a full name, whatever the folder is of.
		const below = "/x/x"
		return strings.HasPrefix(name, strings.TrimSuffix(keyring.Repository(folder+below), below)+"/")
	})
}

func checkAllowlist(allowlist []string) error {
	for _, entry := range allowlist {
		name := strings.TrimSuffix(entry, "/*")
		if _, tag, digest, err := split(name); err != nil {
			return fmt.Errorf("imagepull: Config.Allowlist: %q: %w", entry, err)
		} else if tag != "" || digest != "" {
			return fmt.Errorf("imagepull: Config.Allowlist: %q: want a name without tag and digest", entry)
		}
	}
	return nil
}

// with returns the credentials with one more source, and whether that is new.
func (c credentials) with(s keyring.Source) (credentials, bool) {
	switch {
	case c.NodePodsAccessible:
		return c, false
	case s.Kind == keyring.Node:
		return credentials{NodePodsAccessible: true}, true
	case s.Kind == keyring.ServiceAccount:
		one := account{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
		if slices.Contains(c.KubernetesServiceAccounts, one) {
			return c, false
		}
		c.KubernetesServiceAccounts = append(slices.Clone(c.KubernetesServiceAccounts), one)
		return c, true
	}
	one := secret{UID: s.UID, Namespace: s.Namespace, Name: s.Name, CredentialHash: s.Hash}
	if slices.Contains(c.KubernetesSecrets, one) {
		return c, false
	}
	others := slices.DeleteFunc(slices.Clone(c.KubernetesSecrets), func(o secret) bool {
		return o.UID == one.UID && o.Namespace == one.Namespace && o.Name == one.Name
	})
	// The oldest makes room: its pod can still pull.
	c.KubernetesSecrets = append(others[max(0, len(others)-maxSecrets+1):], one)
	return c, true
}

// provenBy returns the source that shows that its pod may use the image. A secret
// does it by its content, or by being the very object that pulled before, whatever
// it holds now. An object without a UID, as in a manifest, has only its content.
func (c credentials) provenBy(all []keyring.Credential) (keyring.Source, bool) {
	if c.NodePodsAccessible {
		return keyring.Source{Kind: keyring.Node}, true
	}
	for _, have := range all {
		s := have.Source
		switch s.Kind {
		case keyring.Secret:
			if slices.ContainsFunc(c.KubernetesSecrets, func(o secret) bool {
				return o.CredentialHash == s.Hash || s.UID != "" && o.UID == s.UID && o.Namespace == s.Namespace && o.Name == s.Name
			}) {
				return s, true
			}
		case keyring.ServiceAccount:
			if slices.Contains(c.KubernetesServiceAccounts, account{UID: s.UID, Namespace: s.Namespace, Name: s.Name}) {
				return s, true
			}
		}
	}
	return keyring.Source{}, false
}

// mayUse reports whether the pod may use the image that is there without a pull.
func (a *ask) mayUse(ctx context.Context, id string) bool {
	r := a.p.records
	if r == nil {
		return true
	}
	rec, recorded, err := r.get(id)
	if err != nil {
		a.p.cfg.Log.Error(err, "A pull record cannot be read; its image is pulled again", "image", a.image)
	}
	if !a.p.cfg.Verify.MustProve(a.image, recorded || a.unsure, a.p.cfg.Allowlist) {
		return true
	}
	name := keyring.Repository(a.image)
	had, ok := rec.CredentialMapping[name]
	if !ok {
		return false
	}
	if had.NodePodsAccessible {
		return true
	}
	answer, err := a.lookup(ctx)
	if err != nil {
		return false // the pull, if there is one, fails with it
	}
	by, ok := had.provenBy(answer.Credentials)
	if ok {
		r.add(id, name, by, false)
	}
	return ok
}

// lookup asks for the pod's credentials, once.
func (a *ask) lookup(ctx context.Context) (keyring.Answer, error) {
	if a.p.cfg.Credentials == nil {
		return keyring.Answer{}, nil
	}
	if a.answer == nil {
		answer, err := a.p.cfg.Credentials.Lookup(ctx, a.image, a.pod)
		if err != nil {
			return keyring.Answer{}, err
		}
		a.answer = &answer
	}
	return *a.answer, nil
}

// settle finds out what came of pulls that ended unseen, in this process or the
// one before: an image of theirs would pass for one that was always there. Where
// the runtime can't tell, every image without a record may be that one.
func (a *ask) settle(ctx context.Context) error {
	r := a.p.records
	if r == nil {
		return nil
	}
	for _, image := range r.leftovers() {
		id, err := a.p.idOf(ctx, image)
		switch {
		case err == nil:
			if id != "" {
				r.addUnknown(id)
			}
			r.settled(image)
		case ctx.Err() != nil:
			return fmt.Errorf("look for image %s: %w", image, ctx.Err())
		case image == a.image:
			return a.cannotInspect(err) // a pull would move the name away from what it left
		default:
			a.p.cfg.Log.Info("The runtime does not tell about an image whose pull was interrupted", "image", image, "err", err.Error())
			a.unsure = true
		}
	}
	return nil
}

// idOf returns the ID of an image, nothing when it is not there. It is asked about
// other pods' images, too, and one of those must not hold up this pod.
func (p *Puller) idOf(ctx context.Context, image string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	resp, err := p.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: image}, false)
	if err != nil && !errors.Is(criclient.Wrap("", err), criclient.ErrNotFound) {
		return "", err
	}
	return resp.GetImage().GetId(), nil
}

// DropRecords forgets who pulled images that are no longer on the node. present
// are the IDs of all images of a listing that succeeded and began at listed.
func (p *Puller) DropRecords(present []string, listed time.Time) error {
	if p.records == nil {
		return nil
	}
	return p.records.drop(present, listed)
}

package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	configv1 "k8s.io/kubelet/config/v1"
)

// Secrets is where the pods' imagePullSecrets come from.
type Secrets interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Config has a useful zero value, which finds nothing.
type Config struct {
	// Secrets finds imagePullSecrets; without it they all are missing.
	Secrets Secrets
	// Files are docker config files of the node. The first one that can be read
	// counts; one named .dockercfg has the old form. [NodeFiles] has the kubelet's.
	Files []string
	// Providers are exec plug-ins, see [ReadProviders]; their programs are in BinDir.
	Providers []configv1.CredentialProvider
	BinDir    string
	// Account gives plug-ins with tokenAttributes the pod's service account with a
	// token for the audience, bound to the pod. Without it such a plug-in is not
	// asked for a pod that has a service account.
	Account func(ctx context.Context, pod *corev1.Pod, audience string) (Account, error)
	Log     logr.Logger
	Hooks   Hooks
}

// Account is the service account of a pod.
type Account struct {
	UID         string
	Annotations map[string]string
	Token       string
}

// Hooks report work as it happens. They must not block.
type Hooks struct {
	// Ran is called after each run of a plug-in's program.
	Ran func(plugin string, took time.Duration, err error)
}

// Answer is what may be tried for one image and one pod.
type Answer struct {
	// Credentials come in the order in which to try them. None is an anonymous pull.
	Credentials []Credential
	// MissingSecrets are the names of imagePullSecrets that could not be read. They
	// are only worth a word when the pull fails.
	MissingSecrets []string
}

// Credential is one thing to show to the registry.
type Credential struct {
	Auth   *runtimeapi.AuthConfig
	Source Source
}

// SourceKind tells whose a credential is.
type SourceKind uint8

// Node credentials are every pod's; the others are those of pods in one namespace.
const (
	Node SourceKind = iota
	Secret
	ServiceAccount
)

// Source tells where a credential came from. The record of a pull keeps it.
type Source struct {
	Kind                 SourceKind
	Namespace, Name, UID string // of the secret or service account
	// Hash is of the credential, and set for secrets only.
	Hash string
}

// Keyring finds credentials. Its methods may be called at the same time.
type Keyring struct {
	cfg     Config
	files   *nodeFiles
	plugins []*plugin
}

// New checks cfg, and that each plug-in's program is there. It starts nothing.
func New(cfg Config) (*Keyring, error) {
	if cfg.Log.GetSink() == nil {
		cfg.Log = logr.Discard()
	}
	if cfg.Hooks.Ran == nil {
		cfg.Hooks.Ran = func(string, time.Duration, error) {}
	}
	k := &Keyring{cfg: cfg, files: newNodeFiles(cfg.Files, cfg.Log)}
	if err := validate(cfg.Providers); err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	for i := range cfg.Providers {
		p, err := newPlugin(&cfg.Providers[i], cfg)
		if err != nil {
			return nil, fmt.Errorf("keyring: %w", err)
		}
		k.plugins = append(k.plugins, p)
	}
	return k, nil
}

// Lookup finds what to try for the image of a pod. Trouble with the node's files
// and with plug-ins is logged and is no error: the pull goes on without them. An
// imagePullSecret that is there and can't be parsed is one.
func (k *Keyring) Lookup(ctx context.Context, image string, pod *corev1.Pod) (Answer, error) {
	repository := Repository(image)
	secrets, missing, err := k.ofSecrets(ctx, pod)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Credentials: find(secrets, repository), MissingSecrets: missing}
	answer.Credentials = append(answer.Credentials, find(k.files.load(), repository)...)

	ofPlugins := make([][]Credential, len(k.plugins))
	var wg sync.WaitGroup
	for i, p := range k.plugins {
		wg.Go(func() { ofPlugins[i] = p.credentials(ctx, repository, pod) })
	}
	wg.Wait()
	for _, c := range ofPlugins {
		answer.Credentials = append(answer.Credentials, c...)
	}
	if ctx.Err() != nil {
		return Answer{}, fmt.Errorf("look for credentials of %s: %w", repository, ctx.Err())
	}
	return answer, nil
}

// ofSecrets reads the pod's imagePullSecrets. One that is of neither type is
// passed over, as the kubelet does it.
func (k *Keyring) ofSecrets(ctx context.Context, pod *corev1.Pod) (all []sourced, missing []string, err error) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue // the API allows it, and it names nothing
		}
		secret, err := k.secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			k.cfg.Log.V(1).Info("An image pull secret cannot be read", "pod", pod.Namespace+"/"+pod.Name, "secret", ref.Name, "err", err.Error())
			missing = append(missing, ref.Name)
			continue
		}
		entries, err := parseSecret(secret)
		if err != nil {
			return nil, nil, fmt.Errorf("read image pull secret %s/%s: %w", pod.Namespace, ref.Name, err)
		}
		for _, e := range entries {
			all = k.add(all, e, Source{
				Kind: Secret, Namespace: pod.Namespace, Name: ref.Name, UID: string(secret.UID), Hash: hash(e.Auth),
			})
		}
	}
	return all, missing, nil
}

func (k *Keyring) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if k.cfg.Secrets == nil {
		return nil, fmt.Errorf("find secret %s/%s: this node has no source of secrets", namespace, name)
	}
	return k.cfg.Secrets.Secret(ctx, namespace, name)
}

// add leaves out entries whose key is none.
func (k *Keyring) add(all []sourced, e Entry, source Source) []sourced {
	key, err := parseKey(e.Key)
	if err != nil {
		k.cfg.Log.Info("A credential is for no registry", "secret", source.Namespace+"/"+source.Name, "err", err.Error())
		return all
	}
	return append(all, sourced{key: key, Credential: Credential{Auth: e.Auth, Source: source}})
}

func parseSecret(secret *corev1.Secret) ([]Entry, error) {
	for _, form := range []struct {
		of    corev1.SecretType
		key   string
		parse func([]byte) ([]Entry, error)
	}{
		{corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, ParseConfigJSON},
		{corev1.SecretTypeDockercfg, corev1.DockerConfigKey, ParseDockercfg},
	} {
		data := secret.Data[form.key]
		if secret.Type != form.of || len(data) == 0 {
			continue
		}
		entries, err := form.parse(data)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", form.key, err)
		}
		return entries, nil
	}
	return nil, nil
}

// hash tells credentials of secrets apart. It is the kubelet's, so that a record
// of one is worth something to the other.
func hash(a *runtimeapi.AuthConfig) string {
	text, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Auth          string `json:"auth,omitempty"`
		ServerAddress string `json:"serveraddress,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{a.Username, a.Password, a.Auth, a.ServerAddress, a.IdentityToken, a.RegistryToken})
	if err != nil {
		panic("keyring: strings cannot be marshalled: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

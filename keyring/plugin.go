package keyring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	configv1 "k8s.io/kubelet/config/v1"
)

const (
	runWithin    = time.Minute // the kubelet's
	pipesWithin  = time.Second // for what the program left behind with our pipes open
	maxAnswer    = 1 << 20
	maxComplaint = 1 << 10
)

// plugin asks one program for credentials.
type plugin struct {
	spec *configv1.CredentialProvider
	cfg  Config
	path string
	memory
}

func newPlugin(spec *configv1.CredentialProvider, cfg Config) (*plugin, error) {
	if cfg.BinDir == "" {
		return nil, fmt.Errorf("find credential provider %s: Config.BinDir is required with Providers", spec.Name)
	}
	path := filepath.Join(cfg.BinDir, spec.Name)
	if _, err := exec.LookPath(path); err != nil {
		return nil, fmt.Errorf("find credential provider: %w", err)
	}
	p := &plugin{spec: spec, cfg: cfg, path: path}
	p.mu.cache = make(map[cacheKey]cached)
	p.mu.runs = make(map[cacheKey]*run)
	return p, nil
}

// credentials returns what the plug-in has for the pod, nothing if it can't tell.
func (p *plugin) credentials(ctx context.Context, repository string, pod *corev1.Pod) []Credential {
	if !slices.ContainsFunc(p.spec.MatchImages, func(m string) bool { return Match(m, repository) }) {
		return nil
	}
	log := p.cfg.Log.WithValues("plugin", p.spec.Name, "image", repository, "pod", pod.Namespace+"/"+pod.Name)
	who, err := p.identify(ctx, pod)
	if err != nil {
		log.Info("A credential plug-in is not asked", "err", err.Error())
		return nil
	}
	entries, err := p.remembered(ctx, repository, who)
	if err != nil {
		if ctx.Err() == nil {
			log.Error(err, "A credential plug-in gave nothing")
		}
		return nil
	}
	source := Source{Kind: Node}
	if who.token != "" {
		source = Source{Kind: ServiceAccount, Namespace: pod.Namespace, Name: who.name, UID: who.uid}
	}
	var all []sourced
	for _, e := range entries {
		key, err := parseKey(e.Key)
		if err != nil {
			log.Info("A credential is for no registry", "err", err.Error())
			continue
		}
		all = append(all, sourced{key: key, Credential: Credential{Auth: e.Auth, Source: source}})
	}
	return find(all, repository)
}

// identity is the service account on whose behalf a plug-in is asked; the zero
// value is the node's own. Its fields are of the plug-in's own choice: those it
// did not ask for stay empty.
type identity struct {
	namespace, name, uid string
	annotations          map[string]string
	token                string
}

// identify decides whether the plug-in can be asked for the pod, and as whom.
func (p *plugin) identify(ctx context.Context, pod *corev1.Pod) (identity, error) {
	attributes := p.spec.TokenAttributes
	if attributes == nil {
		return identity{}, nil
	}
	name := pod.Spec.ServiceAccountName
	switch {
	case name == "" && *attributes.RequireServiceAccount:
		return identity{}, errors.New("it wants a service account, and the pod has none")
	case name == "":
		return identity{}, nil
	case p.cfg.Account == nil:
		return identity{}, errors.New("it wants a service account's token, and this node has no source of them")
	}
	account, err := p.cfg.Account(ctx, pod, attributes.ServiceAccountTokenAudience)
	if err != nil {
		return identity{}, fmt.Errorf("get a token of service account %s: %w", name, err)
	}
	if account.Token == "" {
		return identity{}, fmt.Errorf("get a token of service account %s: it is empty", name)
	}
	who := identity{namespace: pod.Namespace, name: name, uid: account.UID, token: account.Token}
	for _, keys := range [][]string{attributes.RequiredServiceAccountAnnotationKeys, attributes.OptionalServiceAccountAnnotationKeys} {
		for _, key := range keys {
			if value, ok := account.Annotations[key]; ok {
				if who.annotations == nil {
					who.annotations = map[string]string{}
				}
				who.annotations[key] = value
			}
		}
	}
	for _, key := range attributes.RequiredServiceAccountAnnotationKeys {
		if _, ok := who.annotations[key]; !ok {
			return identity{}, fmt.Errorf("service account %s has no annotation %s", name, key)
		}
	}
	return who, nil
}

// The protocol, one document each way. k8s.io/kubelet has the same as Go types;
// these are the parts of all its versions.
type request struct {
	metav1.TypeMeta
	Image                     string            `json:"image"`
	ServiceAccountToken       string            `json:"serviceAccountToken,omitempty"`
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

type response struct {
	metav1.TypeMeta
	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"`
	Auth          map[string]struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"auth"`
}

// run starts the program, tells it what it is about, and reads its answer.
func (p *plugin) run(ctx context.Context, repository string, who identity) (answer response, err error) {
	began := time.Now()
	defer func() { p.cfg.Hooks.Ran(p.spec.Name, time.Since(began), err) }()
	question, err := json.Marshal(request{
		TypeMeta: metav1.TypeMeta{APIVersion: p.spec.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    repository, ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations,
	})
	if err != nil {
		return response{}, fmt.Errorf("ask %s: %w", p.path, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, runWithin, fmt.Errorf("no answer within %s", runWithin))
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.spec.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.spec.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, complaint := bounded{max: maxAnswer}, bounded{max: maxComplaint, forget: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &out, &complaint
	cmd.WaitDelay = pipesWithin
	endTogether(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if out.full {
			err = fmt.Errorf("it says more than %d bytes", maxAnswer)
		}
		if said := strings.TrimSpace(complaint.buf.String()); said != "" {
			return response{}, fmt.Errorf("ask %s: %w: %s", p.path, err, said)
		}
		return response{}, fmt.Errorf("ask %s: %w", p.path, err)
	}
	if answer, err = parseResponse(out.buf.Bytes(), p.spec.APIVersion); err != nil {
		return response{}, fmt.Errorf("ask %s: %w", p.path, err)
	}
	return answer, nil
}

func parseResponse(data []byte, apiVersion string) (response, error) {
	var r response
	if err := json.Unmarshal(data, &r); err != nil {
		return response{}, fmt.Errorf("parse its answer: %w", err)
	}
	if r.Kind != "CredentialProviderResponse" || r.APIVersion != apiVersion {
		return response{}, fmt.Errorf("parse its answer: it is a %q of %q, want CredentialProviderResponse of %s", r.Kind, r.APIVersion, apiVersion)
	}
	switch r.CacheKeyType {
	case perImage, perRegistry, perNode:
		return r, nil
	}
	return response{}, fmt.Errorf("parse its answer: cacheKeyType %q: want Image, Registry or Global", r.CacheKeyType)
}

func (r response) entries() []Entry {
	var all []Entry
	for key, a := range r.Auth {
		all = append(all, Entry{Key: key, Auth: &runtimeapi.AuthConfig{Username: a.Username, Password: a.Password}})
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// bounded is a buffer that a program can't fill without end. What is too much is
// an error, which ends the program, or is dropped. It must not be an io.ReaderFrom,
// as the [bytes.Buffer] in it is: that would go around the bound.
type bounded struct {
	buf    bytes.Buffer
	max    int
	forget bool
	full   bool // something was too much
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - b.buf.Len()
	if len(p) <= room {
		return b.buf.Write(p)
	}
	b.full = true
	if !b.forget {
		return 0, errors.New("too much")
	}
	b.buf.Write(p[:room])
	return len(p), nil
}

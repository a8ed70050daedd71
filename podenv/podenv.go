package podenv

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// ErrTooLarge is wrapped by the error for an environment that no program could be
// started with.
var ErrTooLarge = errors.New("podenv: environment is larger than the kernel takes")

// Objects reads what a pod refers to. For an object that does not exist the error
// is one for which apierrors.IsNotFound holds. Objects are shared: read-only.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Services returns the services of a namespace. An error says that they are not
// known, which is not the same as none.
type Services func(namespace string) ([]*corev1.Service, error)

// Inputs are what a container's environment is made from. Pod and Container are
// required; a pod that refers to something whose reader is nil gets an error.
type Inputs struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	// Addresses are the pod's; those of a pod on the host's network are the host's.
	Addresses podspec.Addresses
	// Allocatable is what a container without a limit of its own can reach.
	Allocatable corev1.ResourceList
	Objects     Objects
	// Services: nil makes no service variables.
	Services Services
	// ReadFile reads a file of one of the pod's volumes. A pod chose the path: it
	// must not lead out of the volume. The caller bounds the size.
	ReadFile func(volume, path string) ([]byte, error)
}

// Var is a variable with its final value.
type Var struct{ Name, Value string }

// Env is the final environment of a container, as [Build] made it.
type Env struct {
	// Vars have unique names. One that was set twice stands where it was set
	// first, with the value that was set last.
	Vars []Var

	values map[string]string
}

// Build makes the environment of a container. Later entries win: env over envFrom,
// and either over the services'. The error is fit for the message of the reason
// CreateContainerConfigError.
func Build(ctx context.Context, in Inputs) (Env, error) {
	b := &builder{
		ctx: ctx, in: in, at: map[string]int{}, values: map[string]string{},
		configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}, files: map[fileName]*envFile{},
	}
	services, err := b.services()
	if err != nil {
		return Env{}, err
	}
	for _, v := range services {
		b.values[v.Name] = v.Value // can be referred to, but anything else wins
	}
	for i := range in.Container.EnvFrom {
		if err := b.envFrom(&in.Container.EnvFrom[i]); err != nil {
			return Env{}, err
		}
	}
	for i := range in.Container.Env {
		if err := b.env(&in.Container.Env[i]); err != nil {
			return Env{}, err
		}
	}
	for _, v := range services {
		if _, ok := b.at[v.Name]; ok {
			continue
		}
		if err := b.set(v.Name, v.Value); err != nil {
			return Env{}, err
		}
	}
	return Env{Vars: b.vars, values: b.values}, nil
}

// builder is one call of [Build].
type builder struct {
	ctx context.Context
	in  Inputs

	vars   []Var
	at     map[string]int    // of a name in vars
	values map[string]string // what can be referred to
	size   int               // of vars, as the kernel counts

	// What is read is read once, so that all of a container's variables are from
	// one version of it.
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	files      map[fileName]*envFile
}

// set gives a variable its value. It refuses what could not be handed over: the
// runtime's protocol is UTF-8, and to the kernel a NUL is the end.
func (b *builder) set(name, value string) error {
	if !isText(name) || !isText(value) {
		return fmt.Errorf("environment variable %q of container %s has bytes that are not text; put them into a volume and give their path instead",
			name, b.in.Container.Name)
	}
	if i, ok := b.at[name]; ok {
		b.size += len(value) - len(b.vars[i].Value)
		b.vars[i].Value = value
	} else {
		b.size += len(name) + len("=") + len(value) + 1
		b.at[name] = len(b.vars)
		b.vars = append(b.vars, Var{name, value})
	}
	if b.size > podspec.MaxExpanded {
		return fmt.Errorf("%w: container %s has more than %d bytes with variable %q", ErrTooLarge, b.in.Container.Name, podspec.MaxExpanded, name)
	}
	b.values[name] = value
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Expand fills in $(NAME), as in command and args. The list is not changed. What is
// beyond [podspec.MaxExpanded] stays as it is: no program starts with so much.
func (e Env) Expand(list []string) []string {
	if list == nil {
		return nil
	}
	out := slices.Clone(list)
	size := 0
	for i, s := range out {
		if size <= podspec.MaxExpanded {
			out[i] = podspec.Expand(s, e.values)
		}
		size += len(out[i])
	}
	return out
}

// SubPath makes a path below a volume from a subPathExpr. A variable that does not
// exist, or is empty, is an error: the path would be another pod's, or the whole
// volume. So is a path that is absolute or steps back. What is on disk is not
// looked at: a link in the volume may still lead out of it.
func (e Env) SubPath(expr string) (string, error) {
	var missing []string
	got := podspec.ExpandFunc(expr, func(name string) (string, bool) {
		value := e.values[name]
		if value == "" && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return value, value != ""
	})
	switch {
	case len(missing) > 0:
		return "", fmt.Errorf("missing value for %s in subPathExpr %q", strings.Join(missing, ", "), expr)
	case path.IsAbs(got):
		return "", fmt.Errorf("subPathExpr %q is %q: it must not be an absolute path", expr, got)
	case slices.Contains(strings.Split(got, "/"), ".."):
		return "", fmt.Errorf("subPathExpr %q is %q: it must not contain \"..\"", expr, got)
	}
	return got, nil
}

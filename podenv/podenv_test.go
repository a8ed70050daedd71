package podenv_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/podenv"
	"github.com/kubeletkit/kubeletkit/podspec"
)

// objects are the config maps and secrets of namespace shop.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
	reads      int
	broken     error
}

func (o *objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o.reads++
	data, ok := o.configMaps[name]
	if o.broken != nil {
		return nil, o.broken
	}
	if !ok || namespace != "shop" {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{Data: data, BinaryData: map[string][]byte{"BINARY": {1}}}, nil
}

func (o *objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	o.reads++
	data, ok := o.secrets[name]
	if !ok || namespace != "shop" {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return &corev1.Secret{Data: data}, nil
}

func newObjects() *objects {
	return &objects{
		configMaps: map[string]map[string]string{
			"one": {"A": "one-a", "B": "one-b", "ref": "$(A)", "a.b": "dotted", "9x": "digit"},
			"two": {"B": "two-b", "C": "two-c"},
		},
		secrets: map[string]map[string][]byte{
			"hidden": {"PASSWORD": []byte("s3cret"), "KEY": []byte("k")},
			"binary": {"RAW": {0xff, 0xfe}, "NUL": []byte("a\x00b")},
		},
	}
}

func optional(b bool) *bool { return &b }

func fromMap(prefix, name string, opt *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: opt}}
}

func fromSecret(prefix, name string, opt *bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: opt}}
}

func value(name, v string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: v} }

func mapKey(name, object, key string, opt *bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: opt}}}
}

func secretKey(name, object, key string, opt *bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key, Optional: opt}}}
}

func fieldOf(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func resourceOf(name, container, res, divisor string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
		ContainerName: container, Resource: res, Divisor: resource.MustParse(divisor)}}}
}

func fileKey(name, volume, path, key string, opt *bool) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{
		VolumeName: volume, Path: path, Key: key, Optional: opt}}}
}

// inputs is a pod with one container that has this environment.
func inputs(env []corev1.EnvVar, from ...corev1.EnvFromSource) podenv.Inputs {
	links := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", EnableServiceLinks: &links,
			Containers: []corev1.Container{{
				Name: "app", Env: env, EnvFrom: from,
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}},
			}},
		},
	}
	files := map[string]string{"data/app.env": "A='1'\nEMPTY=''\nB='two\nlines'\n", "data/bad.env": "A=1\n"}
	return podenv.Inputs{
		Pod: pod, Container: &pod.Spec.Containers[0], Objects: newObjects(),
		Addresses:   podspec.Addresses{PodIPs: []string{"10.0.0.2", "fd00::2"}, HostIPs: []string{"192.0.2.1"}},
		Allocatable: corev1.ResourceList{"memory": resource.MustParse("1Gi")},
		ReadFile: func(volume, path string) ([]byte, error) {
			content, ok := files[volume+"/"+path]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
			}
			return []byte(content), nil
		},
	}
}

func lines(e podenv.Env) string {
	var out []string
	for _, v := range e.Vars {
		out = append(out, v.Name+"="+v.Value)
	}
	return strings.Join(out, "\n")
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name string
		env  []corev1.EnvVar
		from []corev1.EnvFromSource
		want string // NAME=value, one a line
	}{
		{name: "nothing"},
		{name: "values in the order of the spec", env: []corev1.EnvVar{value("B", "2"), value("A", "1"), value("NONE", "")}, want: "B=2\nA=1\nNONE="},
		{name: "the last value wins, at the first one's place", env: []corev1.EnvVar{value("A", "1"), value("B", "2"), value("A", "3")}, want: "A=3\nB=2"},
		{name: "only earlier variables can be referred to",
			env:  []corev1.EnvVar{value("EARLY", "$(LATE)"), value("LATE", "x"), value("BOTH", "$(LATE) $(EARLY) $(NONE) $$(LATE)")},
			want: "EARLY=$(LATE)\nLATE=x\nBOTH=x $(LATE) $(NONE) $(LATE)"},
		{name: "a variable refers to its own value before", env: []corev1.EnvVar{value("P", "/bin"), value("P", "$(P):/sbin")}, want: "P=/bin:/sbin"},
		{name: "all keys of a config map, sorted, as they are", from: []corev1.EnvFromSource{fromMap("", "one", nil)},
			want: "9x=digit\nA=one-a\nB=one-b\na.b=dotted\nref=$(A)"},
		{name: "a prefix", from: []corev1.EnvFromSource{fromSecret("P_", "hidden", nil)}, want: "P_KEY=k\nP_PASSWORD=s3cret"},
		{name: "later sources override earlier ones, and env overrides both",
			from: []corev1.EnvFromSource{fromMap("", "one", nil), fromMap("", "two", nil)},
			env:  []corev1.EnvVar{value("C", "env-$(C)-$(B)")},
			want: "9x=digit\nA=one-a\nB=two-b\na.b=dotted\nref=$(A)\nC=env-two-c-two-b"},
		{name: "optional sources that are not there", from: []corev1.EnvFromSource{fromMap("", "no", optional(true)), fromSecret("", "no", optional(true)), {}}},
		{name: "keys", env: []corev1.EnvVar{mapKey("A", "one", "a.b", nil), secretKey("B", "hidden", "KEY", optional(false))}, want: "A=dotted\nB=k"},
		{name: "the value of a key is not expanded", env: []corev1.EnvVar{value("A", "1"), mapKey("R", "one", "ref", nil)}, want: "A=1\nR=$(A)"},
		{name: "a value goes before valueFrom",
			env: []corev1.EnvVar{{Name: "A", Value: "1", ValueFrom: mapKey("A", "no", "no", nil).ValueFrom}}, want: "A=1"},
		{name: "a source without a kind", env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{}}}, want: "A="},
		{name: "optional keys that are not there leave no variable, and what envFrom gave",
			from: []corev1.EnvFromSource{fromMap("", "two", nil)},
			env: []corev1.EnvVar{mapKey("B", "one", "none", optional(true)), mapKey("X", "no", "k", optional(true)),
				secretKey("Y", "hidden", "none", optional(true)), secretKey("Z", "no", "k", optional(true))},
			want: "B=two-b\nC=two-c"},
		{name: "fields", env: []corev1.EnvVar{fieldOf("N", "metadata.name"), fieldOf("L", "metadata.labels['app']"), fieldOf("NONE", "metadata.labels['x']"),
			fieldOf("IP", "status.podIP"), fieldOf("IPS", "status.podIPs"), fieldOf("HOST", "status.hostIP"), fieldOf("NODE", "spec.nodeName")},
			want: "N=web\nL=web\nNONE=\nIP=10.0.0.2\nIPS=10.0.0.2,fd00::2\nHOST=192.0.2.1\nNODE=node-1"},
		{name: "resources", env: []corev1.EnvVar{resourceOf("C", "", "limits.cpu", "1m"), resourceOf("M", "app", "limits.memory", "1Mi")}, want: "C=1500\nM=1024"},
		{name: "env files", env: []corev1.EnvVar{fileKey("X", "data", "app.env", "B", nil), fileKey("Y", "data", "app.env", "A", nil),
			fileKey("NO", "data", "app.env", "NO", optional(true)), fileKey("NO", "data", "app.env", "EMPTY", optional(true)), fileKey("NO", "data", "no.env", "A", optional(true))},
			want: "X=two\nlines\nY=1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := podenv.Build(t.Context(), inputs(tt.env, tt.from...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, lines(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildErrors(t *testing.T) {
	tests := []struct {
		name string
		env  []corev1.EnvVar
		from []corev1.EnvFromSource
		want string
	}{
		{name: "a config map that is not there", from: []corev1.EnvFromSource{fromMap("", "no", nil)}, want: `configmaps "no" not found`},
		{name: "a secret that is not there", from: []corev1.EnvFromSource{fromSecret("", "no", optional(false))}, want: `secrets "no" not found`},
		{name: "a key's config map", env: []corev1.EnvVar{mapKey("A", "no", "k", nil)}, want: `configmaps "no" not found`},
		{name: "a key's secret", env: []corev1.EnvVar{secretKey("A", "no", "k", nil)}, want: `secrets "no" not found`},
		{name: "a key of a config map", env: []corev1.EnvVar{mapKey("A", "one", "none", nil)}, want: "couldn't find key none in ConfigMap shop/one"},
		{name: "a key of a secret", env: []corev1.EnvVar{secretKey("A", "hidden", "none", nil)}, want: "couldn't find key none in Secret shop/hidden"},
		{name: "binaryData is not used", env: []corev1.EnvVar{mapKey("A", "one", "BINARY", nil)}, want: "couldn't find key BINARY in ConfigMap shop/one"},
		{name: "a field", env: []corev1.EnvVar{fieldOf("A", "status.phase")}, want: `environment variable "A" of container app: podspec: no such field: "status.phase"`},
		{name: "a resource", env: []corev1.EnvVar{resourceOf("A", "", "limits.disk", "1")}, want: `environment variable "A" of container app: podspec: no such field: resource "limits.disk"`},
		{name: "a container", env: []corev1.EnvVar{resourceOf("A", "other", "limits.cpu", "1")}, want: `container "other" is not in the pod`},
		{name: "an env file", env: []corev1.EnvVar{fileKey("A", "data", "no.env", "A", nil)}, want: `couldn't parse env file "no.env" of volume "data": open no.env: file does not exist`},
		{name: "a bad env file", env: []corev1.EnvVar{fileKey("A", "data", "bad.env", "B", optional(true))}, want: `couldn't parse env file "bad.env" of volume "data": line 1: the value is not in single quotes`},
		{name: "a key of an env file", env: []corev1.EnvVar{fileKey("A", "data", "app.env", "NO", nil)}, want: `environment variable key "NO" not found in file "app.env" of volume "data", or empty there`},
		{name: "an empty key of an env file", env: []corev1.EnvVar{fileKey("A", "data", "app.env", "EMPTY", nil)}, want: `environment variable key "EMPTY" not found in file "app.env" of volume "data", or empty there`},
		{name: "what is not text", env: []corev1.EnvVar{secretKey("A", "binary", "RAW", nil)}, want: `environment variable "A" of container app has bytes that are not text; put them into a volume and give their path instead`},
		{name: "a NUL", from: []corev1.EnvFromSource{fromSecret("P_", "binary", nil)}, want: `environment variable "P_NUL" of container app has bytes that are not text; put them into a volume and give their path instead`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := podenv.Build(t.Context(), inputs(tt.env, tt.from...))
			if err == nil || err.Error() != tt.want {
				t.Errorf("Build = %q, %v\nwant the error %s", lines(got), err, tt.want)
			}
		})
	}
}

func TestAnUnreadableObjectIsNotTakenForAMissingOne(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, in := range map[string]podenv.Inputs{
		"envFrom": inputs(nil, fromMap("", "one", optional(true))),
		"env":     inputs([]corev1.EnvVar{mapKey("A", "one", "A", optional(true))}),
	} {
		in.Objects.(*objects).broken = broken
		if _, err := podenv.Build(t.Context(), in); !errors.Is(err, broken) {
			t.Errorf("%s: error %v, want that of the read", name, err)
		}
	}
}

func TestWithoutReaders(t *testing.T) {
	for want, in := range map[string]podenv.Inputs{
		"couldn't get configMap shop/one: this node has no source of config maps": inputs(nil, fromMap("", "one", optional(true))),
		"couldn't get secret shop/hidden: this node has no source of secrets":     inputs([]corev1.EnvVar{secretKey("A", "hidden", "KEY", optional(true))}),
		`read env file "app.env" of volume "data": this node reads no env files`:  inputs([]corev1.EnvVar{fileKey("A", "data", "app.env", "A", optional(true))}),
	} {
		in.Objects, in.ReadFile = nil, nil
		if _, err := podenv.Build(t.Context(), in); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestAnObjectIsReadOncePerContainer(t *testing.T) {
	in := inputs([]corev1.EnvVar{mapKey("A", "one", "A", nil), mapKey("B", "one", "B", nil), secretKey("K", "hidden", "KEY", nil)},
		fromMap("", "one", nil), fromSecret("", "hidden", nil))
	if _, err := podenv.Build(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if got := in.Objects.(*objects).reads; got != 2 {
		t.Errorf("%d reads of two objects", got)
	}
}

func TestAnEnvironmentNoProgramCouldHaveIsRefused(t *testing.T) {
	env := []corev1.EnvVar{value("V0", strings.Repeat("x", 1024))}
	for i := range 100 { // each is twice the one before: 2^110 bytes
		env = append(env, value(fmt.Sprintf("V%d", i+1), fmt.Sprintf("$(V%d)$(V%d)", i, i)))
	}
	_, err := podenv.Build(t.Context(), inputs(env))
	if !errors.Is(err, podenv.ErrTooLarge) || !strings.Contains(err.Error(), "container app") {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
}

func TestAnOverriddenValueDoesNotCount(t *testing.T) {
	large := strings.Repeat("x", podspec.MaxExpanded*2/3)
	for name, tt := range map[string]struct {
		env  []corev1.EnvVar
		fits bool
	}{
		"large, and large again":                   {[]corev1.EnvVar{value("A", large), value("A", large)}, true},
		"large, then small, and another large one": {[]corev1.EnvVar{value("A", large), value("A", "x"), value("B", large)}, true},
		"small, then large, and another large one": {[]corev1.EnvVar{value("A", "x"), value("A", large), value("B", large)}, false},
	} {
		if _, err := podenv.Build(t.Context(), inputs(tt.env)); errors.Is(err, podenv.ErrTooLarge) == tt.fits {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestExpand(t *testing.T) {
	e, err := podenv.Build(t.Context(), inputs([]corev1.EnvVar{value("A", "1"), value("SELF", "$(LATE)"), value("LATE", "x")}))
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"$(A)", "$(SELF)", "$$(A)", "$(NO)", "$(LATE)"}
	if diff := cmp.Diff([]string{"1", "$(LATE)", "$(A)", "$(NO)", "x"}, e.Expand(list)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list[0] != "$(A)" {
		t.Error("Expand has changed its argument, which is the pod's")
	}
	if got := e.Expand(nil); got != nil {
		t.Errorf("no command became %q", got)
	}
	if got := (podenv.Env{}).Expand([]string{"$(A)"}); got[0] != "$(A)" {
		t.Errorf("an empty environment made %q", got)
	}
}

func TestExpandIsBounded(t *testing.T) {
	e, err := podenv.Build(t.Context(), inputs([]corev1.EnvVar{value("BIG", strings.Repeat("x", 1<<20))}))
	if err != nil {
		t.Fatal(err)
	}
	args := make([]string, 100_000) // 100 GB
	for i := range args {
		args[i] = "$(BIG)"
	}
	size := 0
	for _, s := range e.Expand(args) {
		size += len(s)
	}
	if size > 2*podspec.MaxExpanded {
		t.Errorf("the arguments have %d bytes", size)
	}
}

func TestSubPath(t *testing.T) {
	e, err := podenv.Build(t.Context(), inputs([]corev1.EnvVar{value("POD", "web"), value("EMPTY", ""), value("UP", ".."), value("ROOT", "/etc")}))
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{
		"$(POD)":           "web",
		"logs/$(POD)/x":    "logs/web/x",
		"$$(POD)":          "$(POD)",
		"`ls`/${POD}/$POD": "`ls`/${POD}/$POD",
		"..web/a..b":       "..web/a..b",
	} {
		if got, err := e.SubPath(expr); err != nil || got != want {
			t.Errorf("SubPath(%s) = %q, %v, want %q", expr, got, err, want)
		}
	}
	for expr, want := range map[string]string{
		"$(A)/$(EMPTY)/$(A)": `missing value for A, EMPTY in subPathExpr "$(A)/$(EMPTY)/$(A)"`,
		"$(ROOT)/passwd":     `subPathExpr "$(ROOT)/passwd" is "/etc/passwd": it must not be an absolute path`,
		"/$(POD)":            `subPathExpr "/$(POD)" is "/web": it must not be an absolute path`,
		"$(UP)/$(POD)":       `subPathExpr "$(UP)/$(POD)" is "../web": it must not contain ".."`,
		"a/..":               `subPathExpr "a/.." is "a/..": it must not contain ".."`,
		".$$(POD)/../x":      `subPathExpr ".$$(POD)/../x" is ".$(POD)/../x": it must not contain ".."`,
	} {
		if got, err := e.SubPath(expr); err == nil || err.Error() != want {
			t.Errorf("SubPath(%s) = %q, %v\nwant the error %s", expr, got, err, want)
		}
	}
}

// TestTheSameInputGivesTheSameOrder: a random order would be another process
// environment at each start.
func TestTheSameInputGivesTheSameOrder(t *testing.T) {
	in := inputs([]corev1.EnvVar{value("Z", "1")}, fromMap("", "one", nil), fromSecret("", "hidden", nil))
	in.Services = func(string) ([]*corev1.Service, error) {
		return []*corev1.Service{service("b", "10.0.0.2", 2), service("a", "10.0.0.1", 1), service("c", "10.0.0.3", 3)}, nil
	}
	first, err := podenv.Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, err := podenv.Build(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.Vars, again.Vars); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	}
}

// chain is a container with n variables that refer to each other, and to their keys.
func chain(n int) podenv.Inputs {
	env := []corev1.EnvVar{value("V0", "start")}
	for i := 1; i < n; i++ {
		env = append(env, value(fmt.Sprintf("V%d", i), fmt.Sprintf("$(V%d)", i-1)))
	}
	return inputs(env)
}

func TestCostGrowsWithTheNumberOfVariablesOnly(t *testing.T) {
	cost := func(n int) float64 {
		in := chain(n)
		return testing.AllocsPerRun(10, func() {
			if _, err := podenv.Build(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		})
	}
	if small, large := cost(100), cost(2000); large > 25*small {
		t.Errorf("100 variables cost %.0f allocations, 2000 cost %.0f: more than in proportion", small, large)
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			in := chain(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := podenv.Build(b.Context(), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

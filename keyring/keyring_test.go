package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/keyring"
)

// vault is secrets by namespace/name.
type vault map[string]*corev1.Secret

func (v vault) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s := v[namespace+"/"+name]; s != nil {
		return s, nil
	}
	return nil, errors.New("not found")
}

func (v vault) put(namespace, name string, auths map[string]string) {
	v.set(namespace, name, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":`+auth(auths)+`}`)
}

func (v vault) set(namespace, name string, of corev1.SecretType, key, data string) {
	v[namespace+"/"+name] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Type:       of, Data: map[string][]byte{key: []byte(data)},
	}
}

// auth writes user:password by registry in docker's words.
func auth(auths map[string]string) string {
	var all []string
	for key, userPassword := range auths {
		all = append(all, fmt.Sprintf("%q:{%q:%q}", key, "auth", b64(userPassword)))
	}
	return "{" + strings.Join(all, ",") + "}"
}

func podWith(secrets ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return pod
}

// logged is a logger and what it was told.
func logged() (*[]string, funcr.Options, func(prefix, args string)) {
	var all []string
	return &all, funcr.Options{Verbosity: 1}, func(_, args string) { all = append(all, args) }
}

func mustNew(t *testing.T, cfg keyring.Config) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// found is the passwords of an answer in order, each with its source.
func found(t *testing.T, k *keyring.Keyring, image string, pod *corev1.Pod) []string {
	t.Helper()
	answer, err := k.Lookup(t.Context(), image, pod)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range answer.Credentials {
		all = append(all, fmt.Sprintf("%s:%s %d %s", c.Auth.Username, c.Auth.Password, c.Source.Kind, c.Source.Name))
	}
	return all
}

func TestSecretsAreTriedMostSpecificFirst(t *testing.T) {
	v := vault{}
	v.put("team", "one", map[string]string{"reg.example:5000/a": "bad:1", "https://other.example": "other:1", "*.example:5000": "glob:1"})
	v.put("team", "two", map[string]string{"https://reg.example:5000/v2/": "good:2", "reg.example:5000/a": "second:2"})
	v.put("other", "three", map[string]string{"reg.example:5000": "foreign:3"})
	k := mustNew(t, keyring.Config{Secrets: v})
	for _, tt := range []struct {
		image string
		want  []string
	}{
		{"reg.example:5000/a/x:1", []string{"bad:1 1 one", "second:2 1 two", "good:2 1 two", "glob:1 1 one"}},
		{"reg.example:5000/b/y:1", []string{"good:2 1 two", "glob:1 1 one"}},
		{"other.example/z", []string{"other:1 1 one"}},
		{"elsewhere.example/z", nil},
	} {
		if diff := cmp.Diff(tt.want, found(t, k, tt.image, podWith("one", "two", "three"))); diff != "" {
			t.Errorf("%s:\n%s", tt.image, diff)
		}
	}
}

func TestAPasswordInAKeyIsNotLogged(t *testing.T) {
	v, file := vault{}, filepath.Join(t.TempDir(), "config.json")
	v.put("team", "one", map[string]string{"https://me:s3cret@reg.example": "u:p"})
	if err := os.WriteFile(file, []byte(`{"auths":`+auth(map[string]string{"me:s3cret@reg.example": "u:p"})+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	said, opts, write := logged()
	k := mustNew(t, keyring.Config{Secrets: v, Files: []string{file}, Log: funcr.New(write, opts)})
	if got := found(t, k, "reg.example/a", podWith("one")); got != nil {
		t.Errorf("found %v", got)
	}
	all := strings.Join(*said, "\n")
	if strings.Count(all, "@reg.example") != 2 || strings.Contains(all, "s3cret") {
		t.Errorf("logged %s", all)
	}
}

func TestTheSourceTellsWhoseACredentialIs(t *testing.T) {
	v := vault{}
	v.put("team", "one", map[string]string{"reg.example": "u:p"})
	v.put("team", "same", map[string]string{"reg.example": "u:p"})
	v.put("team", "other", map[string]string{"reg.example": "u:q"})
	answer, err := mustNew(t, keyring.Config{Secrets: v}).Lookup(t.Context(), "reg.example/a", podWith("one", "same", "other"))
	if err != nil || len(answer.Credentials) != 3 {
		t.Fatalf("Lookup = %v, %v", answer, err)
	}
	first, same, other := answer.Credentials[0].Source, answer.Credentials[1].Source, answer.Credentials[2].Source
	// sha256 of {"username":"u","password":"p"}, as the kubelet records it.
	want := keyring.Source{Kind: keyring.Secret, Namespace: "team", Name: "one", UID: "uid-one",
		Hash: "edbd57ca9372e64eb1c9070ecf3a049ac553596b0529acf034c7a71d4e618e88"}
	if first != want {
		t.Errorf("source = %+v, want %+v", first, want)
	}
	if first.Hash != same.Hash || first.Hash == other.Hash {
		t.Errorf("hashes = %s, %s, %s", first.Hash, same.Hash, other.Hash)
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	v := vault{}
	v.put("team", "good", map[string]string{"reg.example": "u:p"})
	v.set("team", "old", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, auth(map[string]string{"reg.example": "o:p"}))
	v.set("team", "opaque", corev1.SecretTypeOpaque, corev1.DockerConfigJsonKey, `{"auths":`+auth(map[string]string{"reg.example": "x:y"})+`}`)
	v.set("team", "crossed", corev1.SecretTypeDockercfg, corev1.DockerConfigJsonKey, `{}`)
	v.set("team", "badkey", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":`+auth(map[string]string{"reg.example:x": "u:p", "reg.example": "k:p"})+`}`)
	v.set("team", "broken", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{"reg.example":{"auth":"s3cret!"}}}`)
	all, opts, write := logged()
	k := mustNew(t, keyring.Config{Secrets: v, Log: funcr.New(write, opts)})

	answer, err := k.Lookup(t.Context(), "reg.example/a", podWith("gone", "good", "old", "", "opaque", "crossed", "badkey", "lost"))
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, c := range answer.Credentials {
		users = append(users, c.Auth.Username)
	}
	if diff := cmp.Diff([]string{"u", "o", "k"}, users); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"gone", "lost"}, answer.MissingSecrets); diff != "" {
		t.Error(diff)
	}
	_, err = k.Lookup(t.Context(), "reg.example/a", podWith("good", "broken"))
	if err == nil || err.Error() != `read image pull secret team/broken: key .dockerconfigjson: registry "reg.example": field auth: not base64` {
		t.Errorf("a broken secret: %v", err)
	}
	if said := strings.Join(*all, "\n"); !strings.Contains(said, `reg.example:x`) || strings.Contains(said, "s3cret") {
		t.Errorf("log:\n%s", said)
	}
	if answer, err := mustNew(t, keyring.Config{}).Lookup(t.Context(), "a", podWith("x")); err != nil || !slices.Equal(answer.MissingSecrets, []string{"x"}) {
		t.Errorf("without a source of secrets: %v, %v", answer, err)
	}
}

func TestTheDefaultRegistry(t *testing.T) {
	v := vault{}
	v.put("team", "index", map[string]string{"https://index.docker.io/v1/": "index:p"})
	v.put("team", "direct", map[string]string{"docker.io/user": "direct:p", "index.docker.io": "index:p"})
	k := mustNew(t, keyring.Config{Secrets: v})
	for _, tt := range []struct {
		image, secret string
		want          []string
	}{
		{"busybox", "index", []string{"index:p 1 index"}},
		{"docker.io/user/app:1", "index", []string{"index:p 1 index"}},
		{"index.docker.io/user/app", "index", []string{"index:p 1 index"}},
		{"reg.example/busybox", "index", nil},
		{"user/app", "direct", []string{"direct:p 1 direct"}},
		{"busybox", "direct", []string{"index:p 1 direct"}},
	} {
		if diff := cmp.Diff(tt.want, found(t, k, tt.image, podWith(tt.secret))); diff != "" {
			t.Errorf("%s with %s:\n%s", tt.image, tt.secret, diff)
		}
	}
}

func TestNodeFilesInTheirOrder(t *testing.T) {
	got := keyring.NodeFiles("/var/lib/kubelet", "/work", "/root")
	want := []string{
		"/var/lib/kubelet/config.json", "/work/config.json", "/root/.docker/config.json", "/.docker/config.json",
		"/var/lib/kubelet/.dockercfg", "/work/.dockercfg", "/root/.dockercfg", "/.dockercfg",
	}
	for i := range got {
		got[i] = filepath.ToSlash(got[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := keyring.NodeFiles("", "", ""); len(got) != 2 {
		t.Errorf("without directories: %q", got)
	}
}

func TestTheFirstReadableFileCountsAndIsReadAgainWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a", "config.json"), filepath.Join(dir, ".dockercfg")
	if err := os.Mkdir(filepath.Dir(first), 0o755); err != nil {
		t.Fatal(err)
	}
	var age time.Duration
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		// File systems may keep times by the tick: make each version's its own.
		age += time.Second
		if err := os.Chtimes(name, time.Time{}, time.Unix(0, 0).Add(age)); err != nil {
			t.Fatal(err)
		}
	}
	all, opts, to := logged()
	v := vault{}
	v.put("team", "own", map[string]string{"reg.example": "pod:1"})
	k := mustNew(t, keyring.Config{Secrets: v, Files: []string{first, second}, Log: funcr.New(to, opts)})
	want := func(when string, users ...string) {
		t.Helper()
		if diff := cmp.Diff(users, found(t, k, "reg.example/a", podWith("own"))); diff != "" {
			t.Errorf("%s:\n%s", when, diff)
		}
	}
	want("no file", "pod:1 1 own")
	write(second, auth(map[string]string{"reg.example": "second:1"}))
	want("the second", "pod:1 1 own", "second:1 0 ")
	write(first, `{"auths":`+auth(map[string]string{"reg.example": "first:1"})+`}`)
	want("the first", "pod:1 1 own", "first:1 0 ")
	write(first, `{"auths":`+auth(map[string]string{"reg.example": "first:2"})+`}`)
	want("the first has changed", "pod:1 1 own", "first:2 0 ")
	write(first, `{"auths":`)
	want("the first is broken", "pod:1 1 own", "second:1 0 ")
	want("and looked at twice", "pod:1 1 own", "second:1 0 ")
	if n := strings.Count(strings.Join(*all, "\n"), "passed over"); n != 1 {
		t.Errorf("a broken file was logged %d times: %q", n, *all)
	}
	write(first, `{}`)
	want("the first has nothing, and counts", "pod:1 1 own")
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(first, 0o755); err != nil {
		t.Fatal(err)
	}
	want("the first is a directory", "pod:1 1 own", "second:1 0 ")
}

func BenchmarkLookup(b *testing.B) {
	v := vault{}
	var names []string
	for i := range 10 {
		keys := map[string]string{}
		for j := range 10 {
			keys[fmt.Sprintf("r%d.reg%d.example", j, i)] = "u:p"
		}
		names = append(names, fmt.Sprint("s", i))
		v.put("team", names[i], keys)
	}
	k, err := keyring.New(keyring.Config{Secrets: v})
	if err != nil {
		b.Fatal(err)
	}
	pod := podWith(names...)
	for b.Loop() {
		if a, err := k.Lookup(b.Context(), "r5.reg5.example/app:1", pod); err != nil || len(a.Credentials) != 1 {
			b.Fatal(a, err)
		}
	}
}

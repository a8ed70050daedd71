package keyring_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/kubeletkit/kubeletkit/keyring"
)

// beAPlugin answers as KEYRING_TEST_PLUGIN has it, and notes what it was asked.
func beAPlugin(mode string) int {
	question, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 3
	}
	note, err := os.OpenFile(os.Getenv("KEYRING_TEST_NOTES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 3
	}
	fmt.Fprintf(note, "%s %s\n", strings.Join(os.Args[1:], " "), question)
	if err := note.Close(); err != nil {
		return 3
	}
	switch mode {
	case "answer":
		fmt.Print(os.Getenv("KEYRING_TEST_ANSWER"))
	case "wait":
		// Until the test lets go of the other end.
		gate, err := os.Open(os.Getenv("KEYRING_TEST_GATE"))
		if err == nil {
			_, _ = io.ReadAll(gate)
		}
		fmt.Print(os.Getenv("KEYRING_TEST_ANSWER"))
	case "fail":
		fmt.Fprintln(os.Stderr, "no network")
		return 1
	case "flood":
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
				return 1
			}
		}
	}
	return 0
}

// answerOf is a plug-in's answer in the API's own types.
func answerOf(per credentialv1.PluginCacheKeyType, keep *time.Duration, auths map[string]string) string {
	r := credentialv1.CredentialProviderResponse{
		TypeMeta:     metav1.TypeMeta{APIVersion: "credentialprovider.kubelet.k8s.io/v1", Kind: "CredentialProviderResponse"},
		CacheKeyType: per, Auth: map[string]credentialv1.AuthConfig{},
	}
	if keep != nil {
		r.CacheDuration = &metav1.Duration{Duration: *keep}
	}
	for key, userPassword := range auths {
		user, password, _ := strings.Cut(userPassword, ":")
		r.Auth[key] = credentialv1.AuthConfig{Username: user, Password: password}
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// desk is a directory with plug-ins, all of them this binary.
type desk struct {
	t     *testing.T
	dir   string
	notes string
	cfg   keyring.Config
	log   *[]string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir()}
	d.notes = filepath.Join(d.dir, "notes")
	all, opts, write := logged()
	d.log, d.cfg.Log, d.cfg.BinDir = all, funcr.New(write, opts), d.dir
	return d
}

func (d *desk) plugin(name, mode, answer string, change func(*configv1.CredentialProvider)) {
	d.t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(d.dir, name))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	p := configv1.CredentialProvider{
		Name: name, MatchImages: []string{"*.example"}, DefaultCacheDuration: &metav1.Duration{Duration: time.Hour},
		APIVersion: "credentialprovider.kubelet.k8s.io/v1", Args: []string{"get", name},
		Env: []configv1.ExecEnvVar{
			{Name: "KEYRING_TEST_PLUGIN", Value: mode}, {Name: "KEYRING_TEST_NOTES", Value: d.notes}, {Name: "KEYRING_TEST_ANSWER", Value: answer},
			{Name: "KEYRING_TEST_GATE", Value: filepath.Join(d.dir, "gate")},
		},
	}
	if change != nil {
		change(&p)
	}
	d.cfg.Providers = append(d.cfg.Providers, p)
}

// asked returns what the plug-ins were asked since the last call.
func (d *desk) asked() []string {
	d.t.Helper()
	data, err := os.ReadFile(d.notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	_ = os.Remove(d.notes)
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

func TestAPluginIsAskedOnStdinAndHeardOnStdout(t *testing.T) {
	d := newDesk(t)
	d.plugin("first", "answer", answerOf("Image", nil, map[string]string{"reg.example": "short:1", "reg.example/team": "long:2", "other.example": "no:3", "reg.example:x": "no:4"}), nil)
	d.plugin("second", "answer", answerOf("Image", nil, map[string]string{"*.example": "glob:5"}), func(p *configv1.CredentialProvider) {
		p.MatchImages = []string{"nothing", "reg.example/team"}
	})
	d.cfg.Files = []string{filepath.Join(d.dir, "config.json")}
	if err := os.WriteFile(d.cfg.Files[0], []byte(`{"auths":`+auth(map[string]string{"reg.example": "node:0"})+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k := mustNew(t, d.cfg)
	if diff := cmp.Diff([]string{"node:0 0 ", "long:2 0 ", "short:1 0 ", "glob:5 0 "}, found(t, k, "reg.example/team/app:1", podWith())); diff != "" {
		t.Error(diff)
	}
	asked := d.asked()
	if len(asked) != 2 || !strings.Contains(strings.Join(asked, "\n"),
		`get first {"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"reg.example/team/app"}`) {
		t.Errorf("asked: %q", asked)
	}
	if said := strings.Join(*d.log, "\n"); !strings.Contains(said, "reg.example:x") || strings.Contains(said, "no:4") {
		t.Errorf("log: %s", said)
	}
	if got := found(t, k, "elsewhere/app", podWith()); got != nil || d.asked() != nil {
		t.Errorf("a plug-in was asked for what it does not match: %q", got)
	}
	var ran []string
	d.cfg.Hooks.Ran = func(plugin string, took time.Duration, err error) {
		ran = append(ran, fmt.Sprint(plugin, " ", took > 0, " ", err))
	}
	found(t, mustNew(t, d.cfg), "reg.example/app", podWith())
	if diff := cmp.Diff([]string{"first true <nil>"}, ran); diff != "" {
		t.Error(diff)
	}
}

func TestPluginsThatFailGiveNothingAndAreLogged(t *testing.T) {
	good := answerOf("Image", nil, map[string]string{"*.example": "u:s3cret"})
	for _, tt := range []struct{ name, mode, answer, log string }{
		{"it exits with an error", "fail", "", "exit status 1: no network"},
		{"it says nothing", "answer", "", "unexpected end of JSON input"},
		{"it says too much", "flood", "", "more than 1048576 bytes"},
		{"it speaks another version", "answer", strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1), `of \"credentialprovider.kubelet.k8s.io/v1beta1\"`},
		{"it is another kind", "answer", strings.Replace(good, "ProviderResponse", "ProviderRequest", 1), `a \"CredentialProviderRequest\"`},
		{"its answer is good for nothing", "answer", strings.Replace(good, `"Image"`, `"Pod"`, 1), `cacheKeyType \"Pod\"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t)
			d.plugin("broken", tt.mode, tt.answer, nil)
			d.plugin("works", "answer", good, nil)
			var failed []string
			var mu sync.Mutex
			d.cfg.Hooks.Ran = func(plugin string, _ time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, plugin)
				}
			}
			k := mustNew(t, d.cfg)
			for range 2 { // a failure is not kept
				if diff := cmp.Diff([]string{"u:s3cret 0 "}, found(t, k, "reg.example/a", podWith())); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff([]string{"broken", "broken"}, failed); diff != "" {
				t.Error(diff)
			}
			if said := strings.Join(*d.log, "\n"); !strings.Contains(said, tt.log) || strings.Contains(said, "s3cret") {
				t.Errorf("log: %s\nwant %s in it", said, tt.log)
			}
		})
	}
}

// A process is no part of a bubble, and time stands still while one runs.
func TestAnswersAreKeptForAsLongAsThePluginSays(t *testing.T) {
	minute, zero := time.Minute, time.Duration(0)
	for _, tt := range []struct {
		name string
		per  credentialv1.PluginCacheKeyType
		keep *time.Duration
		want string // runs for: a:1, a:2, b on the same host, c elsewhere; then a after 59 s, and after 61 s
	}{
		{"an image's answer is that of all its tags", "Image", &minute, "1 0 1 1 0 1"},
		{"a registry's answer is that of its images", "Registry", &minute, "1 0 0 1 0 1"},
		{"an answer for all is everybody's", "Global", &minute, "1 0 0 0 0 1"},
		{"0 is not kept", "Global", &zero, "1 1 1 1 1 1"},
		{"without a word it is the configuration's hour", "Global", nil, "1 0 0 0 0 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				d.plugin("p", "answer", answerOf(tt.per, tt.keep, map[string]string{"*.example": "u:p"}), nil)
				k := mustNew(t, d.cfg)
				runs := func(image string) string {
					if diff := cmp.Diff([]string{"u:p 0 "}, found(t, k, image, podWith())); diff != "" {
						t.Error(diff)
					}
					return fmt.Sprint(len(d.asked()))
				}
				got := []string{runs("reg.example/a:1"), runs("reg.example/a:2"), runs("reg.example/b"), runs("other.example/c")}
				time.Sleep(59 * time.Second)
				got = append(got, runs("reg.example/a:1"))
				time.Sleep(2 * time.Second)
				got = append(got, runs("reg.example/a:1"))
				if strings.Join(got, " ") != tt.want {
					t.Errorf("runs = %v, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestWhatIsNoLongerGoodIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.plugin("p", "answer", answerOf("Image", nil, map[string]string{"*.example": "u:p"}), nil)
		k := mustNew(t, d.cfg)
		for i := range 3 {
			found(t, k, fmt.Sprint("reg.example/a", i), podWith())
		}
		if n := keyring.Remembered(k); n != 3 {
			t.Fatalf("%d answers are remembered, want 3", n)
		}
		time.Sleep(2 * time.Hour)
		found(t, k, "reg.example/b", podWith())
		if n := keyring.Remembered(k); n != 1 {
			t.Errorf("%d answers are remembered, want the new one", n)
		}
	})
}

func TestServiceAccounts(t *testing.T) {
	yes, no := true, false
	account := keyring.Account{UID: "uid-1", Token: "tok-1", Annotations: map[string]string{"need": "n", "may": "m", "other": "o"}}
	attributes := func(required *bool, need ...string) *configv1.ServiceAccountTokenAttributes {
		return &configv1.ServiceAccountTokenAttributes{
			ServiceAccountTokenAudience: "reg", CacheType: configv1.ServiceAccountServiceAccountTokenCacheType, RequireServiceAccount: required,
			RequiredServiceAccountAnnotationKeys: need, OptionalServiceAccountAnnotationKeys: []string{"may", "absent"},
		}
	}
	const bare = `"image":"reg.example/a"}`
	for _, tt := range []struct {
		name       string
		attributes *configv1.ServiceAccountTokenAttributes
		pod        string // its service account
		account    keyring.Account
		err        error
		none       bool // no source of tokens
		asked      string
		source     string
		log        string
	}{
		{name: "a token and the chosen annotations", attributes: attributes(&yes, "need"), pod: "sa", account: account,
			asked: `"serviceAccountToken":"tok-1","serviceAccountAnnotations":{"may":"m","need":"n"}}`, source: "u:p 2 sa"},
		{name: "a pod without one is not for a plug-in that requires it", attributes: attributes(&yes), log: "the pod has none"},
		{name: "else it is asked as the node", attributes: attributes(&no), asked: bare, source: "u:p 0 "},
		{name: "a missing annotation", attributes: attributes(&yes, "gone"), pod: "sa", account: account, log: "no annotation gone"},
		{name: "no token", attributes: attributes(&no), pod: "sa", err: errors.New("forbidden"), log: "forbidden"},
		{name: "an empty token", attributes: attributes(&no), pod: "sa", log: "it is empty"},
		{name: "no source of tokens", attributes: attributes(&no), pod: "sa", none: true, log: "no source of them"},
		{name: "no source is needed without a service account", attributes: attributes(&no), none: true, asked: bare, source: "u:p 0 "},
		{name: "a plug-in that wants none gets none", pod: "sa", account: account, asked: bare, source: "u:p 0 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t)
			d.plugin("p", "answer", answerOf("Image", nil, map[string]string{"reg.example": "u:p"}), func(p *configv1.CredentialProvider) { p.TokenAttributes = tt.attributes })
			d.cfg.Account = func(_ context.Context, pod *corev1.Pod, audience string) (keyring.Account, error) {
				if audience != "reg" {
					t.Errorf("audience = %s", audience)
				}
				return tt.account, tt.err
			}
			if tt.none {
				d.cfg.Account = nil
			}
			pod := podWith()
			pod.Spec.ServiceAccountName = tt.pod
			got := strings.Join(found(t, mustNew(t, d.cfg), "reg.example/a", pod), ",")
			if asked := strings.Join(d.asked(), ""); got != tt.source || !strings.HasSuffix(asked, tt.asked) || (asked == "") != (tt.asked == "") {
				t.Errorf("found %q, asked %q; want %q, %q", got, asked, tt.source, tt.asked)
			}
			if said := strings.Join(*d.log, "\n"); !strings.Contains(said, tt.log) || strings.Contains(said, "tok-1") {
				t.Errorf("log: %s", said)
			}
		})
	}
}

func TestTheCacheKeepsServiceAccountsApart(t *testing.T) {
	yes := true
	for _, tt := range []struct {
		cache configv1.ServiceAccountTokenCacheType
		want  string // runs for: a, a with another token, a with another UID, b, a with another annotation
	}{
		{configv1.ServiceAccountServiceAccountTokenCacheType, "1 0 1 1 1"},
		{configv1.TokenServiceAccountTokenCacheType, "1 1 1 1 1"},
	} {
		d := newDesk(t)
		d.plugin("p", "answer", answerOf("Global", nil, map[string]string{"reg.example": "u:p"}), func(p *configv1.CredentialProvider) {
			p.TokenAttributes = &configv1.ServiceAccountTokenAttributes{
				ServiceAccountTokenAudience: "reg", CacheType: tt.cache, RequireServiceAccount: &yes, OptionalServiceAccountAnnotationKeys: []string{"x"},
			}
		})
		var account keyring.Account
		d.cfg.Account = func(context.Context, *corev1.Pod, string) (keyring.Account, error) { return account, nil }
		k := mustNew(t, d.cfg)
		var got []string
		for _, c := range []struct{ name, uid, token, x string }{
			{"a", "1", "t", "v"}, {"a", "1", "t2", "v"}, {"a", "2", "t", "v"}, {"b", "1", "t", "v"}, {"a", "1", "t", "w"},
		} {
			account = keyring.Account{UID: c.uid, Token: c.token, Annotations: map[string]string{"x": c.x}}
			pod := podWith()
			pod.Spec.ServiceAccountName = c.name
			found(t, k, "reg.example/a", pod)
			got = append(got, fmt.Sprint(len(d.asked())))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: runs = %v, want %s", tt.cache, got, tt.want)
		}
	}
}

func TestNewWantsThePrograms(t *testing.T) {
	d := newDesk(t)
	d.plugin("p", "answer", "", nil)
	for name, tt := range map[string]struct {
		change func(*keyring.Config)
		want   string
	}{
		"no directory": {func(c *keyring.Config) { c.BinDir = "" }, "find credential provider p: Config.BinDir is required"},
		"no program":   {func(c *keyring.Config) { c.BinDir = filepath.Join(d.dir, "empty") }, "no such file or directory"},
		"no patterns":  {func(c *keyring.Config) { c.Providers[0].MatchImages = nil }, "providers[0].matchImages: Required"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := d.cfg
			cfg.Providers = []configv1.CredentialProvider{*d.cfg.Providers[0].DeepCopy()}
			tt.change(&cfg)
			if _, err := keyring.New(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New = %v, want %q", err, tt.want)
			}
		})
	}
}

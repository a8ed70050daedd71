package imagepull_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	configv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/keyring"
)

// wallet is the credentials of pods by their UID.
type wallet map[string][]keyring.Credential

func (w wallet) Lookup(_ context.Context, _ string, pod *corev1.Pod) (keyring.Answer, error) {
	all := w[string(pod.UID)]
	if len(all) > 0 && all[0].Auth == nil {
		return keyring.Answer{}, errors.New(all[0].Source.Name)
	}
	return keyring.Answer{Credentials: all}, nil
}

// secretOf is a credential for user "u" from a secret with a UID of its own.
func secretOf(name, password string) keyring.Credential {
	return keyring.Credential{
		Auth:   &runtimeapi.AuthConfig{Username: "u", Password: password},
		Source: keyring.Source{Kind: keyring.Secret, Namespace: "default", Name: name, UID: "uid-" + name, Hash: "hash-of-" + password},
	}
}

func from(kind keyring.SourceKind, name, password string) keyring.Credential {
	c := secretOf(name, password)
	c.Source.Kind, c.Source.Hash = kind, ""
	if kind == keyring.Node {
		c.Source = keyring.Source{}
	}
	return c
}

const private = "registry.example/team/app:1"

// recorded is a bench that keeps records in dir, with a private image to pull.
func recorded(t *testing.T, dir string, w wallet, change func(*imagepull.Config)) *bench {
	t.Helper()
	b := newBench(t, func(cfg *imagepull.Config) {
		cfg.RecordsDir, cfg.Credentials, cfg.QPS = dir, w, -1
		if change != nil {
			change(cfg)
		}
	})
	b.rt.Publish(critest.Image{Ref: private, Username: "u", Password: "right"})
	return b
}

// restarted is the same runtime with a new process.
func (b *bench) restarted(t *testing.T, dir string, w wallet) *bench {
	t.Helper()
	next := newBench(t, func(cfg *imagepull.Config) {
		cfg.Images, cfg.RecordsDir, cfg.Credentials, cfg.QPS = b.rt, dir, w, -1
	})
	next.rt = b.rt
	return next
}

func (b *bench) want(t *testing.T, when, uid string, policy corev1.PullPolicy, reason string, pulls int) {
	t.Helper()
	before := b.pulls()
	_, err := b.ensure(t.Context(), uid, private, policy)
	got := ""
	if err != nil {
		got = reasonOf(t, err)
	}
	if got != reason || b.pulls()-before != pulls {
		t.Errorf("%s: reason %q (%v) after %d pulls, want %q after %d", when, got, err, b.pulls()-before, reason, pulls)
	}
}

// files returns what is in a directory of the records, by image or ref.
func files[T any](t *testing.T, dir string) []T {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []T
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var one T
		if err := json.Unmarshal(data, &one); err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		all = append(all, one)
	}
	return all
}

func TestAPrivateImageIsNotForPodsWithoutItsCredentials(t *testing.T) {
	dir := t.TempDir()
	w := wallet{
		"a":      {secretOf("a", "right")},
		"copy":   {secretOf("copy", "right")},  // another secret, the same content
		"turned": {secretOf("a", "rotated")},   // the secret that pulled, with new content
		"wrong":  {secretOf("wrong", "wrong")}, // a secret that never pulled
		"broken": {{Source: keyring.Source{Name: "secret is broken"}}},
		"b":      nil,
	}
	b := recorded(t, dir, w, nil)
	b.want(t, "the first pod pulls", "a", corev1.PullIfNotPresent, "", 1)
	for _, when := range []string{"before a restart", "after it"} {
		b.want(t, when+", a pod with nothing", "b", corev1.PullIfNotPresent, "ErrImagePull", 1)
		b.want(t, when+", and again", "b", corev1.PullIfNotPresent, "ImagePullBackOff", 0)
		b.want(t, when+", with Never", "b", corev1.PullNever, "ErrImageNeverPull", 0)
		b.want(t, when+", a pod with the wrong secret", "wrong", corev1.PullIfNotPresent, "ErrImagePull", 1)
		b.want(t, when+", a pod whose secret is broken", "broken", corev1.PullIfNotPresent, "ErrImagePull", 0)
		b.want(t, when+", the pod itself", "a", corev1.PullIfNotPresent, "", 0)
		b.want(t, when+", with Never", "a", corev1.PullNever, "", 0)
		b.want(t, when+", a pod with the same content", "copy", corev1.PullIfNotPresent, "", 0)
		b.want(t, when+", a pod with the same object", "turned", corev1.PullIfNotPresent, "", 0)
		b = b.restarted(t, dir, w)
	}
	if all := files[configv1beta1.ImagePullIntent](t, filepath.Join(dir, "pulling")); len(all) != 0 {
		t.Errorf("intents are left: %v", all)
	}
}

func TestNeverTellsNothingAboutWhatIsThere(t *testing.T) {
	b := recorded(t, t.TempDir(), wallet{"a": {secretOf("a", "right")}}, nil)
	b.want(t, "the first pod pulls", "a", corev1.PullIfNotPresent, "", 1)
	b.take()
	_, there := b.ensure(t.Context(), "b", private, corev1.PullNever)
	_, not := b.ensure(t.Context(), "b", "registry.example/team/not:1", corev1.PullNever)
	for _, err := range []error{there, not} {
		if reasonOf(t, err) != "ErrImageNeverPull" {
			t.Errorf("error = %v", err)
		}
	}
	same(t, b.take(),
		`pod-b/app Warning ErrImageNeverPull: Container image "registry.example/team/app:1" is not present with pull policy of Never`,
		`pod-b/app Warning ErrImageNeverPull: Container image "registry.example/team/not:1" is not present with pull policy of Never`)
}

func TestWhoPulledAnImageMakesItTheirs(t *testing.T) {
	public := "registry.example/public:1"
	w := wallet{
		"secret": {secretOf("s", "right")}, "node": {from(keyring.Node, "", "right")},
		"account": {from(keyring.ServiceAccount, "sa", "right")}, "account2": {from(keyring.ServiceAccount, "sa", "changed")},
		"namesake": {{Auth: &runtimeapi.AuthConfig{Username: "u", Password: "x"}, Source: keyring.Source{Kind: keyring.Secret, Namespace: "default", Name: "sa", UID: "uid-sa"}}},
	}
	for _, tt := range []struct {
		name, first, image string
		allowed, refused   []string
	}{
		{"what nobody has to pay for is everybody's", "none", public, []string{"other", "secret", "account"}, nil},
		{"the node's credentials are every pod's", "node", private, []string{"other", "secret"}, nil},
		{"a service account's are those of its pods", "account", private, []string{"account", "account2"}, []string{"other", "namesake"}},
		{"a secret's are those who have it", "secret", private, []string{"secret"}, []string{"other", "account2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := recorded(t, t.TempDir(), w, nil)
			b.rt.Publish(critest.Image{Ref: public})
			if _, err := b.ensure(t.Context(), tt.first, tt.image, corev1.PullIfNotPresent); err != nil {
				t.Fatal(err)
			}
			for _, pod := range tt.allowed {
				if _, err := b.ensure(t.Context(), pod, tt.image, corev1.PullNever); err != nil {
					t.Errorf("%s may not use it: %v", pod, err)
				}
			}
			for _, pod := range tt.refused {
				if _, err := b.ensure(t.Context(), pod, tt.image, corev1.PullNever); err == nil {
					t.Errorf("%s may use it", pod)
				}
			}
		})
	}
}

func TestPoliciesOfProof(t *testing.T) {
	const image = "registry.example/team/app"
	for _, tt := range []struct {
		policy    imagepull.VerifyPolicy
		image     string
		allowlist []string
		preloaded bool // must prove, for an image without a record
		recorded  bool // for one with a record
	}{
		{imagepull.NeverVerify, image, nil, false, false},
		{imagepull.NeverVerifyPreloaded, image, nil, false, true},
		{imagepull.AlwaysVerify, image, []string{image}, true, true},
		{imagepull.NeverVerifyAllowlisted, image, nil, true, true},
		{imagepull.NeverVerifyAllowlisted, image + ":1", []string{image}, false, false},
		{imagepull.NeverVerifyAllowlisted, image + "@sha256:00", []string{image}, false, false},
		{imagepull.NeverVerifyAllowlisted, image, []string{"registry.example/team/*"}, false, false},
		{imagepull.NeverVerifyAllowlisted, image, []string{"registry.example/*"}, false, false},
		{imagepull.NeverVerifyAllowlisted, image, []string{"registry.example/te/*"}, true, true},
		{imagepull.NeverVerifyAllowlisted, image, []string{"registry.example/team"}, true, true},
		{imagepull.NeverVerifyAllowlisted, image, []string{"registry.example/team/app/*"}, true, true},
		{imagepull.NeverVerifyAllowlisted, "registry.example.evil/a", []string{"registry.example/*"}, true, true},
		{imagepull.NeverVerifyAllowlisted, "busybox:1", []string{"busybox"}, false, false},
		{imagepull.NeverVerifyAllowlisted, "busybox:1", []string{"docker.io/library/*"}, false, false},
		{imagepull.NeverVerifyAllowlisted, "user/app", []string{"docker.io/*"}, false, false},
		{imagepull.NeverVerifyAllowlisted, "user/app", []string{"user/*"}, false, false},
	} {
		for recorded, want := range map[bool]bool{false: tt.preloaded, true: tt.recorded} {
			if got := tt.policy.MustProve(tt.image, recorded, tt.allowlist); got != want {
				t.Errorf("%s: MustProve(%s, %v, %v) = %v, want %v", tt.policy, tt.image, recorded, tt.allowlist, got, want)
			}
		}
	}
	rt := critest.New(critest.Config{})
	for name, cfg := range map[string]imagepull.Config{
		"a policy without records":      {Verify: imagepull.AlwaysVerify},
		"a policy that is none":         {Verify: "Sometimes", RecordsDir: t.TempDir()},
		"an allowlist with a tag":       {RecordsDir: t.TempDir(), Allowlist: []string{"a:1"}},
		"an allowlist with a wildcard":  {RecordsDir: t.TempDir(), Allowlist: []string{"a/*/b"}},
		"records where none can be":     {RecordsDir: "/dev/null/records"},
		"an allowlist of a wildcard":    {RecordsDir: t.TempDir(), Allowlist: []string{"*"}},
		"an allowlist with empty names": {RecordsDir: t.TempDir(), Allowlist: []string{""}},
	} {
		cfg.Images = rt
		if _, err := imagepull.New(cfg); err == nil {
			t.Errorf("New accepted %s", name)
		}
	}
}

func TestPreloadedImages(t *testing.T) {
	const preloaded = "registry.example/preloaded:1"
	for policy, reason := range map[imagepull.VerifyPolicy]string{
		"": "", imagepull.NeverVerifyPreloaded: "", imagepull.NeverVerify: "", imagepull.AlwaysVerify: "ErrImageNeverPull", imagepull.NeverVerifyAllowlisted: "ErrImageNeverPull",
	} {
		b := recorded(t, t.TempDir(), nil, func(cfg *imagepull.Config) { cfg.Verify = policy })
		b.rt.AddImage(preloaded, critest.Behavior{})
		_, err := b.ensure(t.Context(), "u1", preloaded, corev1.PullNever)
		if got := ""; err != nil {
			if got = reasonOf(t, err); got != reason {
				t.Errorf("%s: %s, want %q", policy, got, reason)
			}
		} else if reason != "" {
			t.Errorf("%s: allowed, want %s", policy, reason)
		} else {
			same(t, b.take(), `pod-u1/app Normal Pulled: Container image "`+preloaded+`" already present on machine and can be accessed by the pod`)
		}
	}
}

func TestRecordsAreTheKubelets(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("old", "wrong"), secretOf("a", "right")}, "c": {secretOf("c", "right")}}, nil)
	var during []configv1beta1.ImagePullIntent
	b.rt.Inject(critest.Fault{Method: "PullImage", Match: func(critest.Call) bool {
		during = files[configv1beta1.ImagePullIntent](t, filepath.Join(dir, "pulling"))
		return false
	}})
	id, err := b.ensure(t.Context(), "a", private, corev1.PullIfNotPresent)
	if err != nil {
		t.Fatal(err)
	}
	if len(during) != 1 || during[0].Image != private || during[0].Kind != "ImagePullIntent" || during[0].APIVersion != "kubelet.config.k8s.io/v1beta1" {
		t.Errorf("during the pull: %+v", during)
	}
	b.want(t, "a second secret", "c", corev1.PullIfNotPresent, "", 0)
	sum := sha256.Sum256([]byte(id))
	path := filepath.Join(dir, "pulled", "sha256-"+hex.EncodeToString(sum[:]))
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the record: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v, %v", info, err)
	}
	got := files[configv1beta1.ImagePulledRecord](t, filepath.Dir(path))[0]
	if time.Since(got.LastUpdatedTime.Time) > time.Minute {
		t.Errorf("updated at %v", got.LastUpdatedTime)
	}
	got.LastUpdatedTime.Reset()
	want := configv1beta1.ImagePulledRecord{ImageRef: id, CredentialMapping: map[string]configv1beta1.ImagePullCredentials{
		"registry.example/team/app": {KubernetesSecrets: []configv1beta1.ImagePullSecret{
			{UID: "uid-a", Namespace: "default", Name: "a", CredentialHash: "hash-of-right"},
			{UID: "uid-c", Namespace: "default", Name: "c", CredentialHash: "hash-of-right"},
		}},
	}}
	want.APIVersion, want.Kind = "kubelet.config.k8s.io/v1beta1", "ImagePulledRecord"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRecordsOfTheKubeletAreRead(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	b.rt.Load(critest.Image{Ref: private})
	id := b.status(t, private)
	rec := configv1beta1.ImagePulledRecord{ImageRef: id, CredentialMapping: map[string]configv1beta1.ImagePullCredentials{
		"registry.example/team/app": {KubernetesSecrets: []configv1beta1.ImagePullSecret{{UID: "x", CredentialHash: "hash-of-right"}}},
	}}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		rec.APIVersion, rec.Kind = "kubelet.config.k8s.io/"+version, "ImagePulledRecord"
		data, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		putRecord(t, dir, id, string(data))
		b.want(t, version, "a", corev1.PullNever, "", 0)
		b.want(t, version, "b", corev1.PullNever, "ErrImageNeverPull", 0)
	}
}

func (b *bench) status(t *testing.T, image string) string {
	t.Helper()
	resp, err := b.rt.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: image}, false)
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetImage().GetId()
}

func putRecord(t *testing.T, dir, id, text string) {
	t.Helper()
	sum := sha256.Sum256([]byte(id))
	if err := os.WriteFile(filepath.Join(dir, "pulled", "sha256-"+hex.EncodeToString(sum[:])), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A record that can't be read says that there was one.
func TestARecordThatCannotBeReadForcesAPull(t *testing.T) {
	for name, text := range map[string]string{
		"half a file": `{"kind":"ImagePulledRecord","apiVer`, "nothing": "", "another kind": `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1"}`,
		"another image's": `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"other","credentialMapping":{"registry.example/team/app":{"nodePodsAccessible":true}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
			b.rt.Load(critest.Image{Ref: private, Username: "u", Password: "right"})
			putRecord(t, dir, b.status(t, private), text)
			b.want(t, "a pod without credentials", "b", corev1.PullIfNotPresent, "ErrImagePull", 1)
			b.want(t, "a pod with them", "a", corev1.PullIfNotPresent, "", 1)
			b.want(t, "whose pull wrote it anew", "a", corev1.PullIfNotPresent, "", 0)
		})
	}
}

func TestAnotherNameNeedsItsOwnProof(t *testing.T) {
	const other = "mirror.example/app:1"
	b := recorded(t, t.TempDir(), wallet{"a": {secretOf("a", "right")}}, nil)
	b.rt.Publish(critest.Image{Ref: private, ID: "sha256:" + strings.Repeat("1", 64), Username: "u", Password: "right"})
	b.rt.Publish(critest.Image{Ref: other, ID: "sha256:" + strings.Repeat("1", 64), Username: "u", Password: "other"})
	b.want(t, "the first name", "a", corev1.PullIfNotPresent, "", 1)
	b.rt.Load(critest.Image{Ref: other, ID: "sha256:" + strings.Repeat("1", 64), Username: "u", Password: "other"})
	if _, err := b.ensure(t.Context(), "a", other, corev1.PullIfNotPresent); err == nil || reasonOf(t, err) != "ErrImagePull" {
		t.Errorf("credentials for one registry open another's image: %v", err)
	}
	if _, err := b.ensure(t.Context(), "a", "registry.example/team/app:2", corev1.PullNever); err == nil {
		t.Error("a tag that is not there was found")
	}
}

func TestAnInterruptedPullIsSettledAtTheNextStart(t *testing.T) {
	for _, tt := range []struct {
		name    string
		arrived bool
		broken  bool // the runtime does not tell, at first
		reason  string
		pulls   int
	}{
		{"the image came: it is nobody's yet", true, false, "ErrImagePull", 1},
		{"the image did not come", false, false, "ErrImagePull", 1},
		{"nobody can tell: then not yet", true, true, "ImageInspectError", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "pulling"), 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{
				"sha256-1":     `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"` + private + `"}`,
				"sha256-2":     `{"kind":"ImagePullIn`,
				"sha256-3":     `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"NOT A NAME"}`,
				"sha256-4.tmp": `{`,
			} {
				if name == "sha256-1" {
					sum := sha256.Sum256([]byte(private))
					name = "sha256-" + hex.EncodeToString(sum[:])
				}
				if err := os.WriteFile(filepath.Join(dir, "pulling", name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
			b.rt.AddImage("registry.example/preloaded:1", critest.Behavior{})
			if tt.arrived {
				b.rt.Load(critest.Image{Ref: private, Username: "u", Password: "right"})
			}
			if tt.broken {
				b.rt.FailNext("ImageStatus", errors.New("not now"))
			}
			b.want(t, "a pod without credentials", "b", corev1.PullIfNotPresent, tt.reason, tt.pulls)
			b.want(t, "a pod with them", "a", corev1.PullIfNotPresent, "", 1)
			if _, err := b.ensure(t.Context(), "b", "registry.example/preloaded:1", corev1.PullNever); err != nil {
				t.Errorf("a preloaded image: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(dir, "pulling", "*")); err != nil || len(left) != 2 {
				t.Errorf("intents left: %q, want those that can't be read", left)
			}
		})
	}
}

// One image that the runtime can't tell about does not stop the others, but an
// image without a record could be it.
func TestWhileAnInterruptedPullIsNotSettledNothingPassesForPreloaded(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	b.rt.AddImage("registry.example/preloaded:1", critest.Behavior{})
	b.want(t, "the pod's own image", "a", corev1.PullIfNotPresent, "", 1)
	intent := `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"registry.example/stuck:1"}`
	if err := os.WriteFile(filepath.Join(dir, "pulling", "sha256-1"), []byte(intent), 0o600); err != nil {
		t.Fatal(err)
	}
	b = b.restarted(t, dir, wallet{"a": {secretOf("a", "right")}})
	b.rt.FailNext("ImageStatus", errors.New("not now"))
	b.want(t, "an image with a record", "a", corev1.PullIfNotPresent, "", 0)
	b.rt.FailNext("ImageStatus", errors.New("not now"))
	if _, err := b.ensure(t.Context(), "b", "registry.example/preloaded:1", corev1.PullNever); err == nil || reasonOf(t, err) != "ErrImageNeverPull" {
		t.Errorf("an image that may have been pulled: %v", err)
	}
	if _, err := b.ensure(t.Context(), "b", "registry.example/preloaded:1", corev1.PullNever); err != nil {
		t.Errorf("the same once it is settled: %v", err)
	}
}

func TestAPullWhoseAnswerIsLostLeavesNoFreeImage(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	b.rt.AddImage("registry.example/preloaded:1", critest.Behavior{})
	// The runtime pulls, and then its answer does not arrive.
	clear := b.rt.Inject(critest.Fault{Method: "PullImage", Err: context.DeadlineExceeded, Late: true})
	b.want(t, "the answer is lost", "a", corev1.PullIfNotPresent, "ErrImagePull", 1)
	if _, err := b.ensure(t.Context(), "b", "registry.example/preloaded:1", corev1.PullAlways); err == nil {
		t.Error("the fault is not there")
	}
	clear()
	b.want(t, "a pod without credentials", "b", corev1.PullNever, "ErrImageNeverPull", 0)
	if _, err := b.ensure(t.Context(), "c", "registry.example/preloaded:1", corev1.PullNever); err != nil {
		t.Errorf("a preloaded image is not free any more because a pull of it was lost: %v", err)
	}
}

func TestRecordsThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	pulling, pulled := filepath.Join(dir, "pulling"), filepath.Join(dir, "pulled")
	if err := os.Remove(pulling); err != nil {
		t.Fatal(err)
	}
	_, err := b.ensure(t.Context(), "a", private, corev1.PullIfNotPresent)
	if err == nil || reasonOf(t, err) != "ErrImagePull" || !strings.HasPrefix(err.Error(), "note that a pull begins: open "+pulling) || b.pulls() != 0 {
		t.Errorf("without a note: %v after %d pulls", err, b.pulls())
	}
	b.p.Forget("a")
	if err := errors.Join(os.Mkdir(pulling, 0o700), os.Remove(pulled)); err != nil {
		t.Fatal(err)
	}
	b.want(t, "without a record", "a", corev1.PullIfNotPresent, "", 1)
	b.want(t, "it holds in memory", "b", corev1.PullNever, "ErrImageNeverPull", 0)
	b.want(t, "for both", "a", corev1.PullNever, "", 0)
}

func TestDropRecords(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	b.rt.Publish(critest.Image{Ref: "registry.example/public:1"})
	var ids []string
	for _, image := range []string{private, "registry.example/public:1"} {
		id, err := b.ensure(t.Context(), "a", image, corev1.PullIfNotPresent)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	refs := func() []string {
		var all []string
		for _, r := range files[configv1beta1.ImagePulledRecord](t, filepath.Join(dir, "pulled")) {
			all = append(all, r.ImageRef)
		}
		return all
	}
	if err := b.p.DropRecords(nil, time.Now()); err != nil || len(refs()) != 2 {
		t.Errorf("records of a moment ago: %v, %v", refs(), err)
	}
	if err := b.p.DropRecords(ids, time.Now().Add(time.Hour)); err != nil || len(refs()) != 2 {
		t.Errorf("records of images that are there: %v, %v", refs(), err)
	}
	if err := b.p.DropRecords(ids[1:], time.Now().Add(time.Hour)); err != nil || !slices.Equal(refs(), ids[1:]) {
		t.Errorf("records of images that are gone: %v, %v", refs(), err)
	}
	if err := newBench(t, nil).p.DropRecords(nil, time.Now()); err != nil {
		t.Error(err)
	}
}

func TestAPullRenewsItsRecord(t *testing.T) {
	dir := t.TempDir()
	b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
	b.want(t, "the first pull", "a", corev1.PullAlways, "", 1)
	old, err := filepath.Glob(filepath.Join(dir, "pulled", "*"))
	if err != nil || len(old) != 1 {
		t.Fatal(old, err)
	}
	if err := os.Chtimes(old[0], time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	// An image that is removed and pulled again while somebody lists the images.
	listed := time.Now()
	b.want(t, "the same once more", "a", corev1.PullAlways, "", 1)
	if err := b.p.DropRecords(nil, listed); err != nil {
		t.Fatal(err)
	}
	b.want(t, "a pod without credentials", "b", corev1.PullNever, "ErrImageNeverPull", 0)
}

// Objects in manifests have no UID. A name alone proves nothing.
func TestASecretWithoutUIDProvesItselfByItsContentOnly(t *testing.T) {
	first, renamed, changed := secretOf("s", "right"), secretOf("renamed", "right"), secretOf("s", "other")
	first.Source.UID, renamed.Source.UID, changed.Source.UID = "", "", ""
	b := recorded(t, t.TempDir(), wallet{"first": {first}, "renamed": {renamed}, "changed": {changed}}, nil)
	b.want(t, "the first pod", "first", corev1.PullIfNotPresent, "", 1)
	b.want(t, "another name", "renamed", corev1.PullNever, "", 0)
	b.want(t, "another content", "changed", corev1.PullNever, "ErrImageNeverPull", 0)
}

func TestARecordIsBounded(t *testing.T) {
	dir, w := t.TempDir(), wallet{}
	for i := range 150 {
		w[fmt.Sprint("u", i)] = []keyring.Credential{secretOf(fmt.Sprint("s", i), "right")}
	}
	b := recorded(t, dir, w, nil)
	secrets := func() int {
		return len(files[configv1beta1.ImagePulledRecord](t, filepath.Join(dir, "pulled"))[0].CredentialMapping["registry.example/team/app"].KubernetesSecrets)
	}
	for i := range 150 {
		b.want(t, "each pod", fmt.Sprint("u", i), corev1.PullIfNotPresent, "", map[bool]int{true: 1}[i == 0])
	}
	if n := secrets(); n != 100 {
		t.Errorf("%d secrets, want 100", n)
	}
	b.want(t, "one that pulls", "u149", corev1.PullAlways, "", 1)
	if n := secrets(); n != 100 {
		t.Errorf("%d secrets after one more pull, want 100", n)
	}
}

func FuzzReadRecords(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"x"}`))
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"a:1"}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		for _, sub := range []string{"pulling", "pulled"} {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, sub), 0o700), os.WriteFile(filepath.Join(dir, sub, "sha256-1"), data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		b := recorded(t, dir, nil, nil)
		b.rt.Load(critest.Image{Ref: private, Username: "u", Password: "right"})
		putRecord(t, dir, b.status(t, private), string(data))
		if _, err := b.ensure(t.Context(), "u", private, corev1.PullNever); err == nil {
			t.Errorf("%q opened a private image", data)
		}
	})
}

func TestPodsThatShareAPullAreBothRemembered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := recorded(t, dir, wallet{"a": {secretOf("a", "wrong"), secretOf("a2", "right")}, "c": {secretOf("c", "wrong"), secretOf("c2", "right")}}, nil)
		b.rt.Publish(critest.Image{Ref: private, Username: "u", Password: "right", PullTakes: time.Minute})
		var wg sync.WaitGroup
		for _, pod := range []string{"a", "c"} {
			wg.Go(func() {
				if _, err := b.ensure(t.Context(), pod, private, corev1.PullIfNotPresent); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var names []string
		for _, s := range files[configv1beta1.ImagePulledRecord](t, filepath.Join(dir, "pulled"))[0].CredentialMapping["registry.example/team/app"].KubernetesSecrets {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff([]string{"a2", "c2"}, names); diff != "" || b.pulls() != 2 {
			t.Errorf("%d calls, want a wrong and a right one; %s", b.pulls(), diff)
		}
	})
}

// locker has secrets by name.
type locker map[string]string

func (l locker) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	text, ok := l[name]
	if !ok {
		return nil, errors.New("not found")
	}
	return &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)}}, nil
}

func TestMissingSecretsAreOnlyWorthAnEventWhenThePullFails(t *testing.T) {
	ring, err := keyring.New(keyring.Config{Secrets: locker{
		"right":  `{"auths":{"registry.example/team":{"username":"u","password":"wrong"},"https://registry.example/v2/":{"username":"u","password":"right"}}}`,
		"wrong":  `{"auths":{"registry.example":{"username":"u","password":"wrong"}}}`,
		"broken": `{"auths":`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := recorded(t, t.TempDir(), nil, func(cfg *imagepull.Config) { cfg.Credentials = ring })
	ensure := func(uid string, secrets ...string) error {
		pod, c := podOf(uid, private, corev1.PullAlways)
		for _, s := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
		}
		_, err := b.p.EnsureImage(t.Context(), pod, c, nil)
		return err
	}
	denied := `failed to pull and unpack image "registry.example/team/app:1": failed to resolve reference "registry.example/team/app:1": ` +
		`pull access denied, repository does not exist or may require authorization: authorization failed`
	if err := ensure("a", "lost", "right"); err != nil {
		t.Error(err)
	}
	if events := b.take(); strings.Contains(fmt.Sprint(events), "FailedToRetrieve") {
		t.Errorf("a pull that succeeds: %q", events)
	}
	if err := ensure("b", "lost", "gone", "wrong"); err == nil {
		t.Error("a wrong password pulled")
	}
	same(t, b.take(),
		`pod-b/app Normal Pulling: Pulling image "registry.example/team/app:1"`,
		`pod-b/app Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (lost, gone); attempting to pull the image may not succeed.`,
		`pod-b/app Warning Failed: Failed to pull image "registry.example/team/app:1": `+denied)
	if err := ensure("c", "broken"); err == nil || err.Error() != "read image pull secret default/broken: key .dockerconfigjson: parse docker config.json: unexpected end of JSON input" {
		t.Errorf("a broken secret: %v", err)
	}
}

// Starting a pod whose image is there costs a file or two, not a pull.
func BenchmarkEnsurePrivateImage(b *testing.B) {
	rt := critest.New(critest.Config{})
	rt.Publish(critest.Image{Ref: private, Username: "u", Password: "right"})
	p, err := imagepull.New(imagepull.Config{Images: rt, RecordsDir: b.TempDir(), Credentials: wallet{"a": {secretOf("a", "right")}}})
	if err != nil {
		b.Fatal(err)
	}
	pod, c := podOf("a", private, corev1.PullIfNotPresent)
	for b.Loop() {
		if _, err := p.EnsureImage(b.Context(), pod, c, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAPullThatNobodyWaitsForLeavesNoFreeImage(t *testing.T) {
	for name, silent := range map[string]bool{"the runtime tells what came of it": false, "the runtime is silent for a while": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				b := recorded(t, dir, wallet{"a": {secretOf("a", "right")}}, nil)
				clear := b.rt.Inject(critest.Fault{Method: "PullImage", Hang: true, Late: true})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if silent {
					b.rt.Inject(critest.Fault{Method: "ImageStatus", Hang: true, Times: 1, Match: func(critest.Call) bool { return ctx.Err() != nil }})
				}
				began := time.Now()
				if _, err := b.ensure(ctx, "a", private, corev1.PullIfNotPresent); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error = %v, want the deadline's", err)
				}
				if took := time.Since(began); took > time.Minute+2*time.Second {
					t.Errorf("leaving took %v", took)
				}
				clear()
				intents := len(files[configv1beta1.ImagePullIntent](t, filepath.Join(dir, "pulling")))
				if (intents == 1) != silent {
					t.Errorf("%d intents are left", intents)
				}
				b.want(t, "a pod without credentials", "b", corev1.PullNever, "ErrImageNeverPull", 0)
				b.want(t, "the pod itself", "a", corev1.PullIfNotPresent, "", 1)
				if left := files[configv1beta1.ImagePullIntent](t, filepath.Join(dir, "pulling")); len(left) != 0 {
					t.Errorf("intents are left for good: %v", left)
				}
			})
		})
	}
}

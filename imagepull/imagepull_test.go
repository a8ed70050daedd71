package imagepull_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/imagepull"
	"github.com/kubeletkit/kubeletkit/observed"
)

func podOf(uid, image string, policy corev1.PullPolicy) (*corev1.Pod, *corev1.Container) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, Namespace: "default", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image, ImagePullPolicy: policy}}},
	}
	return pod, &pod.Spec.Containers[0]
}

// bench is a puller on a fake runtime, with everything that its hooks said.
type bench struct {
	rt *critest.Runtime
	p  *imagepull.Puller

	mu      sync.Mutex
	events  []string
	ensured []string
	pulled  []string
}

func newBench(t *testing.T, change func(*imagepull.Config)) *bench {
	t.Helper()
	b := &bench{rt: critest.New(critest.Config{})}
	cfg := imagepull.Config{Images: b.rt, Hooks: imagepull.Hooks{
		Event: func(pod *corev1.Pod, container, eventType, reason, message string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, fmt.Sprintf("%s/%s %s %s: %s", pod.Name, container, eventType, reason, message))
		},
		Ensured: func(policy corev1.PullPolicy, present, required string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ensured = append(b.ensured, fmt.Sprint(policy, " ", present, " ", required))
		},
		Pulled: func(image string, took time.Duration, size uint64, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pulled = append(b.pulled, fmt.Sprint(image, " ", took, " ", size, " ", err == nil))
		},
	}}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.p, err = imagepull.New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.events
	b.events = nil
	return e
}

func (b *bench) pulls() int {
	n := 0
	for _, c := range b.rt.Calls() {
		if c.Method == "PullImage" {
			n++
		}
	}
	return n
}

func (b *bench) ensure(ctx context.Context, uid, image string, policy corev1.PullPolicy) (string, error) {
	pod, c := podOf(uid, image, policy)
	got, err := b.p.EnsureImage(ctx, pod, c, &runtimeapi.PodSandboxConfig{})
	return got.ID, err
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var e *imagepull.Error
	if !errors.As(err, &e) {
		t.Fatalf("error = %v, want an *imagepull.Error", err)
	}
	return e.WaitingReason()
}

func TestPolicies(t *testing.T) {
	const local, remote = "registry.example/local:1", "registry.example/remote:1"
	tests := []struct {
		name    string
		image   string
		policy  corev1.PullPolicy
		reason  string
		pulls   int
		ensured string
	}{
		{"a present image is not pulled under IfNotPresent", local, corev1.PullIfNotPresent, "", 0, "IfNotPresent true false"},
		{"a missing image is pulled under IfNotPresent", remote, corev1.PullIfNotPresent, "", 1, "IfNotPresent false true"},
		{"a present image is pulled under Always, and not looked for", local, corev1.PullAlways, "", 1, "Always unknown true"},
		{"a present image is used under Never", local, corev1.PullNever, "", 0, "Never true false"},
		{"a missing image is an error under Never", remote, corev1.PullNever, "ErrImageNeverPull", 0, "Never false false"},
		{"no policy means IfNotPresent for a tag", local, "", "", 0, "IfNotPresent true false"},
		{"no policy means Always for latest", "registry.example/local", "", "", 1, "Always unknown true"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.rt.AddImage(local, critest.Behavior{})
			b.rt.AddImage("registry.example/local:latest", critest.Behavior{})
			b.rt.Publish(critest.Image{Ref: remote})
			id, err := b.ensure(t.Context(), "u1", tt.image, tt.policy)
			if tt.reason != "" {
				if got := reasonOf(t, err); got != tt.reason {
					t.Errorf("reason = %s, want %s", got, tt.reason)
				}
			} else if err != nil || !strings.HasPrefix(id, "sha256:") {
				t.Errorf("EnsureImage = %q, %v; want an ID", id, err)
			}
			if got := b.pulls(); got != tt.pulls {
				t.Errorf("%d pulls, want %d", got, tt.pulls)
			}
			if len(b.ensured) != 1 || b.ensured[0] != tt.ensured {
				t.Errorf("Ensured = %q, want %q", b.ensured, tt.ensured)
			}
		})
	}
}

func TestEventsOfASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.rt.Publish(critest.Image{Ref: "registry.example/a:1", Size: 123, PullTakes: 1200 * time.Millisecond})
		for range 2 {
			if _, err := b.ensure(t.Context(), "u1", "registry.example/a:1", corev1.PullIfNotPresent); err != nil {
				t.Fatal(err)
			}
		}
		same(t, b.take(),
			`pod-u1/app Normal Pulling: Pulling image "registry.example/a:1"`,
			`pod-u1/app Normal Pulled: Successfully pulled image "registry.example/a:1" in 1.2s (1.2s including waiting). Image size: 123 bytes.`,
			`pod-u1/app Normal Pulled: Container image "registry.example/a:1" already present on machine`)
		same(t, b.pulled, "registry.example/a:1 1.2s 123 true")
	})
}

func TestBackOffDoublesFromTheLastFailureAndIsNotClearedBySuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		start := time.Now()
		const image = "registry.example/gone:1"
		try := func() (string, time.Time) {
			_, err := b.ensure(t.Context(), "u1", image, corev1.PullAlways)
			var e *imagepull.Error
			if !errors.As(err, &e) {
				t.Fatalf("error = %v", err)
			}
			return e.Reason, e.RetryAt()
		}
		var delays []time.Duration
		for range 8 {
			reason, retry := try()
			if reason != "ErrImagePull" {
				t.Fatalf("reason = %s at %v, want ErrImagePull", reason, time.Since(start))
			}
			delays = append(delays, time.Until(retry))
			time.Sleep(time.Until(retry) - time.Millisecond)
			if reason, again := try(); reason != "ImagePullBackOff" || !again.Equal(retry) {
				t.Fatalf("just before %v: %s until %v", retry, reason, again)
			}
			time.Sleep(time.Millisecond)
		}
		want := "[10s 20s 40s 1m20s 2m40s 5m0s 5m0s 5m0s]"
		if got := fmt.Sprint(delays); got != want {
			t.Errorf("delays = %s, want %s", got, want)
		}

		b.rt.Publish(critest.Image{Ref: image})
		if _, err := b.ensure(t.Context(), "u1", image, corev1.PullAlways); err != nil {
			t.Fatal(err)
		}
		b.rt.FailNext("PullImage", errors.New("again"))
		if _, retry := try(); time.Until(retry) != 5*time.Minute {
			t.Errorf("delay after one success = %v, want 5m", time.Until(retry))
		}
		time.Sleep(10*time.Minute + time.Second)
		b.rt.FailNext("PullImage", errors.New("again"))
		if _, retry := try(); time.Until(retry) != 10*time.Second {
			t.Errorf("delay after ten quiet minutes = %v, want 10s", time.Until(retry))
		}
	})
}

func TestBackOffIsPerPodAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		const image = "registry.example/gone:1"
		first := func(uid string) string {
			_, err := b.ensure(t.Context(), uid, image, corev1.PullIfNotPresent)
			return reasonOf(t, err)
		}
		got := []string{first("a"), first("a"), first("b")}
		b.p.Forget("a")
		got = append(got, first("a"), first("b"))
		want := []string{"ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ErrImagePull", "ImagePullBackOff"}
		if !slices.Equal(got, want) {
			t.Errorf("reasons = %v, want %v", got, want)
		}
	})
}

func TestFailureTexts(t *testing.T) {
	tests := []struct {
		name, runtime, reason, message string
	}{
		{"an ordinary failure keeps the runtime's words", "no space left", "ErrImagePull", "no space left"},
		{"an unavailable registry has its own reason", "RegistryUnavailable: 503", "RegistryUnavailable",
			"image pull failed for registry.example/a:1 because the registry is unavailable: 503"},
		{"a bad signature has its own reason", "SignatureValidationFailed: key", "SignatureValidationFailed",
			"image pull failed for registry.example/a:1 because the signature validation failed: key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.rt.FailNext("PullImage", errors.New(tt.runtime))
			_, err := b.ensure(t.Context(), "u1", "registry.example/a:1", corev1.PullAlways)
			if got := reasonOf(t, err); got != tt.reason || err.Error() != tt.message {
				t.Errorf("error = %s: %s\nwant    %s: %s", got, err, tt.reason, tt.message)
			}
			same(t, b.take(),
				`pod-u1/app Normal Pulling: Pulling image "registry.example/a:1"`,
				`pod-u1/app Warning Failed: Failed to pull image "registry.example/a:1": `+tt.runtime)
			_, err = b.ensure(t.Context(), "u1", "registry.example/a:1", corev1.PullAlways)
			want := `Back-off pulling image "registry.example/a:1": ` + tt.reason + ": " + tt.message
			if err == nil || err.Error() != want {
				t.Errorf("in back-off: %v\nwant %s", err, want)
			}
			same(t, b.take(), `pod-u1/app Normal BackOff: Back-off pulling image "registry.example/a:1"`)
		})
	}
}

func TestBadNameAndBrokenRuntime(t *testing.T) {
	b := newBench(t, nil)
	_, err := b.ensure(t.Context(), "u1", "UPPER:1", corev1.PullAlways)
	if got := reasonOf(t, err); got != "InvalidImageName" {
		t.Errorf("reason of a bad name = %s", got)
	}
	b.rt.FailNext("ImageStatus", errors.New("database is closed"))
	_, err = b.ensure(t.Context(), "u1", "registry.example/a:1", corev1.PullIfNotPresent)
	if got := reasonOf(t, err); got != "ImageInspectError" {
		t.Errorf("reason when the runtime cannot tell = %s", got)
	}
	same(t, b.take(),
		`pod-u1/app Warning InspectFailed: Failed to apply default image tag "UPPER:1": invalid reference format: repository name must be lowercase`,
		`pod-u1/app Warning InspectFailed: Failed to inspect image "registry.example/a:1": database is closed`)
	if b.pulls() != 0 {
		t.Error("something was pulled")
	}
}

func TestPodsWithTheSameImageShareOnePull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.rt.Publish(critest.Image{Ref: "registry.example/a:1", PullTakes: time.Minute})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := b.ensure(t.Context(), fmt.Sprint("u", i), "registry.example/a:1", corev1.PullAlways); err != nil {
					t.Error(err)
				}
			})
		}
		start := time.Now()
		wg.Wait()
		if got := b.pulls(); got != 1 {
			t.Errorf("%d pulls, want 1", got)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %v, want 1m", took)
		}
	})
}

func TestDifferentCredentialsDoNotShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(cfg *imagepull.Config) {
			cfg.MaxParallel = -1
			cfg.Credentials = wallet{"key": {secretOf("one", "wrong"), secretOf("two", "right")}}
		})
		b.rt.Publish(critest.Image{Ref: "registry.example/a:1", PullTakes: time.Second, Username: "u", Password: "right"})
		var wg sync.WaitGroup
		var openErr, keyErr error
		wg.Go(func() { _, openErr = b.ensure(t.Context(), "open", "registry.example/a:1", corev1.PullAlways) })
		wg.Go(func() { _, keyErr = b.ensure(t.Context(), "key", "registry.example/a:1", corev1.PullAlways) })
		wg.Wait()
		if keyErr != nil {
			t.Errorf("the second credential was not used: %v", keyErr)
		}
		if openErr == nil {
			t.Error("a pod without credentials got a private image")
		}
		if strings.Contains(fmt.Sprint(b.take()), "wrong") {
			t.Error("an event has a password in it")
		}
	})
}

func TestAPullGoesOnAsLongAsAnybodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.rt.Publish(critest.Image{Ref: "registry.example/a:1", PullTakes: time.Minute})
		leaving, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var leftErr, stayedErr error
		wg.Go(func() { _, leftErr = b.ensure(leaving, "first", "registry.example/a:1", corev1.PullAlways) })
		synctest.Wait()
		wg.Go(func() { _, stayedErr = b.ensure(t.Context(), "second", "registry.example/a:1", corev1.PullAlways) })
		time.Sleep(10 * time.Second)
		leave()
		synctest.Wait()
		if !errors.Is(leftErr, context.Canceled) {
			t.Errorf("who left got %v, want context.Canceled at once", leftErr)
		}
		wg.Wait()
		if stayedErr != nil || b.pulls() != 1 {
			t.Errorf("who stayed got %v after %d pulls, want nil after 1", stayedErr, b.pulls())
		}
	})
}

func TestAPullNobodyWaitsForEndsAndTheNextOneIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		clear := b.rt.Inject(critest.Fault{Method: "PullImage", Hang: true})
		b.rt.Publish(critest.Image{Ref: "registry.example/a:1"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.ensure(ctx, "u1", "registry.example/a:1", corev1.PullAlways); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v, want the deadline's", err)
		}
		clear()
		if _, err := b.ensure(t.Context(), "u1", "registry.example/a:1", corev1.PullAlways); err != nil {
			t.Errorf("an abandoned pull left a back-off behind: %v", err)
		}
	})
}

func TestParallelLimit(t *testing.T) {
	for _, tt := range []struct {
		parallel int
		want     time.Duration
	}{{0, 4 * time.Minute}, {2, 2 * time.Minute}, {-1, time.Minute}} {
		t.Run(fmt.Sprint(tt.parallel), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(cfg *imagepull.Config) { cfg.MaxParallel = tt.parallel })
				b.rt.AddImage("registry.example/local:1", critest.Behavior{})
				start := time.Now()
				var wg sync.WaitGroup
				for i := range 4 {
					ref := fmt.Sprint("registry.example/a:", i)
					b.rt.Publish(critest.Image{Ref: ref, PullTakes: time.Minute})
					wg.Go(func() {
						if _, err := b.ensure(t.Context(), fmt.Sprint("u", i), ref, corev1.PullAlways); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if _, err := b.ensure(t.Context(), "l", "registry.example/local:1", corev1.PullIfNotPresent); err != nil || time.Since(start) != 0 {
					t.Errorf("a local image waited %v for pulls of others: %v", time.Since(start), err)
				}
				wg.Wait()
				if took := time.Since(start); took != tt.want {
					t.Errorf("took %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestRateLimitDelaysAndDoesNotFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(cfg *imagepull.Config) { cfg.QPS, cfg.Burst = 1, 2 })
		start := time.Now()
		for i := range 5 {
			ref := fmt.Sprint("registry.example/a:", i)
			b.rt.Publish(critest.Image{Ref: ref})
			if _, err := b.ensure(t.Context(), "u1", ref, corev1.PullAlways); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("5 pulls at 1 a second with a burst of 2 took %v, want 3s", took)
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	rt := critest.New(critest.Config{})
	for name, cfg := range map[string]imagepull.Config{
		"no images":        {},
		"negative back":    {Images: rt, BackoffMax: -1},
		"negative burst":   {Images: rt, Burst: -1},
		"negative initial": {Images: rt, BackoffInitial: -1},
	} {
		if _, err := imagepull.New(cfg); err == nil {
			t.Errorf("New accepted a config with %s", name)
		}
	}
}

func TestWithTag(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	tests := []struct{ in, want string }{
		{"busybox", "busybox:latest"},
		{"library/busybox", "library/busybox:latest"},
		{"registry.example:5000/a/b", "registry.example:5000/a/b:latest"},
		{"registry.example:5000/a/b:1.2", "registry.example:5000/a/b:1.2"},
		{"localhost/a:1", "localhost/a:1"},
		{"a@" + digest, "a@" + digest},
		{"a:1@" + digest, "a:1@" + digest},
		{"[::1]:5000/a", "[::1]:5000/a:latest"},
		{"", ""},
		{" a", ""},
		{"a b", ""},
		{"A", ""},
		{"a:", ""},
		{"a::1", ""},
		{"a//b", ""},
		{"/a", ""},
		{"a/", ""},
		{"a@sha256:12", ""},
		{"a@", ""},
		{"a:-x", ""},
		{"bad_host.example:x/a", ""},
		{strings.Repeat("a", 64), ""},
		{"a:" + strings.Repeat("x", 129), ""},
	}
	for _, tt := range tests {
		got, err := imagepull.WithTag(tt.in)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("WithTag(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func FuzzWithTag(f *testing.F) {
	for _, s := range []string{"busybox", "a:1", "a@sha256:" + strings.Repeat("0", 64), "h:1/a/b:c", "", "@", ":", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := imagepull.WithTag(s)
		if err != nil {
			return
		}
		if again, err := imagepull.WithTag(got); err != nil || again != got {
			t.Errorf("WithTag(%q) = %q, which becomes %q, %v", s, got, again, err)
		}
		if !strings.HasPrefix(got, s) {
			t.Errorf("WithTag(%q) = %q, want only a tag added", s, got)
		}
	})
}

func TestBackoffMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(cfg *imagepull.Config) { cfg.QPS = -1 })
		for i := range 3000 {
			if _, err := b.ensure(t.Context(), fmt.Sprint("u", i), "registry.example/gone:1", corev1.PullAlways); err == nil {
				t.Fatal("a pull of nothing succeeded")
			}
			time.Sleep(time.Second)
		}
		// Ten minutes of memory, and at most five more until the next sweep.
		if n := imagepull.Remembered(b.p); n > 901 {
			t.Errorf("%d back-offs are remembered, want at most 901", n)
		}
		b.p.Forget(observed.UID("u2999"))
	})
}

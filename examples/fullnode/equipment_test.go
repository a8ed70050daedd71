package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/podnet"
)

func TestANodeStartsInSpiteOfABadRecordOfUsers(t *testing.T) {
	var err error
	b := &builder{log: logr.Discard(), o: options{rootDir: t.TempDir()}}
	if b.o.config, _, err = loadConfig(""); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.o.rootDir, "pods", "u1")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "userns"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.userNamespaces(); err != nil {
		t.Errorf("userNamespaces = %v: one pod's file keeps all others from their agent", err)
	}
}

func TestWhatIsWrongWithTheHostsResolverIsSaidOnce(t *testing.T) {
	o := fakeOptions(t)
	o.config.ResolverConfig = ptr.To(filepath.Join(t.TempDir(), "missing"))
	said := 0
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, podnet.ReasonResolvConf) {
			said++
		}
	}, funcr.Options{})
	rt := critest.New(critest.Config{})
	if _, err := newNode(o, door{runtime: rt, images: rt}, metrics.New("node"), log, nil); err != nil {
		t.Fatal(err)
	}
	if said != 1 {
		t.Errorf("said %d times, want once", said)
	}
}

// The files are watched by the kernel, so this story is on the real clock.
func TestAPullSecretThatAppearsEndsTheBackOff(t *testing.T) {
	o := fakeOptions(t)
	o.config.StaticPodPath = t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(o.config.StaticPodPath, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rt := critest.New(critest.Config{Registry: func(ref string) (critest.Image, bool) {
		return critest.Image{Ref: ref, Username: "me", Password: "right"}, true
	}})
	n, err := newNode(o, door{runtime: rt, images: rt, events: criEvents(rt)}, metrics.New("node"), testLog(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	status := func() corev1.PodStatus {
		st, _ := n.handler.statuses.Get("fixed")
		return st
	}

	write("web.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: fixed}, spec: {imagePullSecrets: [{name: key}], containers: [{name: app, image: "registry.example/web:1"}]}}`)
	eventually(t, 20*time.Second, "pulling in vain", func() bool {
		for _, cs := range status().ContainerStatuses {
			return cs.State.Waiting != nil && strings.Contains(cs.State.Waiting.Reason, "ImagePull")
		}
		return false
	})
	write("key.yaml", `{apiVersion: v1, kind: Secret, metadata: {name: key}, type: kubernetes.io/dockerconfigjson,
  stringData: {.dockerconfigjson: '{"auths": {"registry.example": {"username": "me", "password": "right"}}}'}}`)
	eventually(t, 5*time.Second, "running, long before the back-off of 10s is over", func() bool { return status().Phase == corev1.PodRunning })
}

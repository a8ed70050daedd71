package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
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

package criclient_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
)

// One call over a unix socket: what the door itself costs.
func BenchmarkCall(b *testing.B) {
	srv := &server{answer: func(context.Context, string, any) (any, error) {
		return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
	}}
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer srv.serve(b, l)()
	c, err := criclient.New(criclient.Config{Endpoint: "unix://" + path})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// A look at what runs, at 100 pods of two containers.
func BenchmarkRunningPods(b *testing.B) {
	w := newWorld()
	for i := range 100 {
		uid, sandbox := fmt.Sprintf("u%d", i), fmt.Sprintf("s%d", i)
		w.sandbox(sandbox, uid, int64(i+1), true, "10.0.0.1")
		for j := range 2 {
			w.container(fmt.Sprintf("c%d-%d", i, j), uid, fmt.Sprintf("app%d", j), sandbox, int64(i+2), running)
		}
	}
	o := observe(b, w)
	b.ReportAllocs()
	for b.Loop() {
		if pods, err := o.RunningPods(b.Context()); err != nil || len(pods) != 100 {
			b.Fatal(len(pods), err)
		}
	}
}

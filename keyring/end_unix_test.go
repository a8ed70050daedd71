//go:build unix

package keyring_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/keyring"
)

// gated is a desk with a plug-in that answers when the test closes the gate's end.
func gated(t *testing.T) (d *desk, opened func() *os.File) {
	d = newDesk(t)
	gate := filepath.Join(d.dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	d.plugin("slow", "wait", answerOf("Image", nil, map[string]string{"*.example": "u:p"}), nil)
	return d, func() *os.File {
		f, err := os.OpenFile(gate, os.O_WRONLY, 0) // blocks until the plug-in is there
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

func TestPodsWithTheSameQuestionShareARun(t *testing.T) {
	d, opened := gated(t)
	k := mustNew(t, d.cfg)
	leaving, leave := context.WithCancel(t.Context())
	var first error
	var wg, left sync.WaitGroup
	left.Go(func() { _, first = k.Lookup(leaving, "reg.example/a:1", podWith()) })
	gate := opened()
	for i := range 5 {
		wg.Go(func() {
			if a, err := k.Lookup(t.Context(), "reg.example/a:2", podWith()); err != nil || len(a.Credentials) != 1 {
				t.Errorf("pod %d: %v, %v", i, a, err)
			}
		})
	}
	for keyring.Waiting(k) < 6 {
		runtime.Gosched()
	}
	// The one who began it leaves, and the others still get their answer.
	leave()
	left.Wait()
	if !errors.Is(first, context.Canceled) {
		t.Errorf("who left got %v", first)
	}
	gate.Close()
	wg.Wait()
	if asked := d.asked(); len(asked) != 1 {
		t.Errorf("asked %d times: %q", len(asked), asked)
	}
}

func TestARunThatNobodyWaitsForEndsWithAllThatItStarted(t *testing.T) {
	d, opened := gated(t)
	// A shell between, so that the one who holds the gate is a grandchild.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + self + "\nexit 0\n"
	if err := os.WriteFile(filepath.Join(d.dir, "shell"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d.cfg.Providers[0].Name = "shell"
	k := mustNew(t, d.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := k.Lookup(ctx, "reg.example/a", podWith()); !errors.Is(err, context.Canceled) {
			t.Errorf("Lookup = %v, want the context's end", err)
		}
	})
	gate := opened()
	defer gate.Close()
	cancel()
	wg.Wait()
	// The grandchild is the gate's only reader, and may take a moment to die.
	for began := time.Now(); ; {
		if _, err := io.WriteString(gate, "x"); errors.Is(err, syscall.EPIPE) {
			return
		} else if err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("write to what should be dead = %v", err)
		}
		runtime.Gosched()
	}
}

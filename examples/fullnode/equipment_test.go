package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
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

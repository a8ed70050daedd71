package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
)

// NodeFiles has the kubelet's places for docker config files, in its order: the
// root directory, the working directory and the home directory, where an empty
// one is left out, and the root of the file system.
func NodeFiles(root, work, home string) []string {
	var files []string
	add := func(dir, file string) {
		if dir != "" {
			files = append(files, filepath.Join(dir, file))
		}
	}
	add(root, "config.json")
	add(work, "config.json")
	if home != "" {
		add(filepath.Join(home, ".docker"), "config.json")
	}
	add("/.docker", "config.json")
	for _, dir := range []string{root, work, home, "/"} {
		add(dir, ".dockercfg")
	}
	return files
}

// nodeFiles reads the node's docker config. A file is read again when it looks
// different, so a new password counts for the next pull.
type nodeFiles struct {
	paths []string
	log   logr.Logger

	mu struct {
		sync.Mutex
		seen map[string]seenFile
	}
}

type seenFile struct {
	info fs.FileInfo
	ring []sourced
	err  error
}

func newNodeFiles(paths []string, log logr.Logger) *nodeFiles {
	f := &nodeFiles{paths: paths, log: log}
	f.mu.seen = make(map[string]seenFile)
	return f
}

// load returns what the first readable file has.
func (f *nodeFiles) load() []sourced {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				f.log.V(1).Info("A docker config file cannot be looked at", "file", path, "err", err.Error())
			}
			delete(f.mu.seen, path)
			continue
		}
		seen, ok := f.mu.seen[path]
		if !ok || !unchanged(seen.info, info) {
			seen = f.read(path, info)
			f.mu.seen[path] = seen
		}
		if seen.err == nil {
			return seen.ring
		}
	}
	return nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
}

// read logs what is wrong once, since it is not called again before the file changes.
func (f *nodeFiles) read(path string, info fs.FileInfo) seenFile {
	seen := seenFile{info: info}
	var entries []Entry
	if entries, seen.err = parseFile(path, info); seen.err != nil {
		f.log.Error(seen.err, "A docker config file is passed over")
		return seen
	}
	for _, e := range entries {
		key, err := parseKey(e.Key)
		if err != nil {
			f.log.Info("A credential is for no registry", "file", path, "err", err.Error())
			continue
		}
		seen.ring = append(seen.ring, sourced{key: key, Credential: Credential{Auth: e.Auth}})
	}
	return seen
}

func parseFile(path string, info fs.FileInfo) ([]Entry, error) {
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read docker config: %w", err)
	}
	parse := ParseConfigJSON
	if filepath.Base(path) == ".dockercfg" {
		parse = ParseDockercfg
	}
	entries, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return entries, nil
}

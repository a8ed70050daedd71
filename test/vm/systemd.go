package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// service is the one unit of the machine with systemd, with a hole for the version of
// cgroups that the tests insist on.
const service = `[Unit]
Description=tests of room cgroup
DefaultDependencies=no
[Service]
Type=oneshot
Environment=KUBELETKIT_CGROUP_MUST=%s
ExecStart=/runner
`

// systemdFiles are systemd and the libraries it is linked with, from Debian's
// packages. They are fetched and unpacked into dir, and installed nowhere.
func systemdFiles(ctx context.Context, dir, version string) ([]file, error) {
	tree := filepath.Join(dir, "systemd")
	if _, err := os.Stat(tree); err != nil {
		if err := fetchSystemd(ctx, dir, tree); err != nil {
			_ = os.RemoveAll(tree)
			return nil, fmt.Errorf("fetch systemd: %w", err)
		}
	}
	files := []file{
		{name: "lib", mode: symlink, data: []byte("usr/lib")},
		{name: "lib64", mode: symlink, data: []byte("usr/lib64")},
		{name: "init", mode: symlink, data: []byte("usr/lib/systemd/systemd")},
		{name: "etc/systemd/system/kubeletkit.service", mode: plain, data: fmt.Appendf(nil, service, version)},
	}
	err := filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(p, tree+"/")
		if strings.HasPrefix(name, "lib") { // the packages are from before /usr was merged
			name = path.Join("usr", name)
		}
		needed := strings.HasPrefix(name, "usr/lib64/") ||
			strings.HasPrefix(name, "usr/lib/x86_64-linux-gnu/") && strings.Contains(path.Base(name), ".so") ||
			path.Dir(name) == "usr/lib/systemd" && strings.HasPrefix(path.Base(name), "systemd")
		if !needed {
			return nil
		}
		f := file{name: name, mode: executable}
		if d.Type()&fs.ModeSymlink != 0 {
			f.mode = symlink
			to, err := os.Readlink(p)
			f.data = []byte(to)
			files = append(files, f)
			return err
		}
		f.data, err = os.ReadFile(p)
		files = append(files, f)
		return err
	})
	return files, err
}

func fetchSystemd(ctx context.Context, dir, tree string) error {
	depends, err := output(ctx, "", "apt-cache", "depends", "--recurse", "--important", "systemd")
	if err != nil {
		return err
	}
	names := []string{"systemd"}
	for line := range strings.Lines(depends) {
		if name := strings.TrimSpace(line); strings.HasPrefix(line, "lib") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	fmt.Println("vm: fetching", strings.Join(names, " "))
	debs, done, err := download(ctx, dir, names...)
	if err != nil {
		return err
	}
	defer done()
	for _, deb := range debs {
		if _, err := output(ctx, "", "dpkg-deb", "-x", deb, tree); err != nil {
			return err
		}
	}
	return nil
}

// withParents puts each directory before what is in it, once.
func withParents(files []file) []file {
	var all []file
	made := map[string]bool{".": true}
	for _, f := range files {
		var up []string
		for dir := path.Dir(f.name); !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			up = append(up, dir)
		}
		slices.Reverse(up)
		for _, dir := range up {
			all = append(all, file{name: dir, mode: directory})
		}
		all = append(all, f)
	}
	return all
}

package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// payload is what a volume is to contain: files by their path in it.
type payload map[string]file

type file struct {
	data []byte
	mode fs.FileMode // permission bits
	// uid and gid own the file; -1 leaves it to the agent's user.
	uid, gid int
}

// newFile is owned by whoever the agent is, which is root on a node.
func newFile(data []byte, mode fs.FileMode) file {
	return file{data: data, mode: mode, uid: -1, gid: -1}
}

// rights are what a volume says of its files in common.
type rights struct {
	mode *int32
	user *int64
}

// check is apart from [rights.file] since these are wrong in a volume without files,
// too.
func (r rights) check() error {
	if _, err := fileMode(r.mode); err != nil {
		return fmt.Errorf("defaultMode: %w", err)
	}
	if _, err := fileOwner(r.user); err != nil {
		return fmt.Errorf("defaultUser: %w", err)
	}
	return nil
}

// file has the mode and the owner of its own item, or else those in common, or else
// 0644 and the agent's user.
func (r rights) file(data []byte, mode *int32, user *int64) (file, error) {
	own, err := fileMode(cmp.Or(mode, r.mode))
	if err != nil {
		return file{}, fmt.Errorf("mode: %w", err)
	}
	f := newFile(data, own)
	if f.uid, err = fileOwner(cmp.Or(user, r.user)); err != nil {
		return file{}, fmt.Errorf("user: %w", err)
	}
	return f, nil
}

func fileMode(mode *int32) (fs.FileMode, error) {
	if mode == nil {
		return 0o644, nil
	}
	if *mode < 0 || *mode > 0o777 {
		return 0, fmt.Errorf("%d must be a number between 0 and 0777 (octal), both inclusive", *mode)
	}
	return fs.FileMode(*mode), nil
}

func fileOwner(user *int64) (uid int, err error) {
	if user == nil {
		return -1, nil
	}
	if *user < 0 || *user > math.MaxInt32 {
		return 0, fmt.Errorf("%d must be between 0 and %d, inclusive", *user, math.MaxInt32)
	}
	return int(*user), nil
}

// The longest path of a file in a volume, and the longest name in it, in bytes.
const (
	maxPath = 4096
	maxName = 255
)

// cleanPath returns the path of a file inside a volume without needless slashes and
// dots, or why it can't be one. Names at the top that begin with two dots are the
// writer's own.
func cleanPath(p string) (string, error) {
	switch {
	case p == "":
		return "", errors.New("a path is required")
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("path %q: must not contain a zero byte", p)
	case len(p) > maxPath:
		return "", fmt.Errorf("path %.40q...: must be no more than %d bytes", p, maxPath)
	case path.IsAbs(p):
		return "", fmt.Errorf("path %q: must be a relative path", p)
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == ".." {
			return "", fmt.Errorf("path %q: must not contain '..'", p)
		}
		if len(name) > maxName {
			return "", fmt.Errorf("path %.40q...: a name in it must be no more than %d bytes", p, maxName)
		}
	}
	clean := path.Clean(p)
	if clean == "." {
		return "", fmt.Errorf("path %q: names no file", p)
	}
	if strings.HasPrefix(clean, "..") {
		return "", fmt.Errorf("path %q: must not start with '..'", p)
	}
	return clean, nil
}

// check finds paths that can't be in one volume together.
func (p payload) check() error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if clean, err := cleanPath(name); err != nil {
			return err
		} else if clean != name {
			return fmt.Errorf("path %q: write it as %q", name, clean)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := p[dir]; ok {
				return fmt.Errorf("path %q: %q is a file already", name, dir)
			}
		}
	}
	return nil
}

// top has the names that are visible in the volume's own directory.
func (p payload) top() map[string]bool {
	names := make(map[string]bool, len(p))
	for name := range p {
		first, _, _ := strings.Cut(name, "/")
		names[first] = true
	}
	return names
}

// dirs has the directories that the files need, parents first.
func (p payload) dirs() []string {
	all := map[string]bool{}
	for name := range p {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// forGroup lets the group read all files, as fsGroup asks of a read-only volume.
func (p payload) forGroup(gid int) {
	for name, f := range p {
		f.gid = gid
		f.mode |= groupFileRead
		p[name] = f
	}
}

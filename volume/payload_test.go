package volume

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	long := strings.Repeat("n", maxName)
	cases := []struct {
		in, want, problem string
	}{
		{"a", "a", ""},
		{"a/b.txt", "a/b.txt", ""},
		{"a//b/./c/", "a/b/c", ""},
		{"./a", "a", ""},
		{".hidden", ".hidden", ""},
		{"a/..b", "a/..b", ""},
		{"a..", "a..", ""},
		{long, long, ""},
		{"", "", "a path is required"},
		{"/etc/passwd", "", "must be a relative path"},
		{"..", "", "must not contain '..'"},
		{"a/../../b", "", "must not contain '..'"},
		{"a/..", "", "must not contain '..'"},
		{"..data", "", "must not start with '..'"},
		{"./..data/x", "", "must not start with '..'"},
		{"...", "", "must not start with '..'"},
		{".", "", "names no file"},
		{"a\x00b", "", "zero byte"},
		{long + "n", "", "no more than 255 bytes"},
		{"a/" + long + "n", "", "no more than 255 bytes"},
		{strings.Repeat("a/", maxPath/2) + "a", "", "no more than 4096 bytes"},
	}
	for _, c := range cases {
		got, err := cleanPath(c.in)
		if got != c.want || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("cleanPath(%.60q) = %.60q, %v; want %.60q, %q", c.in, got, err, c.want, c.problem)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"a", "a/../b", "..data", "./..", "a//b", "/", "\x00", "a/./..b/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := cleanPath(in)
		if err != nil {
			return
		}
		if again, err := cleanPath(got); err != nil || again != got {
			t.Errorf("cleanPath(%q) = %q, which becomes %q, %v", in, got, again, err)
		}
		top, _, _ := strings.Cut(got, "/")
		if got != path.Clean(got) || strings.HasPrefix(top, "..") || strings.HasPrefix(got, "/") {
			t.Errorf("cleanPath(%q) = %q", in, got)
		}
		if err := (payload{got: file{}}).check(); err != nil {
			t.Errorf("check refuses %q: %v", got, err)
		}
	})
}

func TestPathsThatExcludeEachOther(t *testing.T) {
	for _, p := range []payload{text("a", "", "a/b", ""), text("a/b", "", "a/b/c/d", ""), text("a//b", "")} {
		if err := p.check(); err == nil {
			t.Errorf("check accepts %v", p)
		}
	}
	if err := text("a/b", "", "a-b", "", "ab", "").check(); err != nil {
		t.Errorf("check = %v", err)
	}
}

func TestForGroup(t *testing.T) {
	p := payload{"a": newFile(nil, 0o600), "b": newFile(nil, 0o644), "c": newFile(nil, 0)}
	p.forGroup(77)
	for name, want := range map[string]fs.FileMode{"a": 0o640, "b": 0o644, "c": 0o440} {
		if f := p[name]; f.mode != want || f.gid != 77 {
			t.Errorf("%s: mode %o, group %d; want %o, 77", name, f.mode, f.gid, want)
		}
	}
}

func TestRights(t *testing.T) {
	const none = -1
	n := func(i int64) *int64 { return &i }
	m := func(i int32) *int32 { return &i }
	cases := []struct {
		name    string
		common  rights
		mode    *int32
		user    *int64
		want    string
		problem string
	}{
		{"nothing is said", rights{}, nil, nil, "0644 -1", ""},
		{"in common", rights{m(0o400), n(1000)}, nil, nil, "0400 1000", ""},
		{"the item counts", rights{m(0o400), n(1000)}, m(0o600), n(0), "0600 0", ""},
		{"the item's mode and the common owner", rights{nil, n(7)}, m(0), nil, "0000 7", ""},
		{"a mode with special bits", rights{}, m(0o1777), nil, "", "mode: 1023 must be"},
		{"a user below none", rights{nil, n(none)}, nil, nil, "", "user: -1 must be"},
		{"a user that the kernel does not have", rights{}, nil, n(1 << 31), "", "user: 2147483648 must be"},
	}
	for _, c := range cases {
		f, err := c.common.file([]byte("x"), c.mode, c.user)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.problem)
			}
			continue
		}
		if got := fmt.Sprintf("%04o %d", f.mode, f.uid); err != nil || got != c.want || f.gid != -1 {
			t.Errorf("%s: %s, group %d, %v, want %s", c.name, got, f.gid, err, c.want)
		}
	}
}

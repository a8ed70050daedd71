package keyring_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/keyring"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		name, key, image string
		want             bool
	}{
		{"a host is every image of that host", "reg.example", "reg.example/a/b:1", true},
		{"and of no other host", "reg.example", "other.example/a", false},
		{"nor of a host below it", "reg.example", "a.reg.example/a", false},
		{"nor of one above it", "a.reg.example", "reg.example/a", false},
		{"nor of one that ends alike", "reg.example", "badreg.example/a", false},
		{"hosts have no case", "Reg.Example", "reg.EXAMPLE/a", true},
		{"a digest is no part of the name", "reg.example/a", "reg.example/a@sha256:00", true},

		{"a port has to be equal", "reg.example:5000", "reg.example:5000/a", true},
		{"a key without port is not for a port", "reg.example", "reg.example:5000/a", false},
		{"a key with port is not for none", "reg.example:5000", "reg.example/a", false},
		{"ports are not globbed", "reg.example:*", "reg.example:5000/a", false},
		{"an address with a port", "127.0.0.1:5000", "127.0.0.1:5000/a", true},
		{"an IPv6 address", "[::1]", "[::1]/a", true},
		{"an IPv6 address with a port", "[::1]:5000", "[::1]:5000/a", true},
		{"another IPv6 address", "[::1]:5000", "[::2]:5000/a", false},
		{"localhost", "localhost", "localhost/a", true},

		{"a path is a beginning", "reg.example/team", "reg.example/team/app:1", true},
		{"of the text", "reg.example/te", "reg.example/team/app", true},
		{"a path that goes further does not match", "reg.example/team/app", "reg.example/team", false},
		{"another path does not match", "reg.example/other", "reg.example/team/app", false},
		{"paths are not globbed", "reg.example/*", "reg.example/team", false},
		{"a tag is no part of the path", "reg.example/a:1", "reg.example/a:1", false},

		{"a star is one label", "*.example", "reg.example/a", true},
		{"never two", "*.example", "a.reg.example/a", false},
		{"nor none", "*.example", "example/a", false},
		{"two stars are two labels", "*.*.example", "a.reg.example/a", true},
		{"a star in the middle", "a.*.example", "a.reg.example/a", true},
		{"a star at the end", "reg.*", "reg.example/a", true},
		{"a star in a label", "app*.reg.example", "app1.reg.example/a", true},
		{"in the right label only", "app*.reg.example", "web.reg.example/a", false},
		{"a star alone is a host of one label", "*", "localhost/a", true},
		{"and not of two", "*", "reg.example/a", false},
		{"a wildcard with port and path", "*.reg.example:5000/team", "a.reg.example:5000/team/app", true},
		{"a star in the image is nothing special", "reg.example", "*.example/a", false},

		{"a URL", "https://reg.example", "reg.example/a", true},
		{"a URL without TLS", "http://reg.example", "reg.example/a", true},
		{"a URL that shouts", "HTTPS://reg.example", "reg.example/a", true},
		{"a slash at the end", "https://reg.example/", "reg.example/a", true},
		{"version 1 of the API", "https://reg.example/v1/", "reg.example/a", true},
		{"version 2 of the API", "https://reg.example:5000/v2/", "reg.example:5000/a", true},
		{"without its slash", "https://reg.example/v1", "reg.example/a", true},
		{"without its scheme", "reg.example/v2/", "reg.example/a", true},
		{"with a path below it", "https://reg.example/v2/team", "reg.example/team/app", true},
		{"and another path", "https://reg.example/v2/team", "reg.example/other", false},
		{"v1 may be somebody's name", "reg.example/v1", "reg.example/a", false},
		{"and is then found", "reg.example/v1", "reg.example/v1/a", true},
		{"space around it", " reg.example\n", "reg.example/a", true},

		{"the default registry", "docker.io", "busybox", true},
		{"the default registry's official images", "docker.io/library", "busybox:1", true},
		{"are not those of users", "docker.io/library", "user/app:1", false},

		{"no key", "", "reg.example/a", false},
		{"a scheme alone", "https://", "reg.example/a", false},
		{"a path alone", "/team", "reg.example/team", false},
		{"a port that is none", "reg.example:x", "reg.example/a", false},
		{"a port that is too large", "reg.example:70000", "reg.example:70000/a", false},
		{"a user in the URL", "https://me@reg.example", "reg.example/a", false},
		{"a broken pattern", "[a.example", "a.example/a", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := keyring.Match(tt.key, tt.image); got != tt.want {
				t.Errorf("Match(%q, %q) = %v, want %v", tt.key, tt.image, got, tt.want)
			}
		})
	}
}

func TestRepository(t *testing.T) {
	for image, want := range map[string]string{
		"busybox":                           "docker.io/library/busybox",
		"busybox:1@sha256:00":               "docker.io/library/busybox",
		"user/app:1":                        "docker.io/user/app",
		"docker.io/busybox":                 "docker.io/library/busybox",
		"index.docker.io/user/app":          "docker.io/user/app",
		"reg.example/app:1":                 "reg.example/app",
		"reg.example:5000/team/app@sha256:": "reg.example:5000/team/app",
		"reg.example:5000/app":              "reg.example:5000/app",
		"localhost/app:1":                   "localhost/app",
		"HOST/app":                          "HOST/app",
		"[::1]:5000/app:1":                  "[::1]:5000/app",
	} {
		if got := keyring.Repository(image); got != want {
			t.Errorf("Repository(%q) = %q, want %q", image, got, want)
		}
	}
}

// A wildcard may never widen what a key is for beyond its number of labels, nor
// another port.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{
		{"*.example", "reg.example/a"}, {"https://reg.example:5000/v2/x", "reg.example:5000/x/y:1"},
		{"[::1]:1", "[::1]:1/a"}, {"*", "a"}, {"", ""}, {"docker.io", "busybox"}, {"[", "["}, {"a:b:c", "a:b/c"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, key, image string) {
		repository := keyring.Repository(image)
		if keyring.Repository(repository) != repository && !strings.ContainsAny(repository, "@") {
			// What is left after the first cut may itself look like a tag, but only
			// for references that are none.
			if strings.Count(image, ":") < 2 && !strings.Contains(image, "//") {
				t.Errorf("Repository(%q) = %q, which is not its own", image, repository)
			}
		}
		if !keyring.Match(key, image) {
			return
		}
		domain, _, _ := strings.Cut(repository, "/")
		bare := strings.TrimSpace(key)
		if i := strings.Index(bare, "://"); i >= 0 {
			bare = bare[i+3:]
		}
		host, _, _ := strings.Cut(bare, "/")
		if strings.Count(host, ".") != strings.Count(domain, ".") {
			t.Errorf("Match(%q, %q): a wildcard crossed a label", key, image)
		}
		if strings.HasSuffix(domain, ":5000") != strings.HasSuffix(host, ":5000") {
			t.Errorf("Match(%q, %q): another port", key, image)
		}
	})
}

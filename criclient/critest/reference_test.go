package critest

import (
	"strings"
	"testing"
)

func TestFullReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	tests := []struct{ ref, want string }{
		{"busybox", "docker.io/library/busybox:latest"},
		{"busybox:1", "docker.io/library/busybox:1"},
		{"team/app", "docker.io/team/app:latest"},
		{"localhost/app", "localhost/app:latest"},
		{"localhost:5000/app", "localhost:5000/app:latest"},
		{"reg.example/a/b/c:v1", "reg.example/a/b/c:v1"},
		{"app@" + digest, "docker.io/library/app@" + digest},
		{"app:1@" + digest, "docker.io/library/app@" + digest},
		{"", ""}, {"a b", ""}, {"app@", ""}, {"app@md5:1", ""}, {"app@" + digest + "@x", ""}, {"App", ""}, {"app:", ""}, {"localhost/", ""}, {":1", ""},
	}
	for _, tt := range tests {
		got, err := fullReference(tt.ref)
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("fullReference(%q) = %q, %v; want %q", tt.ref, got, err, tt.want)
		}
	}
}

// A reference written out is a reference, and means the same.
func FuzzFullReference(f *testing.F) {
	for _, ref := range []string{"busybox", "localhost:5000/a/b:1", "a@sha256:00", "::", "/", "@"} {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		full, err := fullReference(ref)
		if err != nil {
			return
		}
		again, err := fullReference(full)
		if err != nil || again != full {
			t.Errorf("fullReference(%q) = %q, and of that %q, %v", ref, full, again, err)
		}
		if repository(full) == "" {
			t.Errorf("repository(%q) is empty", full)
		}
	})
}

package podspec_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podspec"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for in, want := range map[string]string{
		"":            "",
		"plain":       "plain",
		"$(A)":        "1",
		"x$(A)y$(A)":  "x1y1",
		"$(B)":        "$(A)",
		"$(EMPTY)":    "",
		"$(NONE)":     "$(NONE)",
		"$()":         "$()",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$1",
		"$$":          "$",
		"$":           "$",
		"$(A":         "$(A",
		"$(A$(A)":     "$(A$(A)",
		"$A ${A} `A`": "$A ${A} `A`",
		"100%$":       "100%$",
		"$(A) $(B$$":  "1 $(B$",
	} {
		if got := podspec.Expand(in, vars); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestExpandIsBounded(t *testing.T) {
	vars := map[string]string{"BIG": strings.Repeat("x", podspec.MaxExpanded/2)}
	many := strings.Repeat("$(BIG)", 1000)
	got := podspec.Expand(many, vars)
	if want := vars["BIG"] + vars["BIG"] + many[:998*len("$(BIG)")]; got != want {
		t.Errorf("1000 references to half the bound are %d bytes, want %d", len(got), len(want))
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$(", "$", "$(A)$(B", "()$"} {
		f.Add(s, "A", "v")
	}
	f.Fuzz(func(t *testing.T, s, name, value string) {
		got := podspec.Expand(s, map[string]string{name: value})
		if !strings.Contains(s, "$") && got != s {
			t.Errorf("Expand(%q) = %q without a dollar sign", s, got)
		}
		escaped := strings.ReplaceAll(s, "$", "$$")
		if got := podspec.Expand(escaped, map[string]string{name: value}); got != s {
			t.Errorf("Expand(%q) = %q, want %q: all of it is escaped", escaped, got, s)
		}
	})
}

package server

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Check is one named part of the node's health. Healthy returns nil when well.
type Check struct {
	Name    string
	Healthy func() error
}

// Ping is the check that passes whenever a request can be answered at all.
func Ping() Check { return Check{Name: "ping", Healthy: func() error { return nil }} }

// Healthz serves /healthz, which asks every check, and /healthz/NAME, which asks
// one. The query parameter exclude (repeatable) leaves a check out; verbose
// lists them. The summary withholds reasons, since it is often open to anyone;
// the check's own path tells.
func Healthz(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		name := strings.Trim(strings.TrimPrefix(r.URL.Path, "/healthz"), "/")
		if name == "" {
			summary(w, r, checks)
			return
		}
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		if err := checks[i].Healthy(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	})
}

func summary(w http.ResponseWriter, r *http.Request, checks []Check) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var lines bytes.Buffer
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := c.Healthy(); err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
	}
	unknown := slices.DeleteFunc(slices.Clone(excluded), func(n string) bool {
		return slices.ContainsFunc(checks, func(c Check) bool { return c.Name == n })
	})
	if len(unknown) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %q\n", unknown)
	}
	if failed {
		http.Error(w, lines.String()+"healthz check failed", http.StatusInternalServerError)
		return
	}
	if query.Has("verbose") {
		w.Write(lines.Bytes()) //nolint:errcheck // the client has gone
		fmt.Fprintln(w, "healthz check passed")
		return
	}
	fmt.Fprint(w, "ok")
}

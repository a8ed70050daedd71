package house_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write deps.txt of every package")

// dependencies returns, for each package of the module, what it drags in without
// the standard library: this module's packages first. One system speaks for all,
// so that the files are the same wherever they are written.
var dependencies = sync.OnceValues(func() (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Deps", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	type pkg struct {
		ImportPath string
		Standard   bool
		Deps       []string
	}
	standard := map[string]bool{}
	all := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		standard[p.ImportPath] = p.Standard
		if strings.HasPrefix(p.ImportPath, module+"/") {
			all[p.ImportPath] = p.Deps
		}
	}
	for p, deps := range all {
		deps = slices.DeleteFunc(deps, func(d string) bool { return standard[d] })
		slices.SortFunc(deps, func(a, b string) int {
			if ours := strings.HasPrefix(a, module+"/"); ours != strings.HasPrefix(b, module+"/") {
				if ours {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		all[p] = deps
	}
	return all, nil
})

func allDependencies(t *testing.T) map[string][]string {
	t.Helper()
	all, err := dependencies()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

func TestBudgets(t *testing.T) {
	for p, deps := range allDependencies(t) {
		room, _ := roomOf(p)
		if p != module+"/"+room && plan[room].floor != top {
			continue // a part of a room that only its users pay for
		}
		theirs := 0
		for _, d := range deps {
			if !strings.HasPrefix(d, module+"/") {
				theirs++
			}
		}
		if budget := plan[room].budget; theirs > budget {
			t.Errorf("%s drags in %d packages of other modules, its budget is %d; see its deps.txt", p, theirs, budget)
		}
	}
}

func TestDeps(t *testing.T) {
	for p, deps := range allDependencies(t) {
		name := filepath.Join("..", filepath.FromSlash(strings.TrimPrefix(p, module+"/")), "deps.txt")
		var want strings.Builder
		for _, d := range deps {
			want.WriteString(d + "\n")
		}
		if *update {
			if err := os.WriteFile(name, []byte(want.String()), 0o644); err != nil {
				t.Error(err)
			}
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Errorf("%v; write it with: go generate ./house", err)
			continue
		}
		if string(got) == want.String() {
			continue
		}
		had := strings.Fields(string(got))
		for _, d := range deps {
			if !slices.Contains(had, d) {
				t.Errorf("%s drags in %s, which its deps.txt does not list; if that is meant: go generate ./house", p, d)
			}
		}
		for _, d := range had {
			if !slices.Contains(deps, d) {
				t.Errorf("%s no longer needs %s; tell its deps.txt: go generate ./house", p, d)
			}
		}
	}
}

package house_test

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageIsInThePlan(t *testing.T) {
	built := map[string]bool{}
	for _, f := range allFiles(t) {
		if f.room == "" || built[f.room] {
			continue
		}
		built[f.room] = true
		if r, ok := plan[f.room]; !ok {
			t.Errorf("%s: room %s is not in the plan; give it a floor in house/plan_test.go", f.path, f.room)
		} else if r.planned {
			t.Errorf("%s: room %s is built; drop planned from its line in house/plan_test.go and give it a budget", f.path, f.room)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		if !plan[name].planned && !built[name] {
			t.Errorf("room %s of the plan has no Go files", name)
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.test || f.room == "" {
			continue
		}
		here := plan[f.room]
		for _, imported := range f.imports {
			name, ours := roomOf(imported)
			if !ours || name == f.room {
				continue
			}
			there := plan[name]
			switch {
			case here.floor == top:
			case there.floor == beside:
				t.Errorf("%s imports %s, which stands beside the house; only programs may", f.path, name)
			case here.floor == beside:
				t.Errorf("%s imports %s; %s stands beside the house and needs no room", f.path, name, f.room)
			case there.floor == here.floor:
				t.Errorf("%s imports %s on its own floor %d; declare the interface you need instead", f.path, name, here.floor)
			case there.floor > here.floor:
				t.Errorf("%s (floor %d) imports %s above it (floor %d); send an event or return a value instead",
					f.path, here.floor, name, there.floor)
			}
		}
	}
}

// Fakes are for tests, and for a program that says so.
func TestRoomsDoNotNeedFakes(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.test || plan[f.room].floor == top {
			continue
		}
		for _, imported := range f.imports {
			if strings.HasPrefix(imported, module) && strings.HasSuffix(imported, "test") {
				t.Errorf("%s imports %s outside a test", f.path, imported)
			}
		}
	}
}

// k8s.io/kubernetes is not published as a library. Comparison with the real
// kubelet has a module of its own.
func TestNobodyImportsTheKubelet(t *testing.T) {
	for _, f := range allFiles(t) {
		for _, imported := range f.imports {
			if imported == "k8s.io/kubernetes" || strings.HasPrefix(imported, "k8s.io/kubernetes/") {
				t.Errorf("%s imports %s", f.path, imported)
			}
		}
	}
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mod, []byte("k8s.io/kubernetes ")) {
		t.Error("go.mod requires k8s.io/kubernetes")
	}
}

package house_test

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

const maxDocLines = 40

// rooms calls check with the files of each room's own package, without programs.
func rooms(t *testing.T, check func(name string, files []*file)) {
	dirs := byDir(t)
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		if !strings.Contains(name, "/") && plan[name].floor != top {
			check(name, dirs[name])
		}
	}
}

func TestEveryRoomSaysWhatItIsFor(t *testing.T) {
	rooms(t, func(name string, files []*file) {
		i := slices.IndexFunc(files, func(f *file) bool { return f.path == name+"/doc.go" })
		if i < 0 {
			t.Errorf("%s/doc.go is missing: it says what the room takes in, gives out and owns, and who its neighbours are", name)
			return
		}
		doc := files[i].syntax.Doc.Text()
		if !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s/doc.go: the package comment does not begin with Package %s", name, name)
		}
		last := -1
		for _, label := range []string{"In:", "Out:", "Owns:", "Rooms:"} {
			at := strings.Index(doc, "  - "+label+" ")
			if at < last || at < 0 {
				t.Errorf("%s/doc.go: label %q is missing or out of order (In, Out, Owns, Rooms)", name, label)
			}
			last = at
		}
		if n := files[i].lines; n > maxDocLines {
			t.Errorf("%s/doc.go has %d lines; a stranger reads %d", name, n, maxDocLines)
		}
	})
}

func TestEveryPackageHasOneComment(t *testing.T) {
	for dir, files := range byDir(t) {
		comments := 0
		for _, f := range files {
			if !f.test && f.syntax.Doc != nil {
				comments++
			}
		}
		if comments != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, comments)
		}
	}
}

func TestTheTourNamesEveryRoom(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.path != "doc.go" {
			continue
		}
		doc := f.syntax.Doc.Text()
		rooms(t, func(name string, _ []*file) {
			if name != "house" && !strings.Contains(doc, "["+module+"/"+name+"]") {
				t.Errorf("doc.go does not lead to %s", name)
			}
		})
		return
	}
	t.Error("the root doc.go is missing")
}

func TestEveryRoomHasAnExample(t *testing.T) {
	rooms(t, func(name string, files []*file) {
		if name == "house" {
			return
		}
		for _, f := range files {
			for _, decl := range f.syntax.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && f.test && strings.HasPrefix(fn.Name.Name, "Example") && isRun(f, fn) {
					return
				}
			}
		}
		t.Errorf("%s has no Example with an // Output: comment, so nobody can try the room in a minute", name)
	})
}

// isRun reports whether go test runs the example: it has an output to compare.
func isRun(f *file, fn *ast.FuncDecl) bool {
	for _, group := range f.syntax.Comments {
		text := strings.ToLower(strings.TrimSpace(group.Text()))
		if fn.Body.Pos() < group.Pos() && group.End() < fn.Body.End() &&
			(strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
			return true
		}
	}
	return false
}

func TestWhatRunsIsCheckedForLeaks(t *testing.T) {
	for dir, files := range byDir(t) {
		runs, checked := "", false
		for _, f := range files {
			for _, decl := range f.syntax.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if ok && !f.test && fn.Name.Name == "Run" && takesContext(fn) {
					runs = f.at(fn)
				}
			}
			checked = checked || f.test && calls(f, "goleak", "VerifyTestMain")
		}
		if runs != "" && !checked && plan[files[0].room].floor != top {
			t.Errorf("%s: %s has a Run, but no test calls goleak.VerifyTestMain", runs, dir)
		}
	}
}

func takesContext(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List
	if len(params) == 0 {
		return false
	}
	sel, ok := params[0].Type.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Context"
}

// calls reports whether the file calls pkg.name.
func calls(f *file, pkg, name string) bool {
	found := false
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		found = found || selects(n, pkg, name)
		return !found
	})
	return found
}

// selects reports whether n is the expression pkg.name of an imported package.
func selects(n ast.Node, pkg, name string) bool {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(sel.Sel.Name, name) {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && x.Obj == nil
}

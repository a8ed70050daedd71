package house_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

const (
	maxFileLines    = 500 // the aim is 400
	maxFuncLines    = 80  // the aim is 60
	maxMinimalLines = 150
)

// A name that says nothing collects what has no place.
func TestNamesSaySomething(t *testing.T) {
	hollow := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base", "types", "interfaces"}
	for dir := range byDir(t) {
		if slices.Contains(hollow, path.Base(dir)) {
			t.Errorf("%s: name the package by what it is or does", dir)
		}
	}
	for _, f := range allFiles(t) {
		name := path.Base(f.path)
		for _, h := range hollow {
			if name == h+".go" || name == h+"_test.go" {
				t.Errorf("%s: name the file by the verb or noun it is about", f.path)
			}
		}
	}
}

func TestFilesAndFunctionsCanBeReadAtOnce(t *testing.T) {
	minimal := 0
	for _, f := range allFiles(t) {
		if f.test {
			continue
		}
		if f.dir == "examples/minimal" {
			minimal += f.lines
		}
		if f.lines > maxFileLines {
			t.Errorf("%s has %d lines, want at most %d", f.path, f.lines, maxFileLines)
		}
		for _, decl := range f.syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line
			if lines > maxFuncLines {
				t.Errorf("%s: %s has %d lines, want at most %d", f.at(fn), fn.Name.Name, lines, maxFuncLines)
			}
		}
	}
	if minimal > maxMinimalLines {
		t.Errorf("examples/minimal has %d lines; it promises an agent in %d", minimal, maxMinimalLines)
	}
}

// Two hundred nodes fit in one process: importing a package does nothing, and only
// a program may end the process or have flags.
func TestNoProcessGlobals(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.test {
			continue
		}
		program := plan[f.room].floor == top
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init; do it in New", f.at(fn))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch {
			case program:
			case selects(n, "os", "Exit"), selects(n, "log", "Fatal"), selects(n, "klog", "Fatal"), selects(n, "klog", "Exit"):
				t.Errorf("%s ends the process; return an error", f.at(n))
			case selects(n, "flag", "String"), selects(n, "flag", "Bool"), selects(n, "flag", "Int"), selects(n, "flag", "Duration"),
				selects(n, "pflag", "String"), selects(n, "pflag", "Bool"), selects(n, "pflag", "Int"), selects(n, "pflag", "Duration"):
				t.Errorf("%s registers a process-wide flag; take a Config field", f.at(n))
			case selects(n, "prometheus", "MustRegister"), selects(n, "prometheus", "DefaultRegisterer"), selects(n, "promauto", ""):
				t.Errorf("%s uses the process-wide metrics registry; take a Hook", f.at(n))
			case selects(n, "http", "HandleFunc"), selects(n, "http", "DefaultServeMux"):
				t.Errorf("%s uses the process-wide mux; make your own", f.at(n))
			}
			return true
		})
	}
}

// A package variable is a table, a sentinel or a compiled expression. One that
// changes is a global.
func TestPackageVariablesDoNotChange(t *testing.T) {
	for dir, files := range byDir(t) {
		files = slices.DeleteFunc(slices.Clone(files), func(f *file) bool { return f.test })
		vars := map[string]bool{}
		for _, f := range files {
			for _, name := range packageVars(f) {
				vars[name] = true
			}
		}
		for _, f := range files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				for _, id := range assigned(n) {
					if vars[id.Name] && !isLocal(f, id) {
						t.Errorf("%s changes the package variable %s of %s; keep it in the value that New returns", f.at(id), id.Name, dir)
					}
				}
				return true
			})
		}
	}
}

func packageVars(f *file) []string {
	var names []string
	for _, decl := range f.syntax.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.VAR {
			continue
		}
		for _, spec := range gen.Specs {
			for _, id := range spec.(*ast.ValueSpec).Names {
				if id.Name != "_" {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// assigned returns the variables that a statement writes to, also through an
// index, a field or a pointer.
func assigned(n ast.Node) []*ast.Ident {
	var targets []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			targets = n.Lhs
		}
	case *ast.IncDecStmt:
		targets = []ast.Expr{n.X}
	}
	var ids []*ast.Ident
	for _, e := range targets {
		for e != nil {
			switch x := e.(type) {
			case *ast.Ident:
				ids, e = append(ids, x), nil
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			default:
				e = nil
			}
		}
	}
	return ids
}

// isLocal reports whether the identifier is declared inside a function. The parser
// resolves those; what it can't resolve is the package's.
func isLocal(f *file, id *ast.Ident) bool {
	return id.Obj != nil && f.syntax.Scope.Lookup(id.Name) != id.Obj
}

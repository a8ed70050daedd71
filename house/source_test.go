package house_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/kubeletkit/kubeletkit"

// file is one Go file of the module, for every system.
type file struct {
	path    string // from the root, with slashes
	dir     string // "." for the root
	room    string // first part of dir; "" for the root
	test    bool
	lines   int
	syntax  *ast.File
	imports []string
	fset    *token.FileSet
}

// at says where a node is, as file:line.
func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// sources returns all Go files of this module. Modules inside it have their own
// rules, as have folders that the go command does not look at.
var sources = sync.OnceValues(func() ([]*file, error) {
	var files []*file
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(name, d.Name())
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		f, err := parse(fset, name)
		files = append(files, f)
		return err
	})
	return files, err
})

func enter(name, base string) error {
	if name == ".." {
		return nil
	}
	if base == "testdata" || base == "bin" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func parse(fset *token.FileSet, name string) (*file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel("..", name)
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	f := &file{
		path: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"),
		lines: bytes.Count(text, []byte("\n")), syntax: syntax, fset: fset,
	}
	if f.dir != "." {
		f.room, _, _ = strings.Cut(f.dir, "/")
	}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

func allFiles(t *testing.T) []*file {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file found: the tests of the house look at nothing")
	}
	return files
}

// byDir groups the files of every package but the root's.
func byDir(t *testing.T) map[string][]*file {
	dirs := map[string][]*file{}
	for _, f := range allFiles(t) {
		if f.room != "" {
			dirs[f.dir] = append(dirs[f.dir], f)
		}
	}
	return dirs
}

// roomOf returns the room of a package of this module.
func roomOf(imported string) (room string, ours bool) {
	rest, ours := strings.CutPrefix(imported, module+"/")
	room, _, _ = strings.Cut(rest, "/")
	return room, ours
}

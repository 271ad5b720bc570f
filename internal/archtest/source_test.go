package archtest

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
	"testing"
)

const module = "github.com/ibex-run/ibex"

// source is one file of the module.
type source struct {
	name string // below the module's root, with slashes
	text []byte
	fset *token.FileSet
	ast  *ast.File // nil unless it is Go
}

func (s *source) dir() string  { return path.Dir(s.name) }
func (s *source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// isTool reports code that never ships: what tests and packagers run.
func (s *source) isTool() bool {
	return s.isTest() || under(s.name, "tests/...") || under(s.name, "contrib/...") ||
		under(s.name, "internal/ktest/...") || under(s.name, "internal/archtest/...") ||
		under(s.name, "internal/seccomp/gen/...") || under(s.name, "internal/seccomp/seccomptest/...")
}

func (s *source) isGenerated() bool { return s.ast != nil && ast.IsGenerated(s.ast) }

func (s *source) line(at token.Pos) int { return s.fset.Position(at).Line }

// imports gives the import paths of a file by the name they have in it.
func (s *source) imports() map[string]string {
	byName := map[string]string{}
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = p
	}
	return byName
}

// under reports whether name is what pattern says; a final /... includes
// everything below, and "..." is everything.
func under(name, pattern string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	return name == pattern
}

// parse makes a source of text, for the module and for the tests of the rules.
func parse(t *testing.T, name string, text []byte) *source {
	t.Helper()
	s := &source{name: name, text: text, fset: token.NewFileSet()}
	if strings.HasSuffix(name, ".go") {
		f, err := parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parse %s: %v", name, err)
		}
		s.ast = f
	}
	return s
}

// load reads the module: every text file that is not built, downloaded or below
// testdata. Modules nested in it are not part of it, but their texts are read.
func load(t *testing.T) []*source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []*source
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if e.IsDir() {
			switch {
			case name == "bin", name == "out", e.Name() == ".git", e.Name() == "testdata":
				return fs.SkipDir
			}
			return nil
		}
		if !e.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) < 0 {
			all = append(all, parse(t, filepath.ToSlash(name), text))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	return all
}

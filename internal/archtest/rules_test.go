package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// complaint is one broken rule, as a compiler would print it.
func complaint(s *source, line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.name, line, fmt.Sprintf(format, args...))
}

// imports holds the import table.
func imports(s *source) []string {
	if s.ast == nil || s.isTest() {
		return nil
	}
	var own *row
	for i := range table {
		if under(s.dir(), table[i].pkg) {
			own = &table[i]
			break
		}
	}
	if own == nil {
		return []string{complaint(s, 1, "package %s has no row in the import table: decide where it stands", s.dir())}
	}
	var bad []string
	for _, spec := range s.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		allowed := own.outside
		if rest, ok := strings.CutPrefix(p, module+"/"); ok {
			p, allowed = rest, own.ours
		} else if !strings.Contains(strings.Split(p, "/")[0], ".") {
			continue // standard library
		}
		ok := false
		for _, pattern := range allowed {
			ok = ok || under(p, pattern)
		}
		if testOnly := p == "internal/ktest" || under(p, "tests/..."); testOnly && !s.isTool() {
			ok = false
		}
		if !ok {
			bad = append(bad, complaint(s, s.line(spec.Pos()), "%s may not import %s: %s", own.pkg, p, own.why))
		}
	}
	return bad
}

// forbiddenStd are standard packages that what ships does without.
var forbiddenStd = map[string]string{
	"os/exec":  "processes are started by exec, from a plan",
	"log":      "only shim logs, through containerd/log",
	"log/slog": "only shim logs, through containerd/log",
	"regexp":   "a parser by hand is shorter to read here and costs no start-up time",
	"C":        "what ships is static and has no cgo",
	"net/http": "a shim has no web server",
}

func stdImports(s *source) []string {
	if s.ast == nil || s.isTool() {
		return nil
	}
	var bad []string
	for _, spec := range s.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		if why, no := forbiddenStd[p]; no && !allowed(s, p) {
			bad = append(bad, complaint(s, s.line(spec.Pos()), "import %s: %s", p, why))
		}
	}
	return bad
}

// unsafeFiles: package unsafe only where the file's name says so.
func unsafeFiles(s *source) []string {
	if s.ast == nil || s.isTest() || strings.HasSuffix(s.name, "_unsafe.go") {
		return nil
	}
	for _, spec := range s.ast.Imports {
		if spec.Path.Value == `"unsafe"` && !s.isGenerated() {
			return []string{complaint(s, s.line(spec.Pos()), "import unsafe: only in a file whose name ends in _unsafe.go")}
		}
	}
	return nil
}

// linknames: the fork hooks of the Go runtime, in one file.
func linknames(s *source) []string {
	if s.ast == nil {
		return nil
	}
	var bad []string
	for _, group := range s.ast.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:linkname") && !allowed(s, "go:linkname") {
				bad = append(bad, complaint(s, s.line(c.Pos()), "go:linkname: only in exec/plan/fork_unsafe.go"))
			}
		}
	}
	return bad
}

// inits: what runs before main costs every start of a shim.
func inits(s *source) []string {
	if s.ast == nil || s.isTool() || s.isGenerated() {
		return nil
	}
	var bad []string
	for _, d := range s.ast.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !allowed(s, "init") {
			bad = append(bad, complaint(s, s.line(f.Pos()), "func init: it costs every start of a shim"))
		}
	}
	return bad
}

// The lengths that nobody needs to exceed.
const (
	maxLines     = 500
	maxTestLines = 800
	maxFuncLines = 80
)

func lengths(s *source) []string {
	if s.ast == nil || s.isGenerated() {
		return nil
	}
	limit := maxLines
	if s.isTest() {
		limit = maxTestLines
	}
	if n := bytes.Count(s.text, []byte("\n")); n > limit {
		return []string{complaint(s, n, "%d lines, at most %d: split it by what it is about", n, limit)}
	}
	return nil
}

// functions: what fills more than a screen does more than one thing.
func functions(s *source) []string {
	if s.ast == nil || s.isTest() || s.isGenerated() {
		return nil
	}
	var bad []string
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFuncLines && !allowed(s, "func "+f.Name.Name) {
			bad = append(bad, complaint(s, s.line(f.Pos()), "func %s has %d lines, at most %d", f.Name.Name, n, maxFuncLines))
		}
	}
	return bad
}

// outsideText are references to what a reader of this repository does not have.
var outsideText = regexp.MustCompile(`\.\./shared\b|/work/(main|shared)\b|(?i:\bissue 0*[0-9]{1,2}\b)`)

// unfinished marks work that should be a fact in docs/ or an issue.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)

func texts(s *source) []string {
	if strings.HasPrefix(s.name, "internal/archtest/") || s.name == "go.sum" {
		return nil
	}
	var bad []string
	for i, line := range bytes.Split(s.text, []byte("\n")) {
		if m := outsideText.Find(line); m != nil {
			bad = append(bad, complaint(s, i+1, "%q: the repository speaks of itself alone", m))
		}
		if m := unfinished.Find(line); m != nil && s.ast != nil {
			bad = append(bad, complaint(s, i+1, "%s: do it, or state the limit as a fact", m))
		}
	}
	return bad
}

// walkCalls calls f for every mention of an imported package's name.
func walkCalls(s *source, f func(pkg, name string, at token.Pos)) {
	byName := s.imports()
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				if pkg := byName[x.Name]; pkg != "" {
					f(pkg, sel.Sel.Name, sel.Pos())
				}
			}
		}
		return true
	})
}

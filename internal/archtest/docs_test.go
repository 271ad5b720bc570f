package archtest

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// link is a link of Markdown to a file of this repository.
var link = regexp.MustCompile(`\]\(([^):#]+)(#[^)]*)?\)`)

// deadLinks lists the links of s to files that are not in have.
func deadLinks(s *source, have map[string]bool) []string {
	if !strings.HasSuffix(s.name, ".md") {
		return nil
	}
	var bad []string
	for i, line := range strings.Split(string(s.text), "\n") {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if to := path.Join(s.dir(), m[1]); !have[to] {
				bad = append(bad, complaint(s, i+1, "link to %s: no such file", to))
			}
		}
	}
	return bad
}

// files gives the names of sources and of the directories that they are in.
func files(all []*source) map[string]bool {
	have := map[string]bool{}
	for _, s := range all {
		for n := s.name; n != "."; n = path.Dir(n) {
			have[n] = true
		}
	}
	return have
}

func TestLinksOfTheDocumentationLeadSomewhere(t *testing.T) {
	all := load(t)
	have := files(all)
	for _, s := range all {
		for _, c := range deadLinks(s, have) {
			t.Error(c)
		}
	}
	s := parse(t, "docs/x.md", []byte("see [a](../README.md#b), [b](missing.md) and [c](https://example.com/)"))
	if got := deadLinks(s, map[string]bool{"README.md": true}); len(got) != 1 || !strings.Contains(got[0], "docs/missing.md") {
		t.Errorf("deadLinks = %q; want one, of docs/missing.md", got)
	}
}

// refusals lists what the runtime refuses by name: the arguments of
// unsupported, and of errors that wrap ErrUnsupported.
func refusals(s *source) []string {
	if s.ast == nil || s.isTest() || !under(s.name, "container/...") {
		return nil
	}
	var names []string
	ast.Inspect(s.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		lit, ok := call.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, _ := strconv.Unquote(lit.Value)
		if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "unsupported" {
			names = append(names, text)
		}
		for _, arg := range call.Args[1:] {
			if id, ok := arg.(*ast.Ident); ok && id.Name == "ErrUnsupported" {
				name, _, _ := strings.Cut(text, ": %w")
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

func TestWhatIsRefusedIsDocumented(t *testing.T) {
	var doc string
	refused := map[string]bool{}
	for _, s := range load(t) {
		if s.name == "docs/conformance.md" {
			_, doc, _ = strings.Cut(string(s.text), "## Refused")
			doc, _, _ = strings.Cut(doc, "##")
		}
		for _, r := range refusals(s) {
			refused[r] = !strings.Contains(r, "%") // those are part of a longer text
		}
	}
	if len(refused) == 0 {
		t.Fatal("no refusal found in container: the test looks for the wrong thing")
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(doc, -1) {
		documented[m[1]] = true
		if !refused[m[1]] {
			t.Errorf("docs/conformance.md says that `%s` is refused; no code does that by this name", m[1])
		}
	}
	for r, literal := range refused {
		if literal && !documented[r] {
			t.Errorf("docs/conformance.md does not say that `%s` is refused", r)
		}
	}
}

package archtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// rules are all that is checked, with a source that breaks each.
var rules = []struct {
	name   string
	check  func(*source) []string
	file   string // the name of a source that breaks the rule
	text   string
	wants  string // part of the complaint
	passes string // a name under which the same text is fine, if there is one
}{
	{"imports point one way", imports, "shim/x.go", "package shim\nimport _ \"github.com/ibex-run/ibex/exec\"", "shim may not import exec", "container/x.go"},
	{"v1 and v2 never meet", imports, "cgroups/v1/x.go", "package cgroup1\nimport _ \"github.com/ibex-run/ibex/cgroups/v2\"", "never meet", "container/x.go"},
	{"the runtime does not know containerd", imports, "container/x.go", "package container\nimport _ \"github.com/containerd/log\"", "no containerd", "shim/x.go"},
	{"what ships does not import test helpers", imports, "container/x.go", "package container\nimport _ \"github.com/ibex-run/ibex/internal/ktest\"", "may not import internal/ktest", "container/x_test.go"},
	{"every package has a row", imports, "newthing/x.go", "package newthing", "has no row", ""},
	{"os/exec is for tests", stdImports, "container/x.go", "package container\nimport _ \"os/exec\"", "started by exec", "tests/integration/x.go"},
	{"no regexp in what ships", stdImports, "cgroups/x.go", "package cgroups\nimport _ \"regexp\"", "start-up time", "cgroups/x_test.go"},
	{"no cgo", stdImports, "exec/x.go", "package exec\nimport \"C\"", "cgo", ""},
	{"unsafe is in the file's name", unsafeFiles, "exec/x.go", "package exec\nimport _ \"unsafe\"", "_unsafe.go", "exec/x_unsafe.go"},
	{"linknames stand in one file", linknames, "exec/x_unsafe.go", "package exec\nimport _ \"unsafe\"\n//go:linkname a b\nfunc a()", "go:linkname", "exec/plan/fork_unsafe.go"},
	{"no init functions", inits, "shim/x.go", "package shim\nfunc init() {}", "func init", "shim/x_test.go"},
	{"files are short", lengths, "exec/x.go", "package exec\n" + strings.Repeat("\n", maxLines), "at most 500", "exec/x_test.go"},
	{"test files are not endless", lengths, "exec/x_test.go", "package exec\n" + strings.Repeat("\n", maxTestLines), "at most 800", ""},
	{"functions fit on a screen", functions, "exec/x.go", "package exec\nfunc f() {" + strings.Repeat("\n", maxFuncLines) + "}", "func f has 81 lines", "exec/x_test.go"},
	{"texts speak of the repository alone", texts, "docs/x.md", "see .." + "/shared/page.md", "of itself alone", ""},
	{"nothing is left for later", texts, "exec/x.go", "package exec // TO" + "DO: more", "do it", "docs/x.md"},
	{"paths are opened by pathsafe: os", rawPaths, "container/x.go", "package container\nimport \"os\"\nvar _, _ = os.OpenFile(\"a\", 0, 0)", "os.OpenFile follows a path", "container/x_test.go"},
	{"paths are opened by pathsafe: system calls", rawPaths, "shim/x.go", "package shim\nimport \"golang.org/x/sys/unix\"\nvar _, _ = unix.Openat2(0, \"a\", nil)", "unix.Openat2 follows a path", "pathsafe/x.go"},
	{"paths are opened by pathsafe: under another name", rawPaths, "shim/x.go", "package shim\nimport u \"golang.org/x/sys/unix\"\nvar _ = u.Mkdirat(0, \"a\", 0)", "unix.Mkdirat follows a path", "internal/fd/x.go"},
	{"kernel file systems are not spelled out", rawPaths, "container/x.go", "package container\nconst c = \"/proc/self/fd\"", "use the handles", "internal/probe/x.go"},
}

// TestTheModuleKeepsItsRules is the one that fails when somebody breaks one.
func TestTheModuleKeepsItsRules(t *testing.T) {
	clear(used)
	all := load(t)
	have := map[string]bool{}
	for _, s := range all {
		have[s.name] = true
		for _, check := range []func(*source) []string{imports, stdImports, unsafeFiles, linknames, inits, lengths, functions, texts, rawPaths} {
			for _, c := range check(s) {
				t.Error(c)
			}
		}
	}
	for _, e := range exceptions {
		if !have[e.file] {
			t.Errorf("allow_test.go: there is no %s", e.file)
			continue
		}
		for _, w := range e.what {
			if !used[[2]string{e.file, w}] {
				t.Errorf("allow_test.go: %s does not need its exception for %s any more", e.file, w)
			}
		}
		if e.why == "" {
			t.Errorf("allow_test.go: %s: no reason given", e.file)
		}
	}
}

func TestEveryRuleFires(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			got := r.check(parse(t, r.file, []byte(r.text)))
			if len(got) != 1 || !strings.Contains(got[0], r.wants) || !strings.HasPrefix(got[0], r.file+":") {
				t.Errorf("%s: complaints %q; want one with %q", r.file, got, r.wants)
			}
			if r.passes == "" {
				return
			}
			if got := r.check(parse(t, r.passes, []byte(r.text))); len(got) != 0 {
				t.Errorf("%s: complaints %q; want none", r.passes, got)
			}
		})
	}
}

func TestTheTableHasNoCycle(t *testing.T) {
	// A row allows what is below it. If a may import b, b may not import a.
	for _, a := range table {
		for _, b := range table {
			if a.pkg < b.pkg && may(a, b.pkg) && may(b, a.pkg) {
				t.Errorf("%s and %s may import each other", a.pkg, b.pkg)
			}
		}
	}
}

func may(r row, pkg string) bool {
	if under(r.pkg, "tests/...") || under(r.pkg, "contrib/...") || strings.HasSuffix(r.pkg, "/...") {
		return false
	}
	return slices.ContainsFunc(r.ours, func(p string) bool { return under(pkg, p) })
}

// The linter holds the same table, with its own wording; every package of one is in the other.
func TestTheLinterKnowsTheSamePackages(t *testing.T) {
	text, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range table {
		base := strings.TrimSuffix(r.pkg, "/...")
		if strings.HasPrefix(base, "internal/") || base == "tests" || base == "contrib" || strings.HasPrefix(base, "cmd/") {
			continue
		}
		if want := fmt.Sprintf("**/%s/*.go", base); !strings.Contains(string(text), want) {
			t.Errorf(".golangci.yml has no depguard rule for %s", want)
		}
	}
}

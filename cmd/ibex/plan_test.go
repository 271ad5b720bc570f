package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec/plan"
)

func TestAPlanShowsTheStepsAndStartsNothing(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	c.change(func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/false"}}}
		s.Linux.CgroupsPath = "/ibex-cli-test/never-made"
		s.Process.Env = append(s.Process.Env, "SECRET=x1y2")
	})
	out := c.must("plan", c.dir)
	for _, want := range []string{
		"# cgroup     /ibex-cli-test/never-made\n", "# program    /bin/sleep\n", "# hook       createRuntime[0] /bin/false\n",
		"\n# mounts[0] (/proc)\n", "pivot_root", "SET_NO_NEW_PRIVS 1", `execve_buf b`, `["sleep" "1000"]`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the plan", want)
		}
	}
	if strings.Contains(out, "x1y2") || !strings.Contains(c.must("plan", "--full", c.dir), "x1y2") {
		t.Error("the value of a variable: want it with --full only")
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/ibex-cli-test/never-made")
	more, _ := filepath.Glob("/sys/fs/cgroup/ibex-cli-test/never-made")
	if left = append(left, more...); len(left) > 0 {
		t.Errorf("a plan made %v", left)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "ibex.json")); err == nil {
		t.Error("a plan left a record")
	}
	terse := c.must("plan", "--terse", c.dir)
	if p, err := plan.Parse(terse); err != nil || p.String() != terse {
		t.Errorf("--terse is not what Parse reads: %v", err)
	}
}

func TestAPlanFailsAsTheStartWould(t *testing.T) {
	c := newCLI(t, "no-such-program")
	for _, args := range [][]string{{"plan", c.dir}, {"run", "a"}} {
		if _, said, code := c.run(args...); code != 127 || !strings.Contains(said, "executable file not found in $PATH") {
			t.Errorf("%v: exit code %d, %q", args, code, said)
		}
	}
	c.change(func(s *specs.Spec) {
		s.Process.Args = []string{"true"}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace, Path: "/no/where"})
	})
	if _, said, code := c.run("plan", c.dir); code != 1 || !strings.Contains(said, "linux.namespaces (cgroup)") {
		t.Errorf("exit code %d, %q", code, said)
	}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"plan"}, "one BUNDLE"},
		{[]string{"plan", "--exec", "a"}, "no command"},
		{[]string{"plan", "--exec", "nobody", "--", "true"}, "ibex ps lists"},
	} {
		if _, said, code := c.run(tt.args...); code != 1 || !strings.Contains(said, tt.says) {
			t.Errorf("%v: exit code %d, %q; want %q in it", tt.args, code, said, tt.says)
		}
	}
}

func TestAPlanOfAnExec(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	c.must("run", "-d", "a")
	before := c.must("ps", "-f", "json", "a")
	out := c.must("plan", "--exec", "a", "--", "ls", "-l")
	for _, want := range []string{"# program    /bin/ls\n", "setns fd=init", "clone PARENT", `execve "/bin/ls" ["ls" "-l"]`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the plan", want)
		}
	}
	if after := c.must("ps", "-f", "json", "a"); after != before {
		t.Errorf("processes %s before, %s after", before, after)
	}
	if _, said, code := c.run("plan", "--exec", "a", "--", "nowhere"); code != 127 {
		t.Errorf("exit code %d, %q", code, said)
	}
}

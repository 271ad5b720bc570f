package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestPsSaysWhatTheKernelDoes(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	status := func() string {
		t.Helper()
		var all []struct{ Namespace, ID, Status string }
		if err := json.Unmarshal([]byte(c.must("ps", "-f", "json")), &all); err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Namespace == "" && e.ID == "a" {
				return e.Status
			}
		}
		return "none"
	}
	steps := []struct {
		args []string
		want string
	}{
		{nil, "none"},
		{[]string{"create", "a"}, "created"},
		{[]string{"start", "a"}, "running"},
		{[]string{"pause", "a"}, "paused"},
		{[]string{"resume", "a"}, "running"},
	}
	for _, s := range steps {
		if s.args != nil {
			c.must(s.args...)
		}
		if got := status(); got != s.want {
			t.Errorf("after %v: %s, want %s", s.args, got, s.want)
		}
	}
	c.must("kill", "a", "KILL")
	c.await("a", "stopped")
	if got := status(); got != "stopped" {
		t.Errorf("after the end: %s", got)
	}
	c.must("delete", "a")
	if got := status(); got != "none" {
		t.Errorf("after the deletion: %s", got)
	}
	table := c.must("ps")
	if !strings.HasPrefix(table, "NAMESPACE") {
		t.Errorf("table: %q", table)
	}
}

func TestStatsOfABusyContainer(t *testing.T) {
	c := newCLI(t, "sh", "-c", "while :; do :; done")
	c.change(func(s *specs.Spec) {
		limit, pids := int64(64<<20), int64(17)
		s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
		s.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	})
	c.must("run", "-d", "a")
	c.change(func(s *specs.Spec) {
		s.Process.Args = []string{"sleep", "1000"}
		s.Linux.CgroupsPath += "-idle"
	})
	c.must("run", "-d", "idle")
	var all []struct {
		ID     string
		CPU    float64 `json:"cpu_percent"`
		Memory uint64  `json:"memory_bytes"`
		Limit  uint64  `json:"memory_limit_bytes"`
		Pids   uint64
		Most   uint64 `json:"pids_limit"`
	}
	if err := json.Unmarshal([]byte(c.must("stats", "--once", "--json", "a", "idle")), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].ID != "a" || all[1].ID != "idle" {
		t.Fatalf("%+v: want the busy one first", all)
	}
	// It has a processor for itself, unless the machine is very busy.
	if b := all[0]; b.CPU < 10 || b.CPU > 150 || b.Memory == 0 || b.Memory > b.Limit || b.Limit != 64<<20 || b.Pids != 1 || b.Most != 17 {
		t.Errorf("%+v", b)
	}
	if all[1].CPU > 5 {
		t.Errorf("idle: %+v", all[1])
	}
	table := c.must("stats", "--once", "--sort", "name", "a", "idle")
	lines := strings.Split(table, "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], "  a ") || !strings.Contains(lines[1], "64.0M") || !strings.Contains(lines[2], "idle") {
		t.Errorf("table:\n%s", table)
	}
	for _, args := range [][]string{{"stats", "--once", "--sort", "colour"}, {"stats", "--interval", "1ms"}, {"stats", "--once", "nobody"}} {
		if _, said, code := c.run(args...); code != 1 || said == "" {
			t.Errorf("%v: exit code %d, %q", args, code, said)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	c := newCLI(t, "true")
	file := filepath.Join(c.dir, "node.toml")
	check := func(text string) (out, said string, code int) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return c.run("config", "check", file)
	}
	if out, said, code := check("ExecTreeKill = true\ncontrolled_userns_caps = [\"CAP_KILL\"]\n"); code != 0 || !strings.Contains(out, "CAP_KILL") {
		t.Errorf("exit code %d, %s%s", code, out, said)
	}
	if _, said, code := check("LogSpoool = 1\n"); code != 1 || !strings.Contains(said, "line 1: LogSpoool: unknown key") || !strings.Contains(said, "configuration.md") {
		t.Errorf("exit code %d, %s", code, said)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, said, code := c.run("config", "check", file); code != 1 {
		t.Errorf("a file that anybody may write: exit code %d, %s", code, said)
	}
	if _, said, code := c.run("config", "check", file+"x"); code != 1 {
		t.Errorf("a file that is not there: exit code %d, %s", code, said)
	}
}

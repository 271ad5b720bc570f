package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// TestTheCommandLineSeesTheContainersOfShims looks at a container of containerd's,
// whose state directory is not the usual one, from outside.
func TestTheCommandLineSeesTheContainersOfShims(t *testing.T) {
	notIncumbent(t, "its containers have no record that ibex reads")
	dir := t.TempDir()
	if err := ctd.Build(dir, "./cmd/ibex"); err != nil {
		t.Fatal(err)
	}
	ibex := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(dir, "ibex"), args...).Output()
		if err != nil {
			t.Fatalf("ibex %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	b := newBox(t, boxSpec{})
	b.create()
	state := func() string {
		t.Helper()
		var all []struct {
			Namespace, ID, Status string
			PID                   uint32
		}
		if err := json.Unmarshal([]byte(ibex("ps", "-f", "json")), &all); err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.ID == b.id && e.Namespace == b.d.Namespace {
				if e.PID != b.task.Pid() {
					t.Errorf("ps says PID %d, containerd %d", e.PID, b.task.Pid())
				}
				return e.Status
			}
		}
		return "none"
	}
	if got := state(); got != "created" {
		t.Errorf("before the start: %s", got)
	}
	b.start()
	if got := state(); got != "running" {
		t.Errorf("after the start: %s", got)
	}
	if err := b.task.Pause(b.ctx); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != "paused" {
		t.Errorf("paused: %s", got)
	}
	if err := b.task.Resume(b.ctx); err != nil {
		t.Fatal(err)
	}
	var all []struct {
		ID     string
		Memory uint64 `json:"memory_bytes"`
	}
	out := ibex("stats", "--once", "--json", "--interval", "200ms", "-n", b.d.Namespace, b.id)
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0].ID != b.id || all[0].Memory == 0 {
		t.Errorf("stats: %v\n%s", err, out)
	}
	if out := ibex("plan", "--exec", b.id, "--", "sleep", "1"); !strings.Contains(out, `execve "/bin/sleep" ["sleep" "1"]`) {
		t.Errorf("plan:\n%s", out)
	}
}

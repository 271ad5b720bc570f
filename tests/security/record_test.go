package security

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/ktest"
)

// A creation that is killed right after it wrote its record leaves the name of a
// cgroup that it may not have got, since it is another container's. What cleans
// up must not take that one for its own.
func TestCleaningUpNeverKillsAnotherContainer(t *testing.T) {
	b := newBox(t, "/bin/sleep", "1000")
	c := b.start()
	state, err := os.MkdirTemp(scratch.Dir, "state-")
	must(t, err)
	defer os.RemoveAll(state)
	record, err := json.Marshal(map[string]any{
		"version": 1, "id": "cut-short", "bundle": b.dir, "cgroupsPath": b.spec.Linux.CgroupsPath, "created": "2020-01-01T00:00:00Z",
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(state, "ibex.json"), record, 0o600))
	if _, _, err := container.Cleanup(t.Context(), state, b.dir, "another"); err == nil {
		t.Error("a record was taken for that of another id")
	}
	if _, _, err := container.Cleanup(t.Context(), state, b.dir, "cut-short"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(state, "ibex.json")); err == nil {
		t.Error("the record is still there")
	}
	if s := c.Init().Status(); s != container.Running || unix.Kill(c.Init().PID(), 0) != nil {
		t.Errorf("the other container: %v", s)
	}
	if len(ktest.CgroupDirs(b.spec.Linux.CgroupsPath)) == 0 {
		t.Error("its cgroup is gone")
	}
}

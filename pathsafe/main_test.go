package pathsafe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ibex-run/ibex/internal/fd"
)

// children are the programs that a test runs in a process of its own, because
// they change it for good. They print what went wrong and return.
var children = map[string]func() error{}

const childEnv = "IBEX_PATHSAFE_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := children[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	removeLeftovers()
	fd.StartTrace()
	code := m.Run()
	if code == 0 {
		for _, leak := range fd.Leaked() {
			fmt.Fprintln(os.Stderr, "leaked:", leak)
			code = 1
		}
	}
	os.Exit(code)
}

const groupPrefix = "ibex-test-pathsafe-"

// removeLeftovers removes the cgroups of earlier runs that crashed.
func removeLeftovers() {
	mounts, err := MountInfo()
	if err != nil {
		return
	}
	for _, m := range mounts {
		if m.FSType != "cgroup" && m.FSType != "cgroup2" {
			continue
		}
		d, err := OpenHierarchy(m)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		entries, _ := d.List(1 << 16)
		for _, e := range entries {
			pid, ours := strings.CutPrefix(e.Name, groupPrefix)
			pid, _, _ = strings.Cut(pid, "-")
			if _, err := os.Stat("/proc/" + pid); ours && err != nil { // not a run under way
				_ = d.RemoveCgroupTree(ctx, MustName(e.Name))
			}
		}
		cancel()
		_ = d.Close()
	}
}

// runChild runs one of children and fails the test with what it printed.
func runChild(t *testing.T, name string, attr *syscall.SysProcAttr, args ...string) string {
	t.Helper()
	if _, ok := children[name]; !ok {
		t.Fatalf("no child %q", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name, "TMPDIR="+tempDir(t))
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child %s: %v\n%s", name, err, out)
	}
	return string(out)
}

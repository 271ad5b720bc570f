package cgroup1

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
)

// Test groups are called ibex-test-v1-PID-N, so that a later run can tell whose
// they are.
const prefix = "ibex-test-v1-"

var (
	layoutOnce sync.Once
	theLayout  *cgroups.Layout
	layoutErr  error
	serial     atomic.Int64
)

// layout gives the host's hierarchies, after removing what crashed runs left.
func layout(t testing.TB) *cgroups.Layout {
	t.Helper()
	ktest.RequireRoot(t)
	layoutOnce.Do(func() {
		if theLayout, layoutErr = cgroups.Detect(); layoutErr == nil {
			layoutErr = sweep(theLayout)
		}
	})
	if layoutErr != nil {
		t.Fatal(layoutErr)
	}
	if theLayout.Mode == cgroups.V2 {
		t.Skip("this host has no cgroup v1 hierarchies")
	}
	return theLayout
}

func sweep(l *cgroups.Layout) error {
	for _, h := range hierarchies(l) {
		entries, err := h.Dir.List(1 << 16)
		if err != nil {
			return err
		}
		for _, e := range entries {
			owner, _, _ := strings.Cut(strings.TrimPrefix(e.Name, prefix), "-")
			pid, err := strconv.Atoi(owner)
			if !strings.HasPrefix(e.Name, prefix) || err != nil || unix.Kill(pid, 0) == nil {
				continue
			}
			p, err := cgroups.ParsePath(e.Name, "")
			if err != nil {
				return err
			}
			g, err := Open(l, p)
			if errors.Is(err, cgroups.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err = errors.Join(g.Kill(ctx), g.Delete(ctx))
			cancel()
			g.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// newPath gives a path that no other test uses, and removes its first component
// at the end.
func newPath(t testing.TB, below ...string) cgroups.Path {
	t.Helper()
	l := layout(t)
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), serial.Add(1))
	t.Cleanup(func() { remove(t, l, name) })
	return parsePath(t, path.Join(append([]string{"/", name}, below...)...))
}

func parsePath(t testing.TB, s string) cgroups.Path {
	t.Helper()
	p, err := cgroups.ParsePath(s, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func remove(t testing.TB, l *cgroups.Layout, name string) {
	t.Helper()
	g, err := Open(l, parsePath(t, name))
	if errors.Is(err, cgroups.ErrNotFound) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := errors.Join(g.Kill(ctx), g.Delete(ctx)); err != nil {
		t.Error(err)
	}
}

func create(t testing.TB, res *specs.LinuxResources) *Group {
	t.Helper()
	return createAt(t, newPath(t), res)
}

func createAt(t testing.TB, p cgroups.Path, res *specs.LinuxResources) *Group {
	t.Helper()
	g, err := Create(layout(t), p, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// text reads a file of the group through its path, apart from the code under
// test.
func text(t testing.TB, g *Group, controller, file string) string {
	t.Helper()
	b, err := os.ReadFile(filePath(t, g, controller, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func filePath(t testing.TB, g *Group, controller, file string) string {
	t.Helper()
	for _, m := range ktest.CgroupMounts() {
		if m.Has(controller) {
			return filepath.Join(m.Dir, g.path.Rel().String(), file)
		}
	}
	t.Skipf("this host has no v1 controller %s", controller)
	return ""
}

func wantText(t testing.TB, g *Group, controller, file, want string) {
	t.Helper()
	if got := text(t, g, controller, file); got != want {
		t.Errorf("%s = %q, want %q", file, got, want)
	}
}

// start runs a program in the group and kills it at the end of the test.
func start(t testing.TB, g *Group, name string, args ...string) *exec.Cmd {
	t.Helper()
	// It waits for a line before it becomes the program, so that whatever the
	// program does is done in the group.
	cmd := exec.Command("sh", append([]string{"-c", `read x; exec "$@"`, "sh", name}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = g.thawAll() // a frozen process does not die; the group may be closed
		if m := g.member("freezer"); m != nil {
			_ = os.WriteFile(filePath(t, g, "freezer", "freezer.state"), []byte(thawed), 0)
		}
		_ = cmd.Wait()
	})
	join(t, g, cmd.Process.Pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func join(t testing.TB, g *Group, pid int) {
	t.Helper()
	if err := g.Add(pid); err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func ptr[T any](v T) *T { return &v }

package cgroup2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
)

// Test groups are called ibex-test-v2-PID-N, so that a later run can tell whose
// they are. The tests want a cgroup2 mount, nothing more: those of a controller
// are skipped where there is none, as on a hybrid host.
const prefix = "ibex-test-v2-"

var (
	layoutOnce sync.Once
	theLayout  *cgroups.Layout
	mount      string
	layoutErr  error
	serial     atomic.Int64
)

func layout(t testing.TB) *cgroups.Layout {
	t.Helper()
	ktest.RequireRoot(t)
	layoutOnce.Do(func() {
		if theLayout, layoutErr = cgroups.Detect(); layoutErr != nil || theLayout.Unified == nil {
			return
		}
		for _, m := range ktest.CgroupMounts() {
			if m.V2 && mount == "" {
				mount = m.Dir
			}
		}
		layoutErr = sweep(theLayout)
	})
	if layoutErr != nil {
		t.Fatal(layoutErr)
	}
	if theLayout.Unified == nil {
		t.Skip("this host has no cgroup2 mount")
	}
	return theLayout
}

// sweep removes what crashed runs left.
func sweep(l *cgroups.Layout) error {
	entries, err := l.Unified.List(1 << 16)
	if err != nil {
		return err
	}
	for _, e := range entries {
		owner, _, _ := strings.Cut(strings.TrimPrefix(e.Name, prefix), "-")
		pid, err := strconv.Atoi(owner)
		if !strings.HasPrefix(e.Name, prefix) || err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if err := kill(l, e.Name); err != nil {
			return err
		}
	}
	return nil
}

func kill(l *cgroups.Layout, name string) error {
	p, err := cgroups.ParsePath(name, "")
	if err != nil {
		return err
	}
	g, err := Open(l, p)
	if errors.Is(err, cgroups.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(g.Kill(ctx), g.Delete(ctx))
}

func newPath(t testing.TB, below ...string) cgroups.Path {
	t.Helper()
	l := layout(t)
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), serial.Add(1))
	t.Cleanup(func() {
		if err := kill(l, name); err != nil {
			t.Error(err)
		}
	})
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

// require skips a test of a controller that the hierarchy does not have.
func require(t testing.TB, names ...string) {
	t.Helper()
	have, err := controllers(layout(t).Unified)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range names {
		if !slices.Contains(have, c) {
			t.Skipf("the cgroup2 hierarchy of this host has no controller %s (it has %v)", c, have)
		}
	}
}

func file(g *Group, name string) string { return filepath.Join(mount, g.path.Rel().String(), name) }

// text reads a file of the group through its path, apart from the code under
// test.
func text(t testing.TB, g *Group, name string) string {
	t.Helper()
	b, err := os.ReadFile(file(g, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func wantText(t testing.TB, g *Group, name, want string) {
	t.Helper()
	if got := text(t, g, name); got != want {
		t.Errorf("%s = %q, want %q", name, got, want)
	}
}

// command makes a process that is born in the group, and is killed at the end.
func command(t testing.TB, g *Group, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.IntoFD()}
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func start(t testing.TB, g *Group, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, g, name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func readable(t testing.TB, fd, ms int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, ms)
		if err == nil {
			return n > 0
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/cgroups/systemd"
	cgroup2 "github.com/ibex-run/ibex/cgroups/v2"
	"github.com/ibex-run/ibex/internal/ktest"
)

var serial atomic.Int64

// manager connects to systemd, or skips the test.
func manager(t *testing.T) *dbus.Conn {
	t.Helper()
	ktest.RequireRoot(t)
	ktest.RequireCgroupV2(t)
	conn, err := dbus.NewSystemdConnectionContext(t.Context())
	if err != nil {
		t.Skipf("PID 1 of this host is not systemd: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func newPath(t *testing.T) cgroups.Path {
	t.Helper()
	p, err := cgroups.ParsePath(fmt.Sprintf("ibextest-deep.slice:ibex:test-%d-%d", os.Getpid(), serial.Add(1)), "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start makes a scope with a sleeping process and its group.
func start(t *testing.T, p cgroups.Path, res *specs.LinuxResources) (*systemd.Group, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	scope, err := systemd.Start(within(t, 20*time.Second), p, systemd.Options{PID: cmd.Process.Pid, Resources: res})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := scope.Stop(within(t, 20*time.Second)); err != nil {
			t.Error(err)
		}
	})
	l, err := cgroups.Detect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	inner, err := cgroup2.Adopt(l, p, res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inner.Close)
	return &systemd.Group{Inner: inner, Scope: scope}, cmd
}

func wantFile(t *testing.T, p cgroups.Path, name, want string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", p.Rel().String(), name))
	if got := strings.TrimSpace(string(b)); err != nil || got != want {
		t.Errorf("%s = %q, %v; want %q", name, got, err, want)
	}
}

func unitProperty(t *testing.T, conn *dbus.Conn, p cgroups.Path, kind, name string) any {
	t.Helper()
	u, _ := p.Unit()
	v, err := conn.GetUnitTypePropertyContext(t.Context(), u.Name, kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return v.Value.Value()
}

func limits(i int64) *specs.LinuxResources {
	limit, shares, quota, pids := 64<<20+i<<20, uint64(512), 33333+i, 50+i
	return &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &limit},
		CPU:    &specs.LinuxCPU{Shares: &shares, Quota: &quota},
		Pids:   &specs.LinuxPids{Limit: &pids},
	}
}

func TestAScopeIsWhereThePathSaysAndKeepsItsLimits(t *testing.T) {
	conn := manager(t)
	p := newPath(t)
	g, cmd := start(t, p, limits(0))
	if got := unitProperty(t, conn, p, "Scope", "ControlGroup"); got != "/"+p.Rel().String() {
		t.Errorf("systemd says %v, the path is %s", got, p.Rel())
	}
	if pids, err := g.Procs(); err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("Procs = %v, %v", pids, err)
	}
	check := func(memory, cpu, pids string, memoryMax uint64) {
		t.Helper()
		wantFile(t, p, "memory.max", memory)
		wantFile(t, p, "cpu.max", cpu)
		wantFile(t, p, "cpu.weight", "59")
		wantFile(t, p, "pids.max", pids)
		if got := unitProperty(t, conn, p, "Scope", "MemoryMax"); got != memoryMax {
			t.Errorf("MemoryMax is %v, want %d", got, memoryMax)
		}
	}
	check("67108864", "33333 100000", "50", 64<<20)
	if err := g.Set(limits(1)); err != nil {
		t.Fatal(err)
	}
	wantFile(t, p, "cpu.max", "33334 100000")
	if err := conn.ReloadContext(within(t, 60*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantFile(t, p, "memory.max", "68157440")
	wantFile(t, p, "pids.max", "51")
	// A child that is born there, with the device program of the group.
	child := exec.Command("dd", "if=/dev/kmsg", "of=/dev/null", "count=0")
	child.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.IntoFD()}
	if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), "not permitted") {
		t.Errorf("/dev/kmsg can be opened after a daemon-reload: %v, %s", err, out)
	}
	if err := errors.Join(g.Kill(within(t, 20*time.Second)), g.Delete(within(t, 20*time.Second)), g.Delete(within(t, 20*time.Second))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", p.Rel().String())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestAnActiveScopeIsNotTaken(t *testing.T) {
	manager(t)
	p := newPath(t)
	_, cmd := start(t, p, nil)
	_, err := systemd.Start(within(t, 20*time.Second), p, systemd.Options{PID: cmd.Process.Pid})
	if !errors.Is(err, cgroups.ErrBusy) {
		t.Errorf("Start = %v, want ErrBusy", err)
	}
}

// opencontainers/runc#3780
func TestTheNameOfAnOOMKilledScopeCanBeUsedAgain(t *testing.T) {
	manager(t)
	p := newPath(t)
	memory := int64(16 << 20)
	g, cmd := start(t, p, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}})
	eater := exec.Command("sh", "-c", `x=0123456789abcdef; while :; do x="$x$x"; done`)
	eater.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.IntoFD()}
	if err := eater.Run(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the process ended with %v, want an OOM kill", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := g.Delete(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	start(t, p, nil)
}

func TestWithoutSystemdTheErrorNamesIt(t *testing.T) {
	ktest.RequireRoot(t)
	if _, err := os.Stat("/run/systemd/private"); err == nil {
		t.Skip("PID 1 of this host is systemd")
	}
	_, err := systemd.Start(within(t, 5*time.Second), newPath(t), systemd.Options{PID: os.Getpid()})
	if !errors.Is(err, cgroups.ErrSystemd) || !strings.Contains(err.Error(), "systemd") {
		t.Errorf("Start = %v, want ErrSystemd", err)
	}
}

package cgroup1

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
)

func TestAGroupLivesFromCreateToDelete(t *testing.T) {
	g := create(t, &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20)},
		CPU:    &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](50000), Period: ptr[uint64](100000)},
		Pids:   &specs.LinuxPids{Limit: ptr[int64](20)},
	})
	wantText(t, g, "memory", "memory.limit_in_bytes", strconv.Itoa(64<<20))
	wantText(t, g, "cpu", "cpu.shares", "512")
	wantText(t, g, "cpu", "cpu.cfs_quota_us", "50000")
	wantText(t, g, "pids", "pids.max", "20")

	cmd := start(t, g, "sleep", "1000")
	pids, err := g.Procs()
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Fatalf("processes are %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	var s cgroups.Stats
	if err := g.Stat(&s); err != nil {
		t.Fatal(err)
	}
	if s.Pids.Current != 1 || s.Pids.Limit != 20 || s.Memory.Memory.Limit != 64<<20 {
		t.Errorf("statistics say %+v, memory limit %d", s.Pids, s.Memory.Memory.Limit)
	}
	if err := g.Kill(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("the process ended with %v, want SIGKILL", cmd.ProcessState)
	}
	if err := g.Delete(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if left := ktest.CgroupDirs(g.path.Rel().String()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := g.Delete(within(t, time.Second)); err != nil {
		t.Errorf("deleting again: %v", err)
	}
	if err := g.Stat(&s); !errors.Is(err, cgroups.ErrGone) {
		t.Errorf("Stat of a removed group = %v, want ErrGone", err)
	}
	if err := g.Set(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](5)}}); !errors.Is(err, cgroups.ErrGone) {
		t.Errorf("Set of a removed group = %v, want ErrGone", err)
	}
}

func TestCreateRefusesAGroupInUse(t *testing.T) {
	l := layout(t)
	for _, tt := range []struct {
		name string
		use  func(t *testing.T, g *Group)
	}{
		{"with a process", func(t *testing.T, g *Group) { start(t, g, "sleep", "1000") }},
		{"with a process below", func(t *testing.T, g *Group) {
			start(t, createAt(t, parsePath(t, g.path.Rel().String()+"/below"), nil), "sleep", "1000")
		}},
		{"frozen", func(t *testing.T, g *Group) {
			if err := g.Freeze(within(t, time.Second)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := create(t, nil)
			tt.use(t, g)
			_, err := Create(l, g.path, nil)
			if !errors.Is(err, cgroups.ErrBusy) || !strings.Contains(err.Error(), g.path.String()) {
				t.Errorf("Create = %v, want ErrBusy with the path", err)
			}
			if len(ktest.CgroupDirs(g.path.Rel().String())) != len(g.all()) {
				t.Error("the refusal removed a part of the group")
			}
		})
	}
	t.Run("empty is taken", func(t *testing.T) {
		g := create(t, nil)
		createAt(t, g.path, nil)
	})
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	p := newPath(t, "a", "b")
	_, err := Create(layout(t), p, &specs.LinuxResources{
		Unified: map[string]string{"memory.high": "1"},
	})
	if !errors.Is(err, cgroups.ErrNoController) {
		t.Errorf("Create = %v, want ErrNoController", err)
	}
	top, _, _ := strings.Cut(p.Rel().String(), "/")
	if left := ktest.CgroupDirs(top); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// A parent that was there before stays.
	parent := create(t, nil)
	if _, err := Create(layout(t), parsePath(t, parent.path.Rel().String()+"/x/y"), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](-2)},
	}); !errors.Is(err, cgroups.ErrInvalid) {
		t.Errorf("Create = %v, want ErrInvalid", err)
	}
	if left := ktest.CgroupDirs(parent.path.Rel().String() + "/x"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if len(ktest.CgroupDirs(parent.path.Rel().String())) == 0 {
		t.Error("the parent was removed")
	}
}

func TestASystemdPathNamesSystemd(t *testing.T) {
	p := parsePath(t, "ibex-test.slice:ibex:x")
	if _, err := Create(layout(t), p, nil); !errors.Is(err, cgroups.ErrSystemd) {
		t.Errorf("Create = %v, want ErrSystemd", err)
	}
	if left := ktest.CgroupDirs("ibex-test.slice:ibex:x"); len(left) > 0 {
		t.Errorf("made %v", left)
	}
}

func TestANewCpusetHasWhatItsParentHas(t *testing.T) {
	g := createAt(t, newPath(t, "a", "b"), nil)
	if text(t, g, "cpuset", "cpuset.cpus") == "" || text(t, g, "cpuset", "cpuset.mems") == "" {
		t.Error("the cpuset is empty, so no process can join")
	}
}

func TestFreezeStopsAndThawGoesOn(t *testing.T) {
	g := create(t, nil)
	start(t, g, "sh", "-c", "while :; do :; done")
	if err := g.Freeze(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantText(t, g, "freezer", "freezer.state", "FROZEN")
	before := text(t, g, "cpuacct", "cpuacct.usage")
	if after := text(t, g, "cpuacct", "cpuacct.usage"); after != before {
		t.Errorf("a frozen group used the CPU: %s, then %s", before, after)
	}
	if err := g.Thaw(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantText(t, g, "freezer", "freezer.state", "THAWED")
	ktest.Eventually(t, 5*time.Second, "the process runs again", func() error {
		if text(t, g, "cpuacct", "cpuacct.usage") == before {
			return errors.New("no CPU time was used")
		}
		return nil
	})
}

// A traced process that has stopped in the kernel cannot be frozen; a vfork
// parent waits unfreezably for its child on older kernels. A context that has
// ended stands for both.
func TestAFreezeThatDoesNotComeToAnEndIsUndone(t *testing.T) {
	g := create(t, nil)
	start(t, g, "sleep", "1000")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := g.Freeze(ctx)
	if err == nil {
		return // the kernel was faster than the context
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Freeze = %v, want context.Canceled", err)
	}
	wantText(t, g, "freezer", "freezer.state", "THAWED")
}

func TestKillReachesNestedFrozenGroups(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hybrid bool
	}{{"with cgroup.kill", true}, {"by freezing and signals", false}} {
		t.Run(tt.name, func(t *testing.T) {
			l := *layout(t)
			if tt.hybrid && l.Unified == nil {
				t.Skip("this host has no unified hierarchy beside version 1")
			}
			if !tt.hybrid {
				l.Unified, l.Mode = nil, cgroups.V1
			}
			p := newPath(t)
			g, err := Create(&l, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			a := start(t, g, "sleep", "1000")
			below, err := Create(&l, parsePath(t, p.Rel().String()+"/below"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer below.Close()
			b := start(t, below, "sleep", "1000")
			forks := start(t, g, "sh", "-c", "while :; do sleep 1000 & sleep 0.01; done")
			if err := below.Freeze(within(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := g.Freeze(within(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := g.Kill(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
			for _, cmd := range []interface{ Wait() error }{a, b, forks} {
				if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Errorf("a process ended with %v", err)
				}
			}
			if err := g.Delete(within(t, 10*time.Second)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A tenant with a writable cgroup mount may call a cgroup what the kernel takes,
// and must not keep its processes out of our sight by that.
func TestProcessesInOddlyNamedGroupsAreFound(t *testing.T) {
	g := create(t, nil)
	odd := "odd \t\x01\xff*name"
	for _, m := range g.all() {
		if err := unix.Mkdirat(m.dir.FD(), odd, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := start(t, g, "sleep", "1000")
	if err := os.WriteFile(filePath(t, g, "freezer", odd+"/cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Procs(); err != nil || len(pids) != 1 {
		t.Errorf("Procs = %v, %v; want one process", pids, err)
	}
	if err := errors.Join(g.Kill(within(t, 5*time.Second)), g.Delete(within(t, 5*time.Second))); err != nil {
		t.Error(err)
	}
}

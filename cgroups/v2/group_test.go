package cgroup2

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
)

func TestAGroupLivesFromCreateToDelete(t *testing.T) {
	g := create(t, nil)
	cmd := start(t, g, "sleep", "1000")
	pids, err := g.Procs()
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Fatalf("processes are %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	var s cgroups.Stats
	if err := g.Stat(&s); err != nil {
		t.Fatal(err)
	}
	if s.Version != 2 || s.Has&cgroups.HasCPU == 0 {
		t.Errorf("statistics are of version %d and have %b", s.Version, s.Has)
	}
	if err := g.Kill(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v, want SIGKILL", err)
	}
	if err := g.Delete(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file(g, "")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if err := g.Delete(within(t, time.Second)); err != nil {
		t.Errorf("deleting again: %v", err)
	}
	if err := g.Stat(&s); !errors.Is(err, cgroups.ErrGone) {
		t.Errorf("Stat of a removed group = %v, want ErrGone", err)
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
			if _, err := os.Stat(file(g, "")); err != nil {
				t.Errorf("the refusal removed the group: %v", err)
			}
		})
	}
	t.Run("empty is taken", func(t *testing.T) {
		g := create(t, nil)
		createAt(t, g.path, nil)
		if n := programs(t, g); n != 1 {
			t.Errorf("%d device programs, want 1", n)
		}
	})
}

func TestAFailedCreateLeavesNothing(t *testing.T) {
	p := newPath(t, "a", "b")
	_, err := Create(layout(t), p, &specs.LinuxResources{Unified: map[string]string{"nonsense.max": "1"}})
	if !errors.Is(err, cgroups.ErrNoController) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("Create = %v, want ErrNoController that names it", err)
	}
	top, _, _ := strings.Cut(p.Rel().String(), "/")
	if _, err := os.Stat(filepath.Join(mount, top)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestASystemdPathNamesSystemd(t *testing.T) {
	if _, err := Create(layout(t), parsePath(t, "ibex-test.slice:ibex:x"), nil); !errors.Is(err, cgroups.ErrSystemd) {
		t.Errorf("Create = %v, want ErrSystemd", err)
	}
}

func TestFreezeStopsAndThawGoesOn(t *testing.T) {
	g := create(t, nil)
	start(t, g, "sh", "-c", "while :; do :; done")
	if err := g.Freeze(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	usage := func() uint64 {
		var s cgroups.Stats
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
		return s.CPU.Usage
	}
	before := usage()
	if after := usage(); after != before {
		t.Errorf("a frozen group used the CPU: %d, then %d", before, after)
	}
	if err := g.Thaw(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	ktest.Eventually(t, 5*time.Second, "the process runs again", func() error {
		if usage() == before {
			return errors.New("no CPU time was used")
		}
		return nil
	})
}

func TestKillReachesNestedFrozenGroups(t *testing.T) {
	for _, tt := range []struct {
		name string
		kill func(g *Group) error
	}{
		{"with cgroup.kill", func(g *Group) error { return g.Kill(within(t, 10*time.Second)) }},
		{"by freezing and signals", func(g *Group) error {
			err := g.killWalk(within(t, 10*time.Second))
			return errors.Join(err, cgroups.WaitEvent(within(t, 10*time.Second), g.dir, cgroups.Populated, false))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := create(t, nil)
			a := start(t, g, "sleep", "1000")
			below := createAt(t, parsePath(t, g.path.Rel().String()+"/below"), nil)
			b := start(t, below, "sleep", "1000")
			forks := start(t, g, "sh", "-c", "while :; do sleep 1000 & sleep 0.01; done")
			if err := below.Freeze(within(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := tt.kill(g); err != nil {
				t.Fatal(err)
			}
			for _, cmd := range []interface{ Wait() error }{a, b, forks} {
				if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
					t.Errorf("a process ended with %v", err)
				}
			}
			if err := g.Delete(within(t, 10*time.Second)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOOMNeedsTheMemoryController(t *testing.T) {
	g := create(t, nil)
	_, err := g.OOMFD()
	if have := g.Controllers(); len(have) == 0 {
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("OOMFD without controllers = %v, want ENOENT", err)
		}
		return
	}
	require(t, "memory")
	if err != nil {
		t.Error(err)
	}
}

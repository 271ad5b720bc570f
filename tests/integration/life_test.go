package integration

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestAContainerLivesFromCreateToDelete(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}}).create()
	if s := b.status(); s != containerd.Created {
		t.Errorf("after create the status is %s", s)
	}
	if b.pid() == 0 {
		t.Error("no pid after create")
	}
	if b.out.String() != "" {
		t.Errorf("output before start: %q", b.out)
	}
	b.start()
	if code := b.wait(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if s := b.status(); s != containerd.Stopped {
		t.Errorf("after the exit the status is %s", s)
	}
	if code := b.delete(); code != 7 {
		t.Errorf("delete says %d, want 7", code)
	}
	if o, e := b.out.String(), b.err.String(); o != "out\n" || e != "err\n" {
		t.Errorf("output %q and %q", o, e)
	}
	b.wantEvents("create", "start", "exit 7", "delete")
}

func TestAContainerWithATerminalLives(t *testing.T) {
	t.Parallel()
	b, code := runBox(t, boxSpec{tty: true, args: []string{"sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo yes; exit 3"}})
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if out := b.out.String(); out != "/dev/console\r\nyes\r\n" && out != "/dev/pts/0\r\nyes\r\n" {
		t.Errorf("output %q", out)
	}
}

func TestExitCodesArriveWhole(t *testing.T) {
	t.Parallel()
	for _, code := range []uint32{0, 1, 125, 126, 127, 128, 255} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			if _, got := runBox(t, boxSpec{args: []string{"sh", "-c", fmt.Sprintf("exit %d", code)}}); got != code {
				t.Errorf("got %d", got)
			}
		})
	}
}

func TestADeletedIDCanBeUsedAgainAtOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"true"}})
	for range 3 {
		b.create().start()
		if code := b.wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		b.delete()
		b.task = nil
	}
}

func TestACreatedContainerIsKilledAndDeleted(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{}).create()
	b.kill(syscall.SIGKILL)
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	b.delete()
}

func TestDeleteOfARunningContainerIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	shim, err := b.d.Shim(b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	_, err = b.task.Delete(b.ctx)
	wantError(t, err, errdefs.ErrFailedPrecondition)
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

func TestASecondStartIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{null: true})
	err := b.task.Start(b.ctx)
	wantError(t, err, nil)
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

func TestPidsListsAllProcessesAndNamesExecs(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"}})
	b.out.waitFor(t, "up")
	e := b.startExec(execSpec{args: []string{"sleep", "1000"}, id: "listed"})
	infos, err := b.task.Pids(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	pids := map[uint32]bool{}
	named := false
	for _, p := range infos {
		pids[p.Pid] = true
		named = named || (p.Pid == e.p.Pid() && p.Info != nil && strings.Contains(string(p.Info.GetValue()), "listed"))
	}
	if len(infos) != 4 || len(pids) != 4 || !pids[b.task.Pid()] || !pids[e.p.Pid()] {
		t.Errorf("pids %v; init is %d, exec is %d", infos, b.task.Pid(), e.p.Pid())
	}
	if !named {
		t.Error("no process is named as the exec")
	}
}

// The exit of init ends every process of a private PID namespace; all exits are
// published, the execs' before init's.
//
// containerd/containerd#9719, containerd/containerd#8557
func TestExecsEndBeforeInit(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	var execs []*process
	for range 5 {
		execs = append(execs, b.startExec(execSpec{args: []string{"sleep", "1000"}}))
	}
	b.kill(syscall.SIGKILL)
	b.wait()
	for _, e := range execs {
		if code := e.wait(); code != 137 {
			t.Errorf("exec %s: exit code %d, want 137", e.id, code)
		}
	}
	have := events.wait(t, b.id, "exit 137")
	for _, e := range execs {
		wantOrder(t, have, "exec-added "+e.id, "exec-started "+e.id, "exit "+e.id+" 137", "exit 137")
	}
	for _, e := range execs {
		e.finish()
	}
	b.delete()
}

// opencontainers/runc#4040, containerd/containerd#3149
func TestAContainerInTheHostsPIDNamespaceLeavesNoProcess(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "setsid sleep 100000 & echo up; wait"},
		spec: []oci.SpecOpts{oci.WithHostNamespace(specs.PIDNamespace)},
	})
	b.out.waitFor(t, "up")
	e := b.startExec(execSpec{args: []string{"sleep", "100000"}})
	b.kill(syscall.SIGKILL)
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	if code := e.finish().code; code != 137 {
		t.Errorf("exec: exit code %d", code)
	}
	wantOrder(t, events.wait(t, b.id, "exit 137"), "exit "+e.id+" 137", "exit 137")
	b.delete()
}

// containerd/containerd#9719, containerd/containerd#10603: execs that start
// while init ends. Each either fails to start, or its exit comes before init's.
func TestExecsThatRaceWithTheEndOfInit(t *testing.T) {
	t.Parallel()
	for round := range 6 {
		b := startBox(t, boxSpec{null: true})
		var wg sync.WaitGroup
		var started sync.Map
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					p, err := b.tryExec(execSpec{args: []string{"sleep", "100000"}, id: fmt.Sprintf("w%d-%d", w, i)})
					if err != nil {
						return
					}
					if err := p.p.Start(b.ctx); err != nil {
						return
					}
					started.Store(p.id, true)
				}
			})
		}
		events.waitAny(t, b.id, "exec-started ", 3+round)
		b.kill(syscall.SIGKILL)
		if code := b.wait(); code != 137 {
			t.Errorf("exit code %d", code)
		}
		wg.Wait()
		have := events.wait(t, b.id, "exit 137")
		started.Range(func(id, _ any) bool {
			wantOrder(t, have, fmt.Sprintf("exec-started %s", id), fmt.Sprintf("exit %s 137", id), "exit 137")
			return true
		})
		if n := count(events.of(b.id), "exit 137"); n != 1 {
			t.Errorf("%d exits of init", n)
		}
		b.delete()
	}
}

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"

	"github.com/ibex-run/ibex/internal/ktest"
)

// reload gets the task again after containerd was restarted.
func (b *box) reload(attach cio.Attach) {
	b.t.Helper()
	events.follow(b.d)
	c, err := b.d.Client.LoadContainer(b.ctx, b.id)
	if err != nil {
		b.t.Fatal(err)
	}
	b.container = c
	if b.task, err = c.Task(b.ctx, attach); err != nil {
		b.t.Fatalf("load task: %v", err)
	}
	if b.exited, err = b.task.Wait(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

func TestAContainerOutlivesContainerd(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	b := startBox(t, boxSpec{daemon: d, args: []string{"probe", "signals"}})
	b.out.waitFor(t, "ready\n")
	running := b.startExec(execSpec{args: []string{"sleep", "100000"}, id: "across"})
	pid, shim := b.pid(), b.shimPID
	for _, end := range []func(){d.Stop, d.Kill} {
		end()
		if err := d.Restart(b.ctx); err != nil {
			t.Fatal(err)
		}
		b.reload(cio.NewAttach(cio.WithStreams(nil, b.out, b.err)))
		if b.pid() != pid || b.status() != containerd.Running {
			t.Errorf("pid %d, status %s; it was %d", b.pid(), b.status(), pid)
		}
		if out := b.ok("echo", "after"); out != "after\n" {
			t.Errorf("exec prints %q", out)
		}
		b.metrics()
		b.kill(syscall.SIGUSR1)
		b.out.waitFor(t, "signal 10\n")
	}
	p, err := b.task.LoadProcess(b.ctx, "across", nil)
	if err != nil {
		t.Fatalf("load exec: %v", err)
	}
	ch, err := p.Wait(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(b.ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st := <-ch; st.ExitCode() != 137 {
		t.Errorf("exec across the restarts: %d, %v", st.ExitCode(), st.Error())
	}
	if _, err := p.Delete(b.ctx); err != nil {
		t.Errorf("delete exec: %v", err)
	}
	running.p.IO().Close()
	b.kill(syscall.SIGQUIT)
	if code := b.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	events.wait(t, b.id, "exit 0")
	if b.shimPID != shim {
		t.Errorf("shim %d, was %d", b.shimPID, shim)
	}
	b.delete()
}

func TestAnExitWhileContainerdIsDownIsSeenLater(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it lists no processes then, and containerd takes the shim for a leaked one")
	d := ownDaemon(t)
	b := startBox(t, boxSpec{daemon: d, args: []string{"sh", "-c", "trap 'exit 42' TERM; echo up; while :; do sleep 0.05; done"}})
	b.out.waitFor(t, "up")
	pid := b.pid()
	d.Stop()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ktest.Eventually(t, prompt, "the container to end", func() error {
		if ktest.Alive(pid) {
			return fmt.Errorf("it lives")
		}
		return nil
	})
	if err := d.Restart(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.reload(nil)
	if s := b.status(); s != containerd.Stopped {
		t.Errorf("status %s", s)
	}
	if code := b.wait(); code != 42 {
		t.Errorf("exit code %d, want 42", code)
	}
	if code := b.delete(); code != 42 {
		t.Errorf("delete says %d, want 42", code)
	}
}

// containerd/containerd#9342
func TestOutputWhileContainerdIsDownIsNotLost(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	b := newBox(t, boxSpec{daemon: d, args: []string{"sh", "-c", "i=0; while [ $i -lt 300 ]; do echo line $i || exit 9; i=$((i+1)); sleep 0.01; done; sleep 100000"}})
	p := newPipes(t, b)
	b.creator = p.creator
	out := p.reader(t, p.Stdout)
	defer out.Close()
	p.reader(t, p.Stderr)
	b.start()
	scan := newLineReader(out)
	scan.next(t)
	d.Kill()
	for i := 1; i < 100; i++ {
		if l := scan.next(t); l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	if err := d.Restart(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.reload(nil)
	for i := 100; i < 300; i++ {
		if l := scan.next(t); l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	b.stop()
}

// killShim ends the shim as the kernel does for lack of memory and waits until
// containerd has cleaned up.
func (b *box) killShim() {
	b.t.Helper()
	b.shimKilled = true
	if err := syscall.Kill(b.shimPID, syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
	ktest.Eventually(b.t, prompt, "containerd to notice", func() error {
		_, err := b.task.Status(b.ctx)
		if !errdefs.IsNotFound(err) {
			return fmt.Errorf("status: %v", err)
		}
		return nil
	})
	b.deleted = true
}

func TestAfterTheDeathOfTheShimNothingIsLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		state func(*box)
	}{
		{"running", func(b *box) { b.start() }},
		{"created", func(b *box) { b.create() }},
		{"paused", func(b *box) {
			b.start()
			if err := b.task.Pause(b.ctx); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"stopped", func(b *box) { b.start().kill(syscall.SIGKILL); b.wait(); events.wait(b.t, b.id, "exit 137") }},
		{"with execs", func(b *box) {
			b.start()
			b.startExec(execSpec{args: []string{"sleep", "100000"}})
			b.startExec(execSpec{args: []string{"sleep", "100000"}, tty: true})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, boxSpec{})
			tt.state(b)
			b.killShim()
			events.wait(t, b.id, "exit 137")
			b.checkResidue()
			// The same container again, at once.
			b.task = nil
			b.start()
			if out := b.ok("echo", "again"); out != "again\n" {
				t.Errorf("got %q", out)
			}
			b.stop()
		})
	}
}

// The exit code that the shim saw before its own death is what clean-up
// reports.
func TestTheExitCodeSurvivesTheShim(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "exit 42"}})
	if code := b.wait(); code != 42 {
		t.Fatalf("exit code %d", code)
	}
	events.wait(t, b.id, "exit 42")
	b.killShim()
	ktest.Eventually(t, prompt, "the clean-up's events", func() error {
		have := events.of(b.id)
		if count(have, "delete") == 0 {
			return fmt.Errorf("have %q", have)
		}
		return nil
	})
	for _, e := range events.of(b.id) {
		if strings.HasPrefix(e, "exit ") && e != "exit 42" {
			t.Errorf("event %q", e)
		}
	}
}

func TestTheDeathOfAPodsShimEndsAllItsContainers(t *testing.T) {
	t.Parallel()
	first, second := startPod(t, nil)
	pids := []int{first.pid(), second.pid()}
	first.killShim()
	ktest.Eventually(t, prompt, "containerd to notice", func() error {
		if _, err := second.task.Status(second.ctx); !errdefs.IsNotFound(err) {
			return fmt.Errorf("status: %v", err)
		}
		return nil
	})
	second.deleted, second.shimKilled = true, true
	events.wait(t, first.id, "exit 137")
	events.wait(t, second.id, "exit 137")
	(ktest.Residue{PIDs: pids}).Check(t, prompt)
}

// A shim whose daemon does not come back holds its container, and nothing else
// is asked of it; a daemon that finds the shim dead at its start cleans up.
func TestAShimThatDiedWhileContainerdWasDownIsCleanedUp(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	b := startBox(t, boxSpec{daemon: d})
	d.Stop()
	b.shimKilled = true
	if err := syscall.Kill(b.shimPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(b.ctx); err != nil {
		t.Fatal(err)
	}
	c, err := d.Client.LoadContainer(b.ctx, b.id)
	if err != nil {
		t.Fatal(err)
	}
	b.container = c
	ktest.Eventually(t, prompt, "the clean-up", func() error {
		if task, err := c.Task(b.ctx, nil); !errdefs.IsNotFound(err) {
			return fmt.Errorf("task %v, %v", task, err)
		}
		return nil
	})
	b.deleted = true
	b.checkResidue()
	b.task = nil
	b.start()
	b.ok("true")
	b.stop()
}

// An interrupted create may have come to any point; whatever it was, the id is
// free afterwards.
//
// opencontainers/runc#4534
func TestAnInterruptedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			notIncumbent(t, "its clean-up may come before the last cgroup is made")
			b := newBox(t, boxSpec{})
			timer := time.AfterFunc(after, func() {
				for _, p := range ktest.Procs() {
					if p.State != 'Z' && hasArg(p, b.id) {
						_ = syscall.Kill(p.PID, syscall.SIGKILL)
					}
				}
			})
			task, err := b.container.NewTask(b.ctx, b.creator)
			timer.Stop()
			if err == nil {
				b.task = task
				// The shim may be dead, and containerd not have noticed.
				ktest.Eventually(t, prompt, "the task to go", func() error {
					_, err := task.Delete(b.ctx, containerd.WithProcessKill)
					if errdefs.IsNotFound(err) {
						return nil
					}
					return err
				})
				b.deleted = true
			}
			b.checkResidue()
			b.task = nil
			b.start()
			b.ok("true")
			b.stop()
		})
	}
}

// hasArg tells a process that serves the container: its shim, or a process that
// the shim forked and that is about to become the container's.
func hasArg(p ktest.Proc, id string) bool {
	for i, a := range p.Cmd {
		if a == id && i > 0 && p.Cmd[i-1] == "-id" {
			return true
		}
	}
	return false
}

// containerd 1.7 and 2.0 take a shim that lists nothing for a leaked one when
// they restart.
func TestAStoppedContainerStillListsItsFirstProcess(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it lists none")
	b := startBox(t, boxSpec{args: []string{"true"}})
	b.wait()
	infos, err := b.task.Pids(b.ctx)
	if err != nil || len(infos) != 1 || infos[0].Pid != b.task.Pid() {
		t.Errorf("pids %v, %v; the process was %d", infos, err, b.task.Pid())
	}
	b.delete()
}

package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"github.com/ibex-run/ibex/internal/ktest"
)

func TestEveryKindOfSignalArrives(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"probe", "signals"}})
	b.out.waitFor(t, "ready\n")
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM,
		syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, 36, 50, 64,
	} {
		b.kill(sig)
		b.out.waitFor(t, fmt.Sprintf("signal %d\n", int(sig)))
	}
	b.kill(syscall.SIGQUIT)
	if code := b.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.delete()
}

func TestASignalThatEndsAnExecGivesItsCode(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGKILL, syscall.SIGABRT, 40} {
		p := b.startExec(execSpec{args: []string{"sleep", "1000"}})
		if err := p.p.Kill(b.ctx, sig); err != nil {
			t.Fatal(err)
		}
		if code := p.finish().code; code != 128+uint32(sig) {
			t.Errorf("signal %d: exit code %d", int(sig), code)
		}
	}
}

// The kernel keeps signals from the first process of a PID namespace that it
// has no handler for, unless they are SIGKILL or SIGSTOP from outside.
// pid_namespaces(7)
func TestInitIgnoresWhatItDoesNotHandle(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	b.kill(syscall.SIGTERM)
	b.kill(syscall.SIGSTOP)
	ktest.Eventually(t, prompt, "init to stop", func() error {
		if p, err := ktest.ReadProc(b.pid()); err != nil || p.State != 'T' {
			return fmt.Errorf("state %c, %v", p.State, err)
		}
		return nil
	})
	b.kill(syscall.SIGCONT)
	ktest.Eventually(t, prompt, "init to go on", func() error {
		if p, err := ktest.ReadProc(b.pid()); err != nil || p.State != 'S' {
			return fmt.Errorf("state %c, %v", p.State, err)
		}
		return nil
	})
	if code := b.stop(); code != 137 {
		t.Errorf("exit code %d", code)
	}
}

func TestKillAllReachesEveryProcess(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: hostPID()})
	var execs []*process
	for range 3 {
		execs = append(execs, b.startExec(execSpec{args: []string{"sleep", "100000"}}))
	}
	orphan := b.ok("sh", "-c", "sleep 100000 > /dev/null 2>&1 & echo $!")
	b.kill(syscall.SIGKILL, containerd.WithKillAll)
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	for _, e := range execs {
		if code := e.finish().code; code != 137 {
			t.Errorf("exec: exit code %d", code)
		}
	}
	if in := ktest.InCgroup(b.d.Cgroup(b.id)); len(in) > 0 {
		t.Errorf("alive, the orphan being %s: %v", strings.TrimSpace(orphan), in)
	}
	b.delete()
}

// containerd/containerd#999, containers/crun#1510: callers must be able to tell
// that the process is gone already.
func TestKillOfWhatHasEndedIsNotFound(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	e := b.startExec(execSpec{args: []string{"true"}})
	e.wait()
	events.wait(t, b.id, "exit "+e.id+" 0")
	wantError(t, e.p.Kill(b.ctx, syscall.SIGKILL), errdefs.ErrNotFound)
	e.finish()
	wantError(t, e.p.Kill(b.ctx, syscall.SIGKILL), errdefs.ErrNotFound)
	b.kill(syscall.SIGKILL)
	b.wait()
	events.wait(t, b.id, "exit 137")
	for range 2 {
		wantError(t, b.task.Kill(b.ctx, syscall.SIGTERM), errdefs.ErrNotFound, "process already finished")
	}
	if err := b.task.Kill(b.ctx, syscall.SIGKILL, containerd.WithKillAll); err != nil && !errdefs.IsNotFound(err) {
		t.Errorf("kill all: %v", err)
	}
	b.delete()
	wantError(t, b.task.Kill(b.ctx, syscall.SIGKILL), errdefs.ErrNotFound)
	_, err := b.task.Delete(b.ctx)
	wantError(t, err, errdefs.ErrNotFound)
}

func TestAnUnknownSignalIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	wantError(t, b.task.Kill(b.ctx, 65), nil)
	wantError(t, b.task.Kill(b.ctx, 4000), nil)
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

func TestPauseStopsAndResumeContinues(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "while :; do echo tick; sleep 0.01; done"}})
	b.out.waitFor(t, "tick\ntick\n")
	if err := b.task.Pause(b.ctx); err != nil {
		t.Fatal(err)
	}
	if s := b.status(); s != containerd.Paused {
		t.Errorf("status %s", s)
	}
	wantFrozen(t, b, true)
	p, err := b.tryExec(execSpec{args: []string{"true"}})
	if err == nil {
		err = p.p.Start(b.ctx)
		_, _ = p.p.Delete(b.ctx)
	}
	wantError(t, err, nil)
	if _, err := b.task.Metrics(b.ctx); err != nil {
		t.Errorf("stats while paused: %v", err)
	}
	if _, err := b.task.Pids(b.ctx); err != nil {
		t.Errorf("pids while paused: %v", err)
	}
	if err := b.task.Resume(b.ctx); err != nil {
		t.Fatal(err)
	}
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	wantFrozen(t, b, false)
	b.waitTicks(2)
	b.ok("true")
	b.stop()
	b.wantEvents("start", "paused", "resumed", "exit 137", "delete")
}

func wantFrozen(t *testing.T, b *box, want bool) {
	t.Helper()
	dir, err := ktest.CgroupDir(b.pid(), "freezer")
	if err != nil {
		t.Fatal(err)
	}
	frozen := readFile(dir+"/freezer.state") == "FROZEN\n" || readFile(dir+"/cgroup.freeze") == "1\n"
	if frozen != want {
		t.Errorf("frozen is %v, want %v", frozen, want)
	}
}

// opencontainers/runc#3134
func TestAPausedContainerIsKilledPromptly(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"probe", "signals"}})
	b.out.waitFor(t, "ready\n")
	if err := b.task.Pause(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.kill(syscall.SIGTERM)
	if s := b.status(); s != containerd.Paused {
		t.Errorf("status after SIGTERM: %s", s)
	}
	b.kill(syscall.SIGKILL)
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(b.out.String(), "signal") {
		t.Errorf("it ran on: %q", b.out)
	}
	if s := b.status(); s != containerd.Stopped {
		t.Errorf("status %s", s)
	}
	b.delete()
}

func TestASignalToAPausedContainerWaitsForResume(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"probe", "signals"}})
	b.out.waitFor(t, "ready\n")
	if err := b.task.Pause(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.kill(syscall.SIGUSR1)
	if err := b.task.Resume(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.out.waitFor(t, "signal 10\n")
	b.stop()
}

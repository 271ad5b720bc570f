package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/exec"
)

// Process is the container's first process or an exec.
type Process struct {
	c    *Container
	id   string
	spec *exec.Process
	path string // of the first process: looked up at Create

	below       []belowDir // see SetCgroup
	whilePaused bool       // see AllowPaused

	leafMu     sync.Mutex    // above Container.leafMu
	leaf       *cgroups.Leaf // guarded by leafMu, changed under starting too: see makeLeaf
	leafKilled bool          // guarded by leafMu

	// starting is held during Create (by the first process), Start and Delete:
	// no exit is reported before they have returned.
	starting sync.Mutex

	mu      sync.Mutex
	status  Status      // guarded by mu; Paused is the container's
	child   *exec.Child // guarded by mu
	console *os.File    // guarded by mu
	size    *WinSize    // guarded by mu: asked for before there was a terminal
	exit    ExitStatus  // written once, before done is closed
	done    chan struct{}
}

func newProcess(c *Container, id string, spec *exec.Process) *Process {
	return &Process{c: c, id: id, spec: spec, done: make(chan struct{})}
}

// ID returns the exec's ID, "" for the first process.
func (p *Process) ID() string { return p.id }

// Container returns the process's container.
func (p *Process) Container() *Container { return p.c }

// PID returns the host's number of the process, 0 before it exists.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child == nil {
		return 0
	}
	return p.child.PID
}

// Status returns the state. A running process of a paused container is Paused.
func (p *Process) Status() Status {
	p.mu.Lock()
	s := p.status
	p.mu.Unlock()
	if s == Running && p.c.paused.Load() {
		return Paused
	}
	return s
}

// Done is closed when the process has ended and its exit was recorded.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitStatus tells how the process ended; valid once Done is closed.
func (p *Process) ExitStatus() ExitStatus { return p.exit }

// Pidfd returns a pidfd of the process, which the caller owns. ErrNotFound
// before it exists and once it was reaped.
func (p *Process) Pidfd() (int, error) {
	p.mu.Lock()
	child := p.child
	p.mu.Unlock()
	if child == nil {
		return -1, errEnded
	}
	fd, err := child.Pidfd()
	if errors.Is(err, unix.ESRCH) {
		return -1, errEnded
	}
	return fd, err
}

// AllowPaused lets an exec start in a paused container: Start then waits until
// somebody resumes it, as long as it waits for any process.
func (p *Process) AllowPaused() { p.whilePaused = true }

// Start runs the process. Valid in Created; a StateError otherwise, and for an
// exec also when the first process has ended or is paused. A command that
// cannot be executed leaves the exec as it was: it may be deleted.
func (p *Process) Start(ctx context.Context, io Stdio) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if s := p.Status(); s != Created {
		return &StateError{"start", s}
	}
	if p.id == "" {
		return p.startInit(ctx)
	}
	return p.startExec(ctx, io)
}

// release lets the waiting first process execute its program.
func (p *Process) release(ctx context.Context) error {
	if p.c.opts.Detached {
		return p.startDetached(ctx)
	}
	return p.child.Release(ctx, p.path)
}

func (p *Process) startInit(ctx context.Context) error {
	c := p.c
	if c.spec.Process == nil {
		return p.stopFor(invalid("process", "missing: there is nothing to start"))
	}
	err := c.runHooks(ctx, "startContainer", specs.StateCreated, c.pidInside(p.PID()), func() (*exec.Place, func(), error) {
		return c.insidePlace(p.child)
	})
	if err != nil {
		return p.stopFor(err)
	}
	if err := p.release(ctx); err != nil {
		select {
		case <-p.child.Done():
			// Its exit is reported like any other; until then it is not what it
			// was, and cannot be started again.
			p.mu.Lock()
			if p.status == Created {
				p.status = Running
			}
			p.mu.Unlock()
		default:
		}
		return p.explain(err)
	}
	p.mu.Lock()
	if p.status == Created {
		p.status = Running
	}
	p.mu.Unlock()
	if err := c.runHooks(ctx, "poststart", specs.StateRunning, p.PID(), hostPlace); err != nil {
		return p.stopFor(err)
	}
	return nil
}

// stopFor ends the container because of a hook: "the runtime MUST generate an
// error, stop the container" - runtime-spec, runtime.md, Lifecycle.
func (p *Process) stopFor(err error) error {
	p.child.Signal(unix.SIGKILL) //nolint:errcheck // it may have ended
	return err
}

// Kill sends a signal. It does not wait for its effect. ErrNotFound once the
// process ended; a StateError for an exec that was not started.
func (p *Process) Kill(sig unix.Signal) error {
	p.mu.Lock()
	child, status := p.child, p.status
	p.mu.Unlock()
	if sig == unix.SIGKILL {
		if ok, err := p.killLeaf(); ok || err != nil {
			return err
		}
	}
	if child == nil && status == Created {
		return &StateError{"kill", status}
	}
	if child == nil || status == Stopped {
		return errEnded
	}
	err := child.Signal(sig)
	if errors.Is(err, unix.ESRCH) {
		return errEnded
	}
	if err != nil {
		return fmt.Errorf("send signal %d: %w", sig, os.NewSyscallError("pidfd_send_signal", err))
	}
	if sig == unix.SIGKILL && p.id == "" && p.c.paused.Load() {
		// On cgroup v1 a frozen process does not die before it is thawed.
		return p.c.thawForKill()
	}
	return nil
}

// Console returns the terminal's master side, nil without a terminal.
func (p *Process) Console() *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.console
}

// Resize sets the terminal's size, or remembers it until there is a terminal.
func (p *Process) Resize(w WinSize) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = &w
	if p.console == nil {
		return nil
	}
	return p.applySize()
}

// applySize is called with mu held.
func (p *Process) applySize() error {
	if p.size == nil {
		return nil
	}
	conn, err := p.console.SyscallConn()
	if err != nil {
		return err
	}
	var ioErr error
	err = conn.Control(func(fd uintptr) {
		ioErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: p.size.Rows, Col: p.size.Cols})
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("ioctl TIOCSWINSZ", ioErr)
}

// setConsole hands the terminal over and gives it the size asked for.
func (p *Process) setConsole(master *os.File) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.console = master
	return p.applySize()
}

func (p *Process) closeConsole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.console != nil {
		p.console.Close()
	}
}

func (p *Process) consoleSize(spec *specs.Process) {
	if b := spec.ConsoleSize; b != nil && spec.Terminal {
		p.size = &WinSize{Rows: uint16(min(b.Height, 65535)), Cols: uint16(min(b.Width, 65535))}
	}
}

// Delete forgets an exec. A StateError while it runs.
func (p *Process) Delete() error {
	if p.id == "" {
		return invalid("exec id", "empty: the first process goes with its container")
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	if s := p.Status(); s == Running || s == Paused {
		return &StateError{"delete", s}
	}
	p.mu.Lock()
	p.status = Stopped
	p.mu.Unlock()
	p.closeConsole()
	p.dropLeaf()
	p.c.mu.Lock()
	if p.c.procs[p.id] == p {
		delete(p.c.procs, p.id)
	}
	p.c.mu.Unlock()
	return nil
}

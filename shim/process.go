package shim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

// process is the first process of a task or one that Exec added.
type process struct {
	t     *task
	id    string // exec ID; "" is the first process
	spec  ioSpec
	owner ioOwner

	// starting is held for the whole of a Start: above task.mu.
	starting sync.Mutex
	started  bool // guarded by starting

	// The rest is guarded by t.mu.

	p  *container.Process // nil until the container knows it
	io *processIO         // nil before the start of an exec
	// settled says that the exit may be announced: what comes before it has been
	// published.
	settled bool
	ended   bool
	// stdinClosed remembers a CloseIO that came before the start.
	stdinClosed bool

	exited chan struct{} // closed when the exit was announced, or never will be
}

// name is what events and State call the process.
func (p *process) name() string {
	if p.id == "" {
		return p.t.id
	}
	return p.id
}

func (p *process) handle() (*container.Process, error) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.p == nil {
		return nil, fmt.Errorf("process %s of container %s: %w", p.id, p.t.id, errNotFound)
	}
	return p.p, nil
}

// start runs the process and publishes its start before its exit, however
// short it lives.
func (p *process) start(ctx context.Context, poll *poller, id logID) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.started {
		return fmt.Errorf("process %s of container %s was started already: %w", p.id, p.t.id, errPrecondition)
	}
	cp, err := p.handle()
	if err != nil {
		return err
	}
	if p.id == "" {
		err = p.startInit(ctx, cp)
	} else {
		err = p.startExec(ctx, cp, poll, id)
	}
	p.started = err == nil
	return err
}

func (p *process) startInit(ctx context.Context, cp *container.Process) error {
	p.settle(false, nil)
	if err := cp.Start(ctx, container.Stdio{}); err != nil {
		p.settle(true, nil)
		// Who hears of the failure deletes the task, which must be stopped then.
		if cp.Status() != container.Created {
			p.wait(ctx) //nolint:errcheck // the failure of the start counts
		}
		return err
	}
	p.settle(true, &wire.TaskStart{ContainerID: p.t.id, Pid: uint32(cp.PID())})
	return nil
}

func (p *process) startExec(ctx context.Context, cp *container.Process, poll *poller, id logID) error {
	io, err := openIO(ctx, poll, p.spec, p.owner, id)
	if err != nil {
		return err
	}
	if err := cp.Start(ctx, io.child); err != nil {
		io.abort()
		return err
	}
	if err := io.started(cp.Console()); err != nil {
		// It runs, and nobody could ever read from it.
		cp.Kill(unix.SIGKILL) //nolint:errcheck // it may have ended
		io.abort()
		p.settle(true, nil)
		return err
	}
	p.t.mu.Lock()
	p.io = io
	if p.stdinClosed {
		io.closeStdin()
	}
	p.t.mu.Unlock()
	p.settle(true, &wire.TaskExecStarted{ContainerID: p.t.id, ExecID: p.id, Pid: uint32(cp.PID())})
	return nil
}

// settle publishes an event and lets exits pass, or holds them back.
func (p *process) settle(settled bool, event wire.Event) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if event != nil {
		p.t.events.publish(event)
	}
	p.settled = settled
	p.t.announce()
}

// wait returns when the exit has been announced.
func (p *process) wait(ctx context.Context) (container.ExitStatus, error) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return container.ExitStatus{}, ctx.Err()
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if !p.ended {
		return container.ExitStatus{}, fmt.Errorf("process %s of container %s was deleted before it ran: %w", p.id, p.t.id, errNotFound)
	}
	return p.p.ExitStatus(), nil
}

// closeStdin may come before the start, and more than once.
func (p *process) closeStdin() {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.stdinClosed = true
	if p.io != nil {
		p.io.closeStdin()
	}
}

// quiesce is the first half of Delete: it waits for the exit of a process that
// has ended to be announced, and for its last output to be delivered.
func (p *process) quiesce(ctx context.Context, cp *container.Process) error {
	switch st := cp.Status(); st {
	case container.Created:
		return nil
	case container.Stopped:
	default:
		return fmt.Errorf("process %s of container %s is running: %w", p.id, p.t.id, errPrecondition)
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.t.mu.Lock()
	io := p.io
	p.t.mu.Unlock()
	if io != nil {
		io.finish()
	}
	return nil
}

// killCreated ends a first process that waits for its Start.
func (p *process) killCreated(ctx context.Context, cp *container.Process) error {
	if err := cp.Kill(unix.SIGKILL); err != nil && !errors.Is(err, container.ErrNotFound) {
		return err
	}
	_, err := p.wait(ctx)
	return err
}

// deleteExec forgets a process that has ended or never ran.
func (p *process) deleteExec(ctx context.Context, cp *container.Process) error {
	if err := p.quiesce(ctx, cp); err != nil {
		return err
	}
	if err := cp.Delete(); err != nil {
		return err
	}
	p.t.forget(p)
	p.release()
	return nil
}

// release ends what may still hang on the process: its input and output and
// those who wait for an exit that will not come.
func (p *process) release() {
	p.t.mu.Lock()
	io := p.io
	p.unblock()
	p.t.mu.Unlock()
	if io != nil {
		io.finish()
	}
}

// unblock lets go those who wait for the exit. It is called with t.mu held.
func (p *process) unblock() {
	select {
	case <-p.exited:
	default:
		close(p.exited)
	}
}

// exitOf is how a process ended, zero for one that has not or never ran.
func exitOf(cp *container.Process) (st container.ExitStatus, ended bool) {
	select {
	case <-cp.Done():
		return cp.ExitStatus(), true
	default:
		return st, false
	}
}

package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
)

// startExec is the hot path: look the program up, compile, fork twice, execute.
// Everything that can fail in an interesting way fails before the first fork.
func (p *Process) startExec(ctx context.Context, io Stdio) error {
	c := p.c
	defer p.closeBelow()
	if s := c.init.Status(); s == Stopped || s == Paused && !p.whilePaused {
		return &StateError{"start a process in", s}
	}
	path, err := c.lookup(p.spec)
	if err != nil {
		return err
	}
	ep := *p.spec
	ep.Path = path
	setHome(&ep, c.root)
	pty, err := p.stdio(&ep, io)
	if err != nil {
		return err
	}
	if pty != nil {
		defer unix.Close(pty.Replica)
		if err := p.setConsole(pty.Master); err != nil {
			p.dropConsole()
			return err
		}
	}
	if err := p.makeLeaf(); err != nil {
		p.dropConsole()
		return err
	}
	child, err := c.run(ctx, p, &ep)
	if err != nil {
		p.dropConsole()
		p.dropLeaf()
		if errors.Is(err, unix.ESRCH) {
			// setns(2) of a pidfd whose process has ended: it won the race.
			return &StateError{"start a process in", Stopped}
		}
		return p.explain(err)
	}
	p.mu.Lock()
	p.child, p.status = child, Running
	p.mu.Unlock()
	return nil
}

// dropConsole takes the terminal of a start that came to nothing away again.
func (p *Process) dropConsole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.console != nil {
		p.console.Close()
		p.console = nil
	}
}

// run starts ep beside the first process. Where the pids limit refuses the
// fork, the process is born outside and moved in: migration is not limited.
func (c *Container) run(ctx context.Context, p *Process, ep *exec.Process) (*exec.Child, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	s := c.execStart(h, ep)
	s.Notify = func() { c.exited(p) }
	agent, err := c.connectAgent()
	if err != nil {
		return nil, err
	}
	defer closeAgent(agent)
	s.Listener = c.tellAgent(agent, specs.StateRunning)
	p.useBelow(s.Place)
	p.useLeaf(s.Place)
	child, err := exec.Run(ctx, s)
	if nested(err, s.Place) && p.leaf == nil {
		dir, dirErr := c.initsGroup()
		if dirErr != nil {
			return nil, errors.Join(err, dirErr)
		}
		defer dir.Close()
		s.Place.CgroupInto = dir.FD()
		child, err = exec.Run(ctx, s)
	}
	if !errors.Is(err, exec.ErrPIDsLimit) {
		return child, err
	}
	path := ep.Path
	s.Hold, s.Migrate = true, true
	child, err = exec.Run(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := c.group.Add(child.PID); err != nil {
		child.Abort()
		return nil, fmt.Errorf("move the process into the container's cgroup: %w", err)
	}
	if p.leaf != nil {
		if err := p.leaf.Add(child.PID); err != nil {
			child.Abort()
			return nil, fmt.Errorf("move the process into its cgroup: %w", err)
		}
	}
	return child, child.Release(ctx, path)
}

// execStart describes the start of ep beside the first process.
func (c *Container) execStart(h *hostState, ep *exec.Process) *exec.Start {
	return &exec.Start{
		Process: ep,
		Place: &exec.Place{
			Proc: h.proc.FD(), JoinOf: c.initFD, JoinMask: c.joinMask(),
			CgroupTasks: c.group.JoinFDs(), CgroupInto: c.into(),
		},
	}
}

// joinMask are the namespaces that the first process does not share with us.
func (c *Container) joinMask() (mask int) {
	for t, k := range nsFlags {
		if private(c.spec, t) {
			mask |= k.flag
		}
	}
	return mask
}

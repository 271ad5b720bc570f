package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/cgroups/systemd"
)

// exitTimeout bounds the wait for execs, which the kernel or we have killed,
// before the exit of the first process is reported.
const exitTimeout = 10 * time.Second

// exited is called by package exec when a process was reaped. It must not
// block: exits are handed out by one goroutine for each container, which lives
// only while there are any.
func (c *Container) exited(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, p)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	if !c.draining {
		c.draining = true
		go c.drain()
	}
}

// drain hands the exits out, the first process's last.
func (c *Container) drain() {
	var last *Process
	for {
		c.mu.Lock()
		if len(c.ended) == 0 {
			if last == nil {
				c.draining = false
				c.mu.Unlock()
				return
			}
			c.mu.Unlock()
			c.initEnded(last)
			last = nil
			continue
		}
		p := c.ended[0]
		c.ended = c.ended[1:]
		c.mu.Unlock()
		switch {
		case !p.born():
		case p.id == "":
			last = p
		default:
			c.report(p)
		}
	}
}

// born waits until the start of p has returned, and tells whether it came to
// something: a process that nobody saw run has no exit to report.
func (p *Process) born() bool {
	p.starting.Lock()
	defer p.starting.Unlock()
	return p.PID() != 0
}

// report records how p ended and tells the owner of the container.
func (c *Container) report(p *Process) {
	p.mu.Lock()
	st := p.child.Status()
	p.exit = ExitStatus{Code: uint32(st.Code), At: st.At}
	p.status = Stopped
	p.mu.Unlock()
	c.checkOOM() //nolint:errcheck // without the group there is nothing to tell
	if p.id == "" {
		c.finish(p)
	}
	close(p.done)
	if c.opts.OnExit != nil {
		c.opts.OnExit(p)
	}
}

// initEnded sees to it that every exec's exit comes before the first process's.
// In a PID namespace of its own the kernel has killed the others; where it is
// shared, that is up to us: what is left would keep the cgroup busy.
func (c *Container) initEnded(init *Process) {
	ctx, cancel := context.WithTimeout(context.Background(), exitTimeout)
	defer cancel()
	if !isNew(c.spec, specs.PIDNamespace) {
		c.group.Kill(ctx) //nolint:errcheck // Delete kills again and reports
	}
	for {
		c.mu.Lock()
		var running *Process
		for _, p := range c.procs {
			if p.Status() == Running || p.Status() == Paused {
				running = p
			}
		}
		ended := c.ended
		c.ended = nil
		c.mu.Unlock()
		for _, p := range ended {
			if p.born() {
				c.report(p)
			}
		}
		if len(ended) > 0 {
			continue
		}
		if running == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-c.wake: // one of them was reaped
		case <-ctx.Done():
		}
	}
	c.report(init)
}

// finish completes the record. A scope of systemd's ends with its last process,
// and the cgroup with it: there the last reading is taken now, as well as it
// still can be. Elsewhere the cgroup stays until Delete.
func (c *Container) finish(p *Process) {
	if _, ok := c.group.(*systemd.Group); ok {
		var s cgroups.Stats
		c.statMu.Lock()
		if err := c.group.Stat(&s); err == nil {
			c.final = &s
		}
		c.statMu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rec.Exit = &exitState{Code: p.exit.Code, At: p.exit.At}
	c.rec.save(c.state) //nolint:errcheck // the exit is reported all the same; only a later `delete` knows less
}

// watchOOM reports OOM kills as they happen.
func (c *Container) watchOOM() error {
	c.oomMu.Lock()
	n, err := c.group.OOMKills()
	c.ooms = n
	c.oomMu.Unlock()
	if err != nil {
		return err
	}
	fd, err := c.group.OOMFD()
	if err != nil {
		if errors.Is(err, cgroups.ErrNoController) {
			return nil // no memory controller, nothing to report
		}
		return err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	c.oom = os.NewFile(uintptr(dup), "oom")
	conn, err := c.oom.SyscallConn()
	if err != nil {
		return err
	}
	go func() {
		for {
			// The descriptor may only be polled: on cgroup v2 it is an epoll instance.
			if err := conn.Read(readable); err != nil {
				return // closed by Delete
			}
			// cgroup v1 tells of the shortage, before anything was killed: the
			// counter follows, or does not if memory was found.
			if !c.awaitOOM() {
				return
			}
		}
	}()
	return nil
}

// readable asks a descriptor whether it is.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0
}

// awaitOOM looks at the counter again and again, for a second. It reports
// whether the group is still there to be watched.
func (c *Container) awaitOOM() (alive bool) {
	tick := time.NewTicker(oomDelay / 100)
	defer tick.Stop()
	for range 100 {
		any, err := c.checkOOM()
		if any || err != nil {
			return err == nil
		}
		<-tick.C
	}
	return true
}

// oomDelay bounds the wait for a kill after its notification.
const oomDelay = time.Second

// checkOOM reports the kills since the last look, and whether there were any. It
// is called for each notification, and before an exit is reported: the event
// comes first. The error says that the group is gone, and with it the counter.
func (c *Container) checkOOM() (any bool, err error) {
	c.oomMu.Lock()
	defer c.oomMu.Unlock()
	n, err := c.group.OOMKills()
	if err != nil {
		return false, err
	}
	for ; c.ooms < n; c.ooms++ {
		if c.opts.OnOOM != nil {
			c.opts.OnOOM()
		}
		any = true
	}
	if any {
		c.explainOOM()
	}
	return any, nil
}

// explainOOM says whose limit it was: a pod's or a slice's may have been reached
// and not the container's own.
func (c *Container) explainOOM() {
	switch at, err := c.group.OOMCause(); {
	case err != nil:
		c.warn(err)
	case at == "":
		c.warn(errors.New("a process was killed because the host, or a group whose counters cannot tell, ran out of memory"))
	default:
		c.warn(fmt.Errorf("a process was killed because cgroup %s reached its memory limit", at))
	}
}

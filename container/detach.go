package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/pathsafe"
)

// A container created with Detached outlives the process that created it: its
// first process waits at a FIFO instead of at a socket, and another process can
// start it.
var (
	goName     = pathsafe.MustName("go")
	statusName = pathsafe.MustName("status")
	specName   = pathsafe.MustName("config.json")
)

// saveSpec keeps the configuration of a detached container: "Any updates to
// config.json after this step MUST NOT affect the container" - runtime-spec,
// runtime.md, Lifecycle.
func (c *Container) saveSpec() error {
	if !c.opts.Detached {
		return nil
	}
	data, err := json.Marshal(c.spec)
	if err != nil {
		return err
	}
	if err := c.state.WriteFileAtomic(specName, data, 0o600); err != nil {
		return fmt.Errorf("save the container's configuration: %w", err)
	}
	return nil
}

// makeFIFOs makes the two FIFOs in the state directory and opens them for the
// first process, for reading and writing, so that neither open waits and no end
// of file comes while nobody is at the other end.
func (c *Container) makeFIFOs(s *exec.Start) (done func(), err error) {
	var fds []int
	done = func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	for _, n := range []pathsafe.Name{goName, statusName} {
		fd, err := c.state.Mkfifo(n, 0o600)
		if err != nil {
			done()
			return func() {}, err
		}
		fds = append(fds, fd)
	}
	s.Detach = &exec.Detach{Go: fds[0], Status: fds[1]}
	return done, nil
}

// Open takes up a container that another process created with Detached. Its
// first process is not our child: its end is seen, its exit code is not.
//
// ErrNotFound if there is no record.
func Open(stateDir string) (_ *Container, err error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	state, err := pathsafe.OpenState(stateDir)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("open %s: %w", stateDir, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	c := &Container{state: state, initFD: -1, devpts: -1, procs: map[string]*Process{}, wake: make(chan struct{}, 1)}
	c.init = newProcess(c, "", nil)
	defer func() {
		if err != nil {
			c.release()
			err = fmt.Errorf("open container in %s: %w", stateDir, err)
		}
	}()
	rec, err := loadRecord(state)
	if err != nil {
		return nil, err
	}
	c.rec = *rec
	c.opts = CreateOptions{ID: rec.ID, Bundle: rec.Bundle, StateDir: stateDir, Detached: true}
	if c.spec, err = loadSpec(state); err != nil {
		return nil, err
	}
	if c.seccomp, err = seccomp.Compile(c.spec.Linux.Seccomp); err != nil {
		return nil, err
	}
	if c.init.spec, err = c.process(c.firstProcess()); err != nil {
		return nil, err
	}
	return c, c.adopt(h)
}

// adopt finds the first process and the cgroup.
func (c *Container) adopt(h *hostState) error {
	p, err := cgroups.ParsePath(c.rec.CgroupsPath, c.rec.ID)
	if err != nil {
		return err
	}
	g, err := openGroup(h.layout, p)
	if err != nil && !errors.Is(err, cgroups.ErrNotFound) {
		return err
	}
	if err == nil {
		c.group = g
	}
	fd, err := c.rec.pidfd(h)
	if err != nil {
		return err
	}
	if fd < 0 || c.group == nil || zombie(fd) {
		return c.noteEnd(fd)
	}
	// A process that is about to end has no root any more, before it is a zombie.
	if err := c.reopenBelow(h, p); err != nil {
		return err
	}
	if c.root, err = h.proc.Root(fd, c.rec.PID); errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return c.noteEnd(fd)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	c.initFD = fd
	c.init.child = exec.Adopt(c.rec.PID, fd)
	c.init.path = c.rec.Path
	if c.rec.Started {
		c.init.status = Running
	}
	c.paused.Store(c.rec.Paused)
	c.devpts, err = rootfs.OpenDevpts(c.root.FD())
	return err
}

// noteEnd notes that the first process is gone. pidfd may be -1.
func (c *Container) noteEnd(pidfd int) error {
	if pidfd >= 0 {
		unix.Close(pidfd)
	}
	c.init.status = Stopped
	close(c.init.done)
	return nil
}

// zombie reports whether the process ended already: its pidfd is readable then
// (pidfd_open(2)).
func zombie(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

// startDetached lets the first process go and waits until it executes its
// program or says why it cannot.
func (p *Process) startDetached(ctx context.Context) error {
	status, err := p.c.state.OpenFIFO(statusName, unix.O_RDONLY)
	if err != nil {
		return err
	}
	st := os.NewFile(uintptr(status), "status")
	defer st.Close()
	g, err := p.c.state.OpenFIFO(goName, unix.O_WRONLY)
	if errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("start: the first process is not waiting: %w", ErrState)
	}
	if err != nil {
		return err
	}
	defer unix.Close(g)
	if d, ok := ctx.Deadline(); ok {
		st.SetReadDeadline(d) //nolint:errcheck // a FIFO takes deadlines
	}
	if err := exec.ReleaseDetached(g, st, p.path); err != nil {
		return p.explain(err)
	}
	return p.c.note(func(r *record) { r.Started = true })
}

// note changes the record of a detached container.
func (c *Container) note(change func(*record)) error {
	if !c.opts.Detached {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.rec)
	return c.rec.save(c.state)
}

// pidfd opens the recorded first process; -1 if it is gone and the number may be
// someone else's.
func (r *record) pidfd(h *hostState) (int, error) {
	if r.PID == 0 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open %d: %w", r.PID, err)
	}
	start, err := startTime(h.proc, fd, r.PID)
	if err != nil || start != r.StartTime {
		unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// WatchOOM calls f for each OOM kill in a container that was taken up, until
// Close. f must not block.
func (c *Container) WatchOOM(f func()) error {
	if c.group == nil {
		return fmt.Errorf("watch container %q: %w", c.opts.ID, ErrNotFound)
	}
	c.opts.OnOOM = f
	return c.watchOOM()
}

// Spec is the container's configuration.
func (c *Container) Spec() *specs.Spec { return c.spec }

// SeccompFlags are the flags of the seccomp filter (SECCOMP_FILTER_FLAG_*); false
// if there is none.
func (c *Container) SeccompFlags() (flags uint, ok bool) {
	if c.seccomp == nil {
		return 0, false
	}
	return c.seccomp.Flags, true
}

// Created is when the container was created.
func (c *Container) Created() time.Time { return c.rec.Created }

// Close lets go of the container without changing it.
func (c *Container) Close() { c.release() }

// RootPath is where the root is on the host.
func (c *Container) RootPath() string { return rootPath(c.spec, c.opts.Bundle) }

// WantsTerminal reads process.terminal from a bundle.
func WantsTerminal(bundle string) (bool, error) {
	dir, err := pathsafe.OpenState(bundle)
	if err != nil {
		return false, fmt.Errorf("open the bundle: %w", err)
	}
	defer dir.Close()
	spec, err := loadSpec(dir)
	if err != nil {
		return false, err
	}
	return spec.Process != nil && spec.Process.Terminal, nil
}

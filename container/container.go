package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/pathsafe"
)

// Container is a created container. Its methods may be called from any
// goroutine. Lock order: Container.mu, then Process.mu, then exec's own.
type Container struct {
	opts      CreateOptions
	spec      *specs.Spec
	state     *pathsafe.Dir
	group     group
	root      *pathsafe.Dir // the container's root, seen from outside
	initFD    int           // a pidfd of the first process, for joining its namespaces
	devpts    int           // -1: none
	seccomp   *seccomp.Filter
	init      *Process
	delegated *pathsafe.Dir // see delegate.go
	oom       *os.File
	treeKill  bool        // see chooseTreeKill; fixed after Create
	holder    *exec.Child // during Create: keeps systemd's scope from ending

	// slow serialises Pause, Resume, Update and Delete; it is held during their
	// work and never needed for a question.
	slow sync.Mutex

	paused atomic.Bool // written under slow

	mu       sync.Mutex
	procs    map[string]*Process // guarded by mu; execs by ID
	deleted  bool                // guarded by mu
	ended    []*Process          // guarded by mu: exits not handed out yet
	draining bool                // guarded by mu
	wake     chan struct{}       // holds one token after ended grew
	rec      record              // guarded by mu

	leafNumber atomic.Uint64
	leafMu     sync.Mutex
	leaves     []*cgroups.Leaf // guarded by leafMu: of deleted execs, and in use

	statMu sync.Mutex
	final  *cgroups.Stats // guarded by statMu: the reading at exit
	oomMu  sync.Mutex
	ooms   uint64 // guarded by oomMu: kills reported
}

// ID returns the container's ID.
func (c *Container) ID() string { return c.opts.ID }

// Bundle returns the bundle's path.
func (c *Container) Bundle() string { return c.opts.Bundle }

// Init returns the first process.
func (c *Container) Init() *Process { return c.init }

// Process returns an exec by its ID, the first process for "". ErrNotFound.
func (c *Container) Process(execID string) (*Process, error) {
	if execID == "" {
		return c.init, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.procs[execID]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("process %q in container %q: %w", execID, c.opts.ID, ErrNotFound)
}

// Exec adds a process, which Start starts. ErrExists if the ID is taken, a
// StateError after the first process ended.
func (c *Container) Exec(id string, spec *specs.Process, terminal bool) (*Process, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if spec.Terminal != terminal {
		return nil, invalid("process.terminal", "is %v, the request says %v", spec.Terminal, terminal)
	}
	if err := validateProcess(spec); err != nil {
		return nil, err
	}
	ep, err := c.process(spec)
	if err != nil {
		return nil, err
	}
	p := newProcess(c, id, ep)
	p.consoleSize(spec)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.procs[id] != nil {
		return nil, fmt.Errorf("process %q in container %q: %w", id, c.opts.ID, ErrExists)
	}
	if s := c.init.Status(); s == Stopped {
		return nil, &StateError{"add a process to", s}
	}
	c.procs[id] = p
	return p, nil
}

// Kill sends sig to every process of the container. SIGKILL ends those too that
// are forked meanwhile.
func (c *Container) Kill(ctx context.Context, sig unix.Signal) error {
	if c.isDeleted() {
		return errEnded
	}
	if sig == unix.SIGKILL {
		if err := c.group.Kill(ctx); err != nil {
			return fmt.Errorf("kill container %q: %w", c.opts.ID, err)
		}
		return nil
	}
	pids, err := c.group.Procs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := c.killMember(pid, sig); err != nil {
			return err
		}
	}
	return nil
}

// killMember signals a process that was read from the cgroup, if it is still in
// there once it cannot change its identity any more.
func (c *Container) killMember(pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	pids, err := c.group.Procs()
	if err != nil {
		return err
	}
	for _, p := range pids {
		if p == pid {
			err = unix.PidfdSendSignal(fd, sig, nil, 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("pidfd_send_signal", err)
			}
		}
	}
	return nil
}

func (c *Container) isDeleted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleted
}

// Pids lists the processes in the container's cgroup.
func (c *Container) Pids() ([]ProcessInfo, error) {
	if c.isDeleted() {
		return nil, fmt.Errorf("container %q: %w", c.opts.ID, ErrNotFound)
	}
	if s := c.init.Status(); s == Stopped {
		// An empty list would tell containerd, after its restart, that the shim
		// is a left-over.
		return nil, &StateError{"list the processes of", s}
	}
	pids, err := c.group.Procs()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	ids := make(map[int]string, len(c.procs))
	for id, p := range c.procs {
		ids[p.PID()] = id
	}
	c.mu.Unlock()
	out := make([]ProcessInfo, 0, len(pids))
	for _, pid := range pids {
		out = append(out, ProcessInfo{PID: pid, ExecID: ids[pid]})
	}
	return out, nil
}

// Stats reads the cgroup. After the first process ended and the cgroup went
// away, it gives the reading taken at the end, until Delete.
func (c *Container) Stats(s *cgroups.Stats) error {
	if c.isDeleted() {
		return fmt.Errorf("container %q: %w", c.opts.ID, ErrNotFound)
	}
	c.statMu.Lock()
	defer c.statMu.Unlock()
	err := c.group.Stat(s)
	if err != nil && c.final != nil {
		*s = *c.final.Clone()
		return nil
	}
	return err
}

// Pause freezes every process.
func (c *Container) Pause(ctx context.Context) error {
	c.slow.Lock()
	defer c.slow.Unlock()
	if s := c.init.Status(); s != Running {
		return &StateError{"pause", s}
	}
	if err := c.group.Freeze(ctx); err != nil {
		return fmt.Errorf("pause container %q: %w", c.opts.ID, err)
	}
	c.paused.Store(true)
	return c.note(func(r *record) { r.Paused = true })
}

// Resume thaws them.
func (c *Container) Resume(ctx context.Context) error {
	c.slow.Lock()
	defer c.slow.Unlock()
	if s := c.init.Status(); s != Paused {
		return &StateError{"resume", s}
	}
	if err := c.group.Thaw(ctx); err != nil {
		return fmt.Errorf("resume container %q: %w", c.opts.ID, err)
	}
	c.paused.Store(false)
	return c.note(func(r *record) { r.Paused = false })
}

// thawForKill lets a paused container die of a SIGKILL that was sent to it: a
// process frozen by cgroup v1 acts on no signal (freezer-subsystem.rst).
func (c *Container) thawForKill() error {
	c.slow.Lock()
	defer c.slow.Unlock()
	if !c.paused.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), thawTimeout)
	defer cancel()
	if err := c.group.Thaw(ctx); err != nil {
		return fmt.Errorf("thaw container %q to kill it: %w", c.opts.ID, err)
	}
	c.paused.Store(false)
	return nil
}

// thawTimeout bounds the thaw behind a SIGKILL.
const thawTimeout = 5 * time.Second

// Update changes the limits that res names and no others.
func (c *Container) Update(_ context.Context, res *specs.LinuxResources) error {
	c.slow.Lock()
	defer c.slow.Unlock()
	if s := c.init.Status(); s == Stopped {
		return &StateError{"update", s}
	}
	if err := c.group.Set(res); err != nil {
		return fmt.Errorf("update container %q: %w", c.opts.ID, err)
	}
	return nil
}

// Delete removes what the container has on the host. The first process must
// have ended, or never have been started: then it is killed. It may be called
// again after an error or when it is done.
func (c *Container) Delete(ctx context.Context) error {
	c.slow.Lock()
	defer c.slow.Unlock()
	if c.isDeleted() {
		return nil
	}
	if err := c.endUnstarted(ctx); err != nil {
		return err
	}
	if s := c.init.Status(); s != Stopped {
		return &StateError{"delete", s}
	}
	if c.group != nil { // nil for one taken up whose cgroup is gone
		if err := c.group.Kill(ctx); err != nil {
			return fmt.Errorf("delete container %q: %w", c.opts.ID, err)
		}
		if err := c.group.Delete(ctx); err != nil {
			return fmt.Errorf("delete container %q: %w", c.opts.ID, err)
		}
	}
	if err := c.forget(); err != nil {
		return fmt.Errorf("delete container %q: %w", c.opts.ID, err)
	}
	c.mu.Lock()
	c.deleted = true
	c.mu.Unlock()
	c.release()
	c.warn(poststop(ctx, hooksOf(c.spec.Hooks, "poststop"), c.ociState(specs.StateStopped, 0)))
	return nil
}

// endUnstarted kills a first process that still waits for its start.
func (c *Container) endUnstarted(ctx context.Context) error {
	if c.init.Status() != Created {
		return nil
	}
	if err := c.init.Kill(unix.SIGKILL); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	select {
	case <-c.init.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete container %q: %w", c.opts.ID, context.Cause(ctx))
	}
}

// forget removes the container's files from the state directory.
func (c *Container) forget() error {
	names := []pathsafe.Name{recordName}
	if c.opts.Detached {
		names = append(names, goName, statusName, specName)
	}
	for _, n := range names {
		if err := c.state.Unlink(n); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// warn hands on what went wrong and changes nothing.
func (c *Container) warn(err error) {
	if err != nil && c.opts.OnWarning != nil {
		c.opts.OnWarning(fmt.Errorf("container %q: %w", c.opts.ID, err))
	}
}

// release closes everything that is held open for the container.
func (c *Container) release() {
	if c.oom != nil {
		c.oom.Close()
	}
	c.init.closeConsole()
	c.closeLeaves()
	if c.group != nil {
		c.group.Close()
	}
	for _, d := range []*pathsafe.Dir{c.root, c.delegated} {
		if d != nil {
			d.Close()
		}
	}
	for _, fd := range []*int{&c.devpts, &c.initFD} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	if c.state != nil {
		c.state.Close()
	}
}

// newPTY allocates a terminal for an exec in the container's own instance.
func (c *Container) newPTY() (*rootfs.PTY, error) { return rootfs.OpenPTY(c.devpts) }

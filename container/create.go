package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/pathsafe"
)

// Create builds a container up to the point where only execve of its program
// is missing. After an error nothing is left: no process, cgroup, mount or file.
//
// ErrExists if the ID's record is there already, ErrInvalid and ErrUnsupported
// for the configuration.
func Create(ctx context.Context, o CreateOptions) (_ *Container, err error) {
	if err := checkID(o.ID); err != nil {
		return nil, err
	}
	h, err := host()
	if err != nil {
		return nil, err
	}
	c := &Container{opts: o, initFD: -1, devpts: -1, procs: map[string]*Process{}, wake: make(chan struct{}, 1)}
	c.init = newProcess(c, "", nil)
	c.init.starting.Lock()
	defer c.init.starting.Unlock() // after undo: an exit is reported of what was created only
	defer func() {
		if err != nil {
			c.undo()
			err = fmt.Errorf("create container %q: %w", o.ID, err)
		}
	}()
	bundle, err := pathsafe.OpenState(o.Bundle)
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	defer bundle.Close()
	if c.spec, err = loadSpec(bundle); err != nil {
		return nil, err
	}
	if err := inheritMappings(ctx, h, c.spec); err != nil {
		return nil, err
	}
	if p := c.firstProcess(); p.Terminal != o.Terminal {
		return nil, invalid("process.terminal", "is %v, the request says %v", p.Terminal, o.Terminal)
	}
	if err := c.openState(); err != nil {
		return nil, err
	}
	if err := c.compileSeccomp(); err != nil {
		return nil, err
	}
	if c.init.spec, err = c.process(c.firstProcess()); err != nil {
		return nil, err
	}
	c.init.consoleSize(c.firstProcess())
	if err := c.chooseTreeKill(); err != nil {
		return nil, err
	}
	if err := c.assemble(ctx, h); err != nil {
		return nil, err
	}
	return c, c.watchOOM()
}

// assemble makes the container's parts: the root, in which the program is looked
// up where that can be told by now, the cgroup, and the first process.
func (c *Container) assemble(ctx context.Context, h *hostState) error {
	rfs, err := rootfs.Open(c.rootfsConfig())
	if err != nil {
		return err
	}
	defer rfs.Close()
	if err := c.lookupEarly(rfs.Dir()); err != nil {
		return err
	}
	if err := c.makeGroup(ctx, h); err != nil {
		return err
	}
	if err := c.saveSpec(); err != nil {
		return err
	}
	return c.build(ctx, h, rfs)
}

// firstProcess is the spec's process, or a placeholder that is never executed.
func (c *Container) firstProcess() *specs.Process {
	if c.spec.Process != nil {
		return c.spec.Process
	}
	return &specs.Process{Cwd: "/", Args: []string{"no process"}}
}

// openState opens the directory of the record and makes sure that the ID is
// free.
func (c *Container) openState() error {
	dir := c.opts.StateDir
	if dir == "" {
		dir = c.opts.Bundle
	}
	state, err := pathsafe.OpenState(dir)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	_, err = loadRecord(state)
	if err == nil {
		state.Close()
		return fmt.Errorf("a record of it is there: %w", ErrExists)
	}
	if !errors.Is(err, ErrNotFound) {
		state.Close()
		return err
	}
	c.state = state
	return nil
}

func (c *Container) compileSeccomp() (err error) {
	if c.seccomp, err = seccomp.Compile(c.spec.Linux.Seccomp); err != nil {
		return fmt.Errorf("linux.seccomp: %w: %w", err, ErrInvalid)
	}
	return nil
}

// makeGroup writes the record first: whoever cleans up after a crash has to
// find the cgroup.
func (c *Container) makeGroup(ctx context.Context, h *hostState) error {
	p, err := cgroups.ParsePath(c.spec.Linux.CgroupsPath, c.opts.ID)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	c.rec = record{
		Version: recordVersion, ID: c.opts.ID, Bundle: c.opts.Bundle,
		CgroupsPath: c.spec.Linux.CgroupsPath, Created: time.Now(),
	}
	if err := c.rec.save(c.state); err != nil {
		return err
	}
	if c.group, c.holder, err = createGroup(ctx, h.layout, p, c.spec); err != nil {
		return err
	}
	return c.delegate()
}

// dropHolder ends the process that kept a scope alive.
func (c *Container) dropHolder() {
	if c.holder != nil {
		c.holder.Abort()
		c.holder = nil
	}
}

// build prepares the root file system, starts the first process and waits until
// it is ready.
func (c *Container) build(ctx context.Context, h *hostState, rfs *rootfs.Rootfs) error {
	s, done, err := c.firstStart(ctx, h, rfs)
	defer done()
	if err != nil {
		return err
	}
	p := c.init
	s.Notify = func() { c.exited(p) }
	agent, err := c.connectAgent()
	if err != nil {
		return err
	}
	defer closeAgent(agent)
	s.Listener = c.tellAgent(agent, specs.StateCreating)
	if c.opts.Detached {
		closeFIFOs, err := c.makeFIFOs(s)
		defer closeFIFOs()
		if err != nil {
			return err
		}
	}
	child, err := exec.Run(ctx, s)
	if errors.Is(err, exec.ErrPIDsLimit) && s.Place.CgroupInto >= 0 {
		// The limit refuses a birth in the cgroup, not a migration into it.
		s.Place.CgroupProcs = append(s.Place.CgroupProcs, s.Place.CgroupInto)
		s.Place.CgroupInto = -1
		child, err = exec.Run(ctx, s)
	}
	if err != nil {
		return err
	}
	c.dropHolder()
	p.mu.Lock()
	p.child = child
	p.mu.Unlock()
	return c.ready(h, child)
}

// firstStart describes the start of the first process: all that is made for it
// in advance but the way to wait for us. done closes what it needs.
func (c *Container) firstStart(ctx context.Context, h *hostState, rfs *rootfs.Rootfs) (s *exec.Start, done func(), err error) {
	ns, err := openNamespaces(c.spec)
	done = ns.close
	if err != nil {
		return nil, done, err
	}
	err = rfs.Prepare(rootfs.Place{
		PIDNamespace: ns.fd(unix.CLONE_NEWPID), UserNS: ns.fd(unix.CLONE_NEWUSER),
		Cgroup: rootfs.Cgroup{
			V2: h.layout.Mode == cgroups.V2, Private: private(c.spec, specs.CgroupNamespace), Dirs: cgroupDirs(c.group),
		},
	})
	if err != nil {
		return nil, done, err
	}
	ep := *c.init.spec
	ep.Extra = c.opts.Stdio.Extra
	ep.Env = append(slices.Clone(ep.Env), c.opts.Env...)
	setHome(&ep, rfs.Dir())
	if pty := rfs.PTY(); pty != nil {
		done = func() {
			ns.close()
			unix.Close(pty.Replica)
		}
		if err := c.init.setConsole(pty.Master); err != nil {
			return nil, done, err
		}
		err = c.useTerminal(&ep, pty)
	} else {
		err = c.usePipes(&ep, c.opts.Stdio)
	}
	if err != nil {
		return nil, done, err
	}
	s = &exec.Start{
		Process: &ep,
		Place: &exec.Place{
			Proc: h.proc.FD(), New: newFlags(c.spec), Join: ns, JoinOf: -1,
			CgroupTasks: c.group.JoinFDs(), CgroupInto: c.group.IntoFD(), CgroupBelow: c.moveBelow(),
		},
		SetupFDs: rfs.FDs(), SetupInside: rfs.Inside(),
		Hold: true,
	}
	if pauses(c.spec) {
		// The hooks are told the PID, so the process has to be there by then.
		s.SetupInside = true
		s.Pause = func(child *exec.Child) error { return c.atPivot(ctx, child) }
	}
	closeSetup, err := c.addSetup(s, rfs)
	closeNS := done
	return s, func() { closeSetup(); closeNS() }, err
}

// addSetup adds the steps between the namespaces and the process's own.
func (c *Container) addSetup(s *exec.Start, rfs *rootfs.Rootfs) (done func(), err error) {
	done = func() {}
	full := -1
	if len(c.spec.Linux.Sysctl) > 0 {
		proc, err := pathsafe.OpenProc(false)
		if err != nil {
			return done, err
		}
		done = func() { proc.Close() }
		full = proc.FD()
		s.SetupFDs = append(s.SetupFDs, full)
	}
	s.Setup = func(b *plan.Builder, pause func()) {
		if s.Pause == nil {
			pause = nil
		}
		b.About("hostname")
		if c.spec.Hostname != "" {
			b.SetHostname(c.spec.Hostname)
		}
		if c.spec.Domainname != "" {
			b.SetDomainname(c.spec.Domainname)
		}
		sysctlSteps(b, full, c.spec.Linux.Sysctl)
		rfs.Steps(b, pause)
	}
	return done, nil
}

func (c *Container) rootfsConfig() rootfs.Config {
	l := c.spec.Linux
	cfg := rootfs.Config{
		Bundle: c.opts.Bundle, Path: rootPath(c.spec, c.opts.Bundle), Readonly: c.spec.Root.Readonly,
		Mounts: c.spec.Mounts, Devices: l.Devices, Masked: l.MaskedPaths, ReadonlyPaths: l.ReadonlyPaths,
		Propagation: l.RootfsPropagation, Cwd: c.firstProcess().Cwd, Terminal: c.opts.Terminal,
		IDs: c.ids(), NewUserNS: newUserNS,
		HostNetwork: !private(c.spec, specs.NetworkNamespace) && private(c.spec, specs.UserNamespace),
	}
	for _, m := range c.opts.Rootfs {
		cfg.Layers = append(cfg.Layers, rootfs.Layer(m))
	}
	return cfg
}

// ready finishes a container whose first process waits: what is needed later is
// opened, the record completed, and the program looked up with every mount in
// its place.
func (c *Container) ready(h *hostState, child *exec.Child) error {
	var err error
	if c.initFD, err = child.Pidfd(); err == nil {
		c.root, err = h.proc.Root(c.initFD, child.PID)
	}
	if err == nil {
		c.devpts, err = rootfs.OpenDevpts(c.root.FD())
	}
	if err == nil {
		c.rec.StartTime, err = startTime(h.proc, c.initFD, child.PID)
	}
	if err != nil {
		return fmt.Errorf("look into the new container: %w", err)
	}
	if c.spec.Process != nil {
		if c.init.path, err = c.lookup(c.init.spec); err != nil {
			return err
		}
	}
	c.rec.PID, c.rec.Path = child.PID, c.init.path
	return c.rec.save(c.state)
}

// undo takes back what a failing Create made, in the reverse order.
func (c *Container) undo() {
	if child := c.init.child; child != nil {
		child.Abort()
		c.init.mu.Lock()
		c.init.child = nil // its exit is nobody's business
		c.init.mu.Unlock()
	}
	c.dropHolder()
	if c.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		c.group.Kill(ctx)   //nolint:errcheck // the cause is what is reported
		c.group.Delete(ctx) //nolint:errcheck // as above; `delete` tries again
	}
	if c.state != nil && c.rec.Version != 0 {
		c.forget() //nolint:errcheck // as above
	}
	c.release()
}

// undoTimeout bounds the clean-up after a failed Create.
const undoTimeout = 5 * time.Second

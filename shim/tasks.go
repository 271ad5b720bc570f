package shim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/ocijson"
	"github.com/ibex-run/ibex/shim/wire"
)

// service serves the Task API for all containers of one shim.
type service struct {
	namespace string
	events    *publisher
	memory    *memory

	mu       sync.Mutex // above task.mu
	tasks    map[string]*task
	creating map[string]struct{} // guarded by mu: IDs whose Create is under way
	poll     *poller             // guarded by mu, made when first needed
	used     bool                // guarded by mu: there was a Create
	stopping bool                // guarded by mu
	stop     chan struct{}       // closed when the shim is to end
}

func newService(namespace string, events *publisher) *service {
	return &service{
		namespace: namespace, events: events, memory: newMemory(),
		tasks: map[string]*task{}, creating: map[string]struct{}{}, stop: make(chan struct{}),
	}
}

func (s *service) task(id string) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	if t == nil {
		return nil, fmt.Errorf("container %s: %w", id, errNotFound)
	}
	return t, nil
}

func (s *service) lookup(id, execID string) (*task, *process, *container.Process, error) {
	t, err := s.task(id)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := t.process(execID)
	if err != nil {
		return nil, nil, nil, err
	}
	cp, err := p.handle()
	return t, p, cp, err
}

// poller is made with the first container that has input or output.
func (s *service) poller() (*poller, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poll == nil {
		var err error
		if s.poll, err = newPoller(); err != nil {
			return nil, err
		}
	}
	return s.poll, nil
}

// claim takes an ID for a container that is being created.
func (s *service) claim(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return fmt.Errorf("create container %s: the shim is shutting down: %w", id, errPrecondition)
	}
	_, creating := s.creating[id]
	if creating || s.tasks[id] != nil {
		return fmt.Errorf("container %s: %w", id, errExists)
	}
	s.creating[id] = struct{}{}
	s.used = true
	return nil
}

// settleClaim ends a creation, with the task or nil.
func (s *service) settleClaim(id string, t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.creating, id)
	if t != nil {
		s.tasks[id] = t
	}
}

// Create makes a container, up to the point where only Start is missing.
func (s *service) Create(ctx context.Context, r *wire.CreateRequest) (*wire.PidResponse, error) {
	if r.Checkpoint != "" {
		return nil, fmt.Errorf("restore from checkpoint: %w", errUnimplemented)
	}
	o, err := parseOptions(r.Options)
	if err != nil {
		return nil, err
	}
	conf, err := container.NodeConfig()
	if err != nil {
		log.L.WithError(err).Warn("the node's configuration")
	}
	o.fillFrom(conf.Options)
	if names := o.ignored(); len(names) > 0 {
		log.L.WithField("id", r.ID).Infof("runtime options without meaning here: %s", strings.Join(names, ", "))
	}
	if err := s.claim(r.ID); err != nil {
		return nil, err
	}
	t, err := s.create(ctx, r, o)
	if err != nil {
		s.settleClaim(r.ID, nil)
		return nil, err
	}
	init := t.c.Init()
	s.settleClaim(r.ID, t)
	t.procs[""].settle(true, &wire.TaskCreate{
		ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Checkpoint: r.Checkpoint, Pid: uint32(init.PID()),
		IO: &wire.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
	})
	s.memory.touch()
	return &wire.PidResponse{Pid: uint32(init.PID())}, nil
}

func (s *service) create(ctx context.Context, r *wire.CreateRequest, o options) (*task, error) {
	poll, err := s.poller()
	if err != nil {
		return nil, err
	}
	t := newTask(r.ID, r.Bundle, s.events)
	t.owner = ioOwner{o.IoUid, o.IoGid}
	spec := ioSpec{r.Stdin, r.Stdout, r.Stderr, r.Terminal}
	p, err := t.reserve("", spec, t.owner)
	if err != nil {
		return nil, err
	}
	io, err := openIO(ctx, poll, spec, t.owner, logID{r.ID, s.namespace})
	if err != nil {
		return nil, err
	}
	// Before Create: a container may end before this call returns.
	p.io = io
	t.c, err = container.Create(ctx, container.CreateOptions{
		ID: r.ID, Bundle: r.Bundle, Rootfs: rootfsMounts(r), Terminal: r.Terminal,
		Stdio: io.child, NoNewKeyring: o.NoNewKeyring, ExecTreeKill: o.ExecTreeKill,
		OnExit:    t.onExit,
		OnOOM:     func() { s.events.publish(&wire.TaskOOM{ContainerID: r.ID}) },
		OnWarning: func(err error) { log.L.WithError(err).Warn("container") },
	})
	if err != nil {
		io.abort()
		return nil, err
	}
	t.mu.Lock()
	p.p = t.c.Init()
	t.mu.Unlock()
	over, err := overflowOf(o, t.c.Spec().Annotations)
	if over != nil {
		over.warn = func(n int64) {
			log.L.WithField("id", r.ID).Warnf("%d bytes of output dropped: its reader did not take them", n)
		}
		io.useOverflow(over)
	}
	if err == nil {
		err = io.started(t.c.Init().Console())
	}
	if err != nil {
		io.abort()
		if derr := t.c.Delete(ctx); derr != nil {
			log.L.WithError(derr).WithField("id", r.ID).Error("remove a container whose input and output could not be attached")
		}
		return nil, err
	}
	return t, nil
}

func rootfsMounts(r *wire.CreateRequest) []container.RootfsMount {
	var mounts []container.RootfsMount
	for _, m := range r.Rootfs {
		mounts = append(mounts, container.RootfsMount{
			Type: m.Type, Source: m.Source, Target: m.Target, Options: slices.Clone(m.Options),
		})
	}
	return mounts
}

// deleteTask removes a container whose first process has ended or never
// started. If it does not succeed, another Delete goes on where it stopped.
func (s *service) deleteTask(ctx context.Context, t *task, p *process, cp *container.Process) error {
	if cp.Status() == container.Created {
		if err := p.killCreated(ctx, cp); err != nil {
			return err
		}
	}
	if err := p.quiesce(ctx, cp); err != nil {
		return err
	}
	if err := t.delete(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if s.tasks[t.id] == t {
		delete(s.tasks, t.id)
	}
	s.mu.Unlock()
	exit, _ := exitOf(cp)
	s.events.publish(&wire.TaskDelete{
		ContainerID: t.id, Pid: uint32(cp.PID()), ExitStatus: exit.Code, ExitedAt: timestamp(exit.At),
	})
	return nil
}

// stopLocked asks serve to end. It is called with mu held.
func (s *service) stopLocked() {
	if !s.stopping {
		s.stopping = true
		close(s.stop)
	}
}

// decodeJSON decodes a part of the OCI specification, which travels as JSON
// under a type URL of its own.
func decodeJSON(a *wire.Any, name string, v any) error {
	if a == nil {
		return fmt.Errorf("%s is missing: %w", name, errInvalid)
	}
	if got := a.Name(); got != name {
		return fmt.Errorf("type %q where %s is expected: %w", a.TypeURL, name, errInvalid)
	}
	if err := ocijson.Unmarshal(a.Value, v); err != nil {
		return fmt.Errorf("decode %s: %w: %w", name, err, errInvalid)
	}
	return nil
}

// timestamp is nil for the zero time: a process that has not ended.
func timestamp(t time.Time) *wire.Timestamp {
	if t.IsZero() {
		return nil
	}
	return wire.NewTimestamp(t)
}

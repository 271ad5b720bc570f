package shim

import (
	"context"
	"fmt"
	"sync"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

// task is one container as containerd sees it: its processes and the order of
// what is said about them.
type task struct {
	id     string
	bundle string
	owner  ioOwner
	events *publisher

	// c is set once, before the task is found by its ID.
	c *container.Container

	mu    sync.Mutex          // below service.mu; never held during slow work
	procs map[string]*process // guarded by mu, by exec ID; "" is the first
	// exits are processes that ended and whose exit was not announced yet, in
	// order. Guarded by mu.
	exits []*process
	// gone is set when Delete has succeeded. Guarded by mu.
	gone bool
}

func newTask(id, bundle string, events *publisher) *task {
	return &task{id: id, bundle: bundle, events: events, procs: map[string]*process{}}
}

// process finds one by its exec ID.
func (t *task) process(execID string) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.procs[execID]
	if p == nil {
		return nil, fmt.Errorf("process %s of container %s: %w", execID, t.id, errNotFound)
	}
	return p, nil
}

// reserve makes the entry for a process, of which there may be one for each ID.
func (t *task) reserve(execID string, spec ioSpec, owner ioOwner) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil, fmt.Errorf("container %s: %w", t.id, errNotFound)
	}
	if t.procs[execID] != nil {
		return nil, fmt.Errorf("process %s of container %s: %w", execID, t.id, errExists)
	}
	p := &process{t: t, id: execID, spec: spec, owner: owner, exited: make(chan struct{})}
	t.procs[execID] = p
	return p, nil
}

func (t *task) forget(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.procs[p.id] == p {
		delete(t.procs, p.id)
	}
}

// onExit is the container's callback: a process has ended. Exits arrive in the
// order in which they are to be announced, execs before the first process.
func (t *task) onExit(cp *container.Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.procs[cp.ID()]
	if p == nil {
		return
	}
	p.p = cp
	t.exits = append(t.exits, p)
	t.announce()
}

// announce publishes exits, up to the first whose start has not been published
// yet. Start does that and calls announce again. It is called with mu held.
func (t *task) announce() {
	for len(t.exits) > 0 && t.exits[0].settled {
		p := t.exits[0]
		t.exits = t.exits[1:]
		st := p.p.ExitStatus()
		t.events.publish(&wire.TaskExit{
			ContainerID: t.id, ID: p.name(), Pid: uint32(p.p.PID()),
			ExitStatus: st.Code, ExitedAt: wire.NewTimestamp(st.At),
		})
		if p.io != nil {
			p.io.exited()
		}
		p.ended = true
		p.unblock()
	}
}

// delete removes the container. The first process has ended or never started.
func (t *task) delete(ctx context.Context) error {
	if err := t.c.Delete(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	t.gone = true
	procs := make([]*process, 0, len(t.procs))
	for _, p := range t.procs {
		procs = append(procs, p)
	}
	clear(t.procs)
	t.mu.Unlock()
	for _, p := range procs {
		p.release()
	}
	return nil
}

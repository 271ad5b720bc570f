package shim

import (
	"context"
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

// The Task API. Each method decodes, asks one thing of a task, encodes. Errors
// get their codes in register.go.

var empty = &wire.Empty{}

// State reports what is known of a process, from memory alone.
func (s *service) State(_ context.Context, r *wire.ProcessRequest) (*wire.StateResponse, error) {
	t, p, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	status := statusOf(cp.Status())
	exit, ended := exitOf(cp)
	if status == wire.Stopped && !ended {
		status = wire.Running // how it ended is not known yet
	}
	return &wire.StateResponse{
		ID: p.name(), Bundle: t.bundle, Pid: uint32(cp.PID()), Status: status,
		Stdin: p.spec.stdin, Stdout: p.spec.stdout, Stderr: p.spec.stderr, Terminal: p.spec.terminal,
		ExitStatus: exit.Code, ExitedAt: timestamp(exit.At), ExecID: r.ExecID,
	}, nil
}

func statusOf(st container.Status) wire.State {
	switch st {
	case container.Created:
		return wire.Created
	case container.Running:
		return wire.Running
	case container.Paused:
		return wire.Paused
	case container.Stopped:
		return wire.Stopped
	}
	return wire.Unknown
}

// Start runs a process that Create or Exec has prepared.
func (s *service) Start(ctx context.Context, r *wire.ProcessRequest) (*wire.PidResponse, error) {
	_, p, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	poll, err := s.poller()
	if err != nil {
		return nil, err
	}
	if err := p.start(ctx, poll, logID{r.ID, s.namespace}); err != nil {
		return nil, err
	}
	s.memory.touch()
	return &wire.PidResponse{Pid: uint32(cp.PID())}, nil
}

// Delete removes a process, or the container with its first one.
func (s *service) Delete(ctx context.Context, r *wire.ProcessRequest) (*wire.DeleteResponse, error) {
	t, p, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if r.ExecID != "" {
		err = p.deleteExec(ctx, cp)
	} else {
		err = s.deleteTask(ctx, t, p, cp)
	}
	if err != nil {
		return nil, err
	}
	s.memory.touch()
	exit, _ := exitOf(cp)
	return &wire.DeleteResponse{Pid: uint32(cp.PID()), ExitStatus: exit.Code, ExitedAt: timestamp(exit.At)}, nil
}

// Exec adds a process to a container; Start runs it.
func (s *service) Exec(_ context.Context, r *wire.ExecRequest) (*wire.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	if r.ExecID == "" {
		return nil, fmt.Errorf("exec ID is empty: %w", errInvalid)
	}
	var spec specs.Process
	if err := decodeJSON(r.Spec, "Process", &spec); err != nil {
		return nil, err
	}
	spec.Terminal = r.Terminal // the request decides: clients hand over the first process's with other streams
	p, err := t.reserve(r.ExecID, ioSpec{r.Stdin, r.Stdout, r.Stderr, r.Terminal}, t.owner)
	if err != nil {
		return nil, err
	}
	cp, err := t.c.Exec(r.ExecID, &spec, r.Terminal)
	if err != nil {
		t.forget(p)
		return nil, err
	}
	t.mu.Lock()
	p.p = cp
	t.mu.Unlock()
	s.events.publish(&wire.TaskExecAdded{ContainerID: t.id, ExecID: r.ExecID})
	return empty, nil
}

// Wait returns when a process has ended.
func (s *service) Wait(ctx context.Context, r *wire.ProcessRequest) (*wire.WaitResponse, error) {
	_, p, _, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	st, err := p.wait(ctx)
	if err != nil {
		return nil, err
	}
	return &wire.WaitResponse{ExitStatus: st.Code, ExitedAt: timestamp(st.At)}, nil
}

// Kill sends a signal to a process, or to all of a container.
func (s *service) Kill(ctx context.Context, r *wire.KillRequest) (*wire.Empty, error) {
	t, _, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if r.Signal == 0 || r.Signal > maxSignal {
		return nil, fmt.Errorf("signal %d is not between 1 and %d: %w", r.Signal, maxSignal, errInvalid)
	}
	if r.All && r.ExecID == "" {
		err = t.c.Kill(ctx, unix.Signal(r.Signal))
	} else {
		err = cp.Kill(unix.Signal(r.Signal))
	}
	return empty, err
}

// maxSignal is SIGRTMAX (signal(7)).
const maxSignal = 64

// CloseIO lets a process see the end of its input.
func (s *service) CloseIO(_ context.Context, r *wire.CloseIORequest) (*wire.Empty, error) {
	_, p, _, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if r.Stdin {
		p.closeStdin()
	}
	return empty, nil
}

// ResizePty sets the size of a terminal, also of one that does not exist yet.
func (s *service) ResizePty(_ context.Context, r *wire.ResizeRequest) (*wire.Empty, error) {
	_, p, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if !p.spec.terminal {
		return empty, nil // clients resize whatever they attached to
	}
	return empty, cp.Resize(container.WinSize{Rows: uint16(r.Height), Cols: uint16(r.Width)})
}

// Pids lists the processes of a container, with the exec IDs of those that have
// one.
func (s *service) Pids(_ context.Context, r *wire.ContainerRequest) (*wire.PidsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	infos, err := t.c.Pids()
	if err != nil && t.c.Init().Status() == container.Stopped {
		// containerd 1.7 and 2.0, when they restart, end a shim that lists nothing or
		// answers with an error, and the exit would be lost. Until Delete the number
		// that the first process had is what there is to tell.
		infos, err = []container.ProcessInfo{{PID: t.c.Init().PID()}}, nil
	}
	if err != nil {
		return nil, err
	}
	res := &wire.PidsResponse{Processes: make([]*wire.ProcessInfo, 0, len(infos))}
	for _, in := range infos {
		pi := &wire.ProcessInfo{Pid: uint32(in.PID)}
		if in.ExecID != "" {
			pi.Info = &wire.Any{TypeURL: wire.DetailsName, Body: &wire.ProcessDetails{ExecID: in.ExecID}}
		}
		res.Processes = append(res.Processes, pi)
	}
	return res, nil
}

// Pause stops every process of a container.
func (s *service) Pause(ctx context.Context, r *wire.ContainerRequest) (*wire.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	if err := t.c.Pause(ctx); err != nil {
		return nil, err
	}
	s.events.publish(&wire.TaskPaused{ContainerID: t.id})
	return empty, nil
}

// Resume lets them go on.
func (s *service) Resume(ctx context.Context, r *wire.ContainerRequest) (*wire.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	if err := t.c.Resume(ctx); err != nil {
		return nil, err
	}
	s.events.publish(&wire.TaskResumed{ContainerID: t.id})
	return empty, nil
}

// Update changes limits of a container.
func (s *service) Update(ctx context.Context, r *wire.UpdateRequest) (*wire.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	var res specs.LinuxResources
	if err := decodeJSON(r.Resources, "LinuxResources", &res); err != nil {
		return nil, err
	}
	return empty, t.c.Update(ctx, &res)
}

// Stats reads the container's cgroup.
func (s *service) Stats(_ context.Context, r *wire.ContainerRequest) (*reading, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	st := readings.Get().(*reading)
	if err := t.c.Stats(&st.stats); err != nil {
		st.Release()
		return nil, err
	}
	st.wrap()
	return st, nil
}

// Connect tells who serves. It touches no container, so that a containerd that
// has just restarted never waits for one.
func (s *service) Connect(_ context.Context, r *wire.ContainerRequest) (*wire.ConnectResponse, error) {
	res := &wire.ConnectResponse{ShimPid: uint32(os.Getpid()), Version: "3"}
	if _, _, cp, err := s.lookup(r.ID, ""); err == nil {
		res.TaskPid = uint32(cp.PID())
	}
	return res, nil
}

// Checkpoint does not exist yet.
func (s *service) Checkpoint(context.Context, *wire.Empty) (*wire.Empty, error) {
	return nil, fmt.Errorf("checkpoint: %w", errUnimplemented)
}

// Shutdown ends the shim, unless it still serves containers.
func (s *service) Shutdown(context.Context, *wire.Empty) (*wire.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks)+len(s.creating) == 0 {
		s.stopLocked()
	}
	return empty, nil
}

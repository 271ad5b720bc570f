package shim

import (
	"context"
	"fmt"
	"os"

	apievents "github.com/containerd/containerd/api/events"
	api "github.com/containerd/containerd/api/runtime/task/v2"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container"
)

// The Task API. Each method decodes, asks one thing of a task, encodes. Errors
// get their codes in register.go.

var empty = &emptypb.Empty{}

// State reports what is known of a process, from memory alone.
func (s *service) State(_ context.Context, r *api.StateRequest) (*api.StateResponse, error) {
	t, p, cp, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	status := statusOf(cp.Status())
	exit, ended := exitOf(cp)
	if status == tasktypes.Status_STOPPED && !ended {
		status = tasktypes.Status_RUNNING // how it ended is not known yet
	}
	return &api.StateResponse{
		ID: p.name(), Bundle: t.bundle, Pid: uint32(cp.PID()), Status: status,
		Stdin: p.spec.stdin, Stdout: p.spec.stdout, Stderr: p.spec.stderr, Terminal: p.spec.terminal,
		ExitStatus: exit.Code, ExitedAt: timestamp(exit.At), ExecID: r.ExecID,
	}, nil
}

func statusOf(st container.Status) tasktypes.Status {
	switch st {
	case container.Created:
		return tasktypes.Status_CREATED
	case container.Running:
		return tasktypes.Status_RUNNING
	case container.Paused:
		return tasktypes.Status_PAUSED
	case container.Stopped:
		return tasktypes.Status_STOPPED
	}
	return tasktypes.Status_UNKNOWN
}

// Start runs a process that Create or Exec has prepared.
func (s *service) Start(ctx context.Context, r *api.StartRequest) (*api.StartResponse, error) {
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
	return &api.StartResponse{Pid: uint32(cp.PID())}, nil
}

// Delete removes a process, or the container with its first one.
func (s *service) Delete(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResponse, error) {
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
	return &api.DeleteResponse{Pid: uint32(cp.PID()), ExitStatus: exit.Code, ExitedAt: timestamp(exit.At)}, nil
}

// Exec adds a process to a container; Start runs it.
func (s *service) Exec(_ context.Context, r *api.ExecProcessRequest) (*emptypb.Empty, error) {
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
	s.events.publish(&apievents.TaskExecAdded{ContainerID: t.id, ExecID: r.ExecID})
	return empty, nil
}

// Wait returns when a process has ended.
func (s *service) Wait(ctx context.Context, r *api.WaitRequest) (*api.WaitResponse, error) {
	_, p, _, err := s.lookup(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	st, err := p.wait(ctx)
	if err != nil {
		return nil, err
	}
	return &api.WaitResponse{ExitStatus: st.Code, ExitedAt: timestamp(st.At)}, nil
}

// Kill sends a signal to a process, or to all of a container.
func (s *service) Kill(ctx context.Context, r *api.KillRequest) (*emptypb.Empty, error) {
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
func (s *service) CloseIO(_ context.Context, r *api.CloseIORequest) (*emptypb.Empty, error) {
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
func (s *service) ResizePty(_ context.Context, r *api.ResizePtyRequest) (*emptypb.Empty, error) {
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
func (s *service) Pids(_ context.Context, r *api.PidsRequest) (*api.PidsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	infos, err := t.c.Pids()
	if err != nil {
		return nil, err
	}
	res := &api.PidsResponse{Processes: make([]*tasktypes.ProcessInfo, 0, len(infos))}
	for _, in := range infos {
		pi := &tasktypes.ProcessInfo{Pid: uint32(in.PID)}
		if in.ExecID != "" {
			if pi.Info, err = pack(&runcoptions.ProcessDetails{ExecID: in.ExecID}); err != nil {
				return nil, err
			}
		}
		res.Processes = append(res.Processes, pi)
	}
	return res, nil
}

// Pause stops every process of a container.
func (s *service) Pause(ctx context.Context, r *api.PauseRequest) (*emptypb.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	if err := t.c.Pause(ctx); err != nil {
		return nil, err
	}
	s.events.publish(&apievents.TaskPaused{ContainerID: t.id})
	return empty, nil
}

// Resume lets them go on.
func (s *service) Resume(ctx context.Context, r *api.ResumeRequest) (*emptypb.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	if err := t.c.Resume(ctx); err != nil {
		return nil, err
	}
	s.events.publish(&apievents.TaskResumed{ContainerID: t.id})
	return empty, nil
}

// Update changes limits of a container.
func (s *service) Update(ctx context.Context, r *api.UpdateTaskRequest) (*emptypb.Empty, error) {
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
func (s *service) Stats(_ context.Context, r *api.StatsRequest) (*api.StatsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	st := statsPool.Get().(*cgroups.Stats)
	defer statsPool.Put(st)
	if err := t.c.Stats(st); err != nil {
		return nil, err
	}
	a, err := pack(metrics(st))
	if err != nil {
		return nil, err
	}
	return &api.StatsResponse{Stats: a}, nil
}

// Connect tells who serves. It touches no container, so that a containerd that
// has just restarted never waits for one.
func (s *service) Connect(_ context.Context, r *api.ConnectRequest) (*api.ConnectResponse, error) {
	res := &api.ConnectResponse{ShimPid: uint32(os.Getpid()), Version: "3"}
	if _, _, cp, err := s.lookup(r.ID, ""); err == nil {
		res.TaskPid = uint32(cp.PID())
	}
	return res, nil
}

// Checkpoint does not exist yet.
func (s *service) Checkpoint(context.Context, *api.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, fmt.Errorf("checkpoint: %w", errUnimplemented)
}

// Shutdown ends the shim, unless it still serves containers.
func (s *service) Shutdown(context.Context, *api.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks)+len(s.creating) == 0 {
		s.stopLocked()
	}
	return empty, nil
}

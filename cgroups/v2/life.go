package cgroup2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

var cgroupFreeze = pathsafe.MustName("cgroup.freeze")

// Freeze stops every process of the group and below it. It returns when all
// stand still; if ctx ends before, the group is thawed and the error is the
// context's. An empty group counts as frozen.
//
// cgroup.freeze: Linux 5.2, commit 76f969e8948d.
func (g *Group) Freeze(ctx context.Context) error {
	err := g.dir.Write(cgroupFreeze, []byte("1"))
	if err == nil {
		err = cgroups.WaitEvent(ctx, g.dir, cgroups.Frozen, true)
	}
	if err != nil {
		if e := g.dir.Write(cgroupFreeze, []byte("0")); e != nil && !errors.Is(e, pathsafe.ErrGone) {
			err = errors.Join(err, e)
		}
		return fmt.Errorf("freeze cgroup %s: %w", g.path, gone(err))
	}
	return nil
}

// Thaw lets the processes go on. Groups below that were frozen by themselves
// stay so.
func (g *Group) Thaw(ctx context.Context) error {
	err := g.dir.Write(cgroupFreeze, []byte("0"))
	if err == nil {
		// A frozen parent holds its children: then this does not come to an end.
		err = cgroups.WaitEvent(ctx, g.dir, cgroups.Frozen, false)
	}
	if err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.path, gone(err))
	}
	return nil
}

// Frozen reports whether the processes stand still.
func (g *Group) Frozen() (bool, error) {
	on, err := cgroups.ReadEvent(g.dir, cgroups.Frozen)
	if err != nil {
		return false, fmt.Errorf("read the state of cgroup %s: %w", g.path, gone(err))
	}
	return on, nil
}

func gone(err error) error {
	if errors.Is(err, pathsafe.ErrGone) {
		return errors.Join(cgroups.ErrGone, err)
	}
	return err
}

// Procs gives the processes of the group and of every group below it.
func (g *Group) Procs() ([]int, error) {
	pids, err := cgroups.Procs(g.dir, nil)
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.path, err)
	}
	return pids, nil
}

// Kill kills every process of the group and of every group below it, frozen ones
// included (the freezer of version 2 lets a fatal signal through), and returns
// when there are none left. If ctx ends before, the error is the context's.
//
// A threaded group has no cgroup.kill. There the group is frozen and every
// process signalled, until it is empty.
func (g *Group) Kill(ctx context.Context) error {
	done, err := cgroups.KillUnified(g.dir)
	if err == nil && !done {
		err = g.killWalk(ctx)
	}
	if err == nil {
		err = cgroups.WaitEvent(ctx, g.dir, cgroups.Populated, false)
	}
	if err != nil {
		return fmt.Errorf("kill cgroup %s: %w", g.path, err)
	}
	return nil
}

func (g *Group) killWalk(ctx context.Context) error {
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		// Freezing keeps them from forking faster than they are signalled. It
		// need not come to its end for that.
		if err := g.dir.Write(cgroupFreeze, []byte("1")); err != nil {
			return err
		}
		n, err := cgroups.SignalProcs(func() ([]int, error) { return cgroups.Procs(g.dir, nil) }, unix.SIGKILL)
		if e := g.dir.Write(cgroupFreeze, []byte("0")); e != nil {
			err = errors.Join(err, e)
		}
		if n == 0 || err != nil {
			return err
		}
		if err := cgroups.Pause(ctx, wait); err != nil {
			return fmt.Errorf("%d processes left: %w", n, err)
		}
	}
}

// Delete removes the group and every group below it. It waits for processes that
// are still dying, until ctx ends and at most deleteTime. A group that is not
// there is no error.
func (g *Group) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	parent, name, err := parentOf(g.root, g.path.Rel().String())
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = parent.RemoveCgroupTree(ctx, name)
		if parent != g.root {
			_ = parent.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("delete cgroup %s: %w", g.path, err)
	}
	return nil
}

// deleteTime bounds Delete under a context without a deadline. A killed process
// leaves its cgroup within milliseconds, or is stuck in the kernel for good.
const deleteTime = 10 * time.Second

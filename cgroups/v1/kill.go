package cgroup1

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Procs gives the processes of the group and of every group below it. The
// freezer hierarchy answers for all, or the first one if there is none.
func (g *Group) Procs() ([]int, error) {
	m := g.member("freezer")
	if m == nil {
		all := g.all()
		m = all[0]
	}
	pids, err := cgroups.Procs(m.dir, nil)
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.path, err)
	}
	return pids, nil
}

// everywhere gives the processes that are in the group in any hierarchy. They
// are in all of them, unless a process of the container may write to some.
func (g *Group) everywhere() ([]int, error) {
	var pids []int
	for _, m := range g.all() {
		var err error
		if pids, err = cgroups.Procs(m.dir, pids); err != nil {
			return nil, err
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Kill kills every process of the group and of every group below it, frozen ones
// included, and returns when there are none left. If ctx ends before, the error
// is the context's, and the groups are thawed all the same.
//
// On a hybrid host one write to cgroup.kill does it, and catches what forks
// meanwhile. Otherwise, and for processes that are not where they should be, the
// group is frozen, each process signalled, and thawed, until it is empty.
// Remaining race: a process that moves itself out of the group between the list
// and the signal, for which it needs a writable cgroup mount.
func (g *Group) Kill(ctx context.Context) error {
	if err := g.kill(ctx); err != nil {
		return fmt.Errorf("kill cgroup %s: %w", g.path, err)
	}
	return nil
}

func (g *Group) kill(ctx context.Context) error {
	atOnce := false
	if g.unified != nil {
		var err error
		if atOnce, err = cgroups.KillUnified(g.unified.dir); err != nil {
			return err
		}
	}
	// A task that the freezer of version 1 holds does not die of a signal before
	// it is thawed.
	if err := g.thawAll(); err != nil {
		return err
	}
	if atOnce {
		if err := g.waitUnified(ctx); err != nil {
			return err
		}
	}
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		n, err := g.killRound(ctx)
		if n == 0 || err != nil {
			return err
		}
		if err := cgroups.Pause(ctx, wait); err != nil {
			return fmt.Errorf("%d processes left: %w", n, err)
		}
	}
}

// waitUnified waits for the dead to leave, for a while: processes in the state
// D can take longer, and killRound is there for them.
func (g *Group) waitUnified(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := cgroups.WaitEvent(short, g.unified.dir, cgroups.Populated, false)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// killRound freezes, signals and thaws once, and returns the number of processes
// that were found.
func (g *Group) killRound(ctx context.Context) (n int, err error) {
	pids, err := g.everywhere()
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	if m := g.member("freezer"); m != nil {
		// Best effort: freezing only keeps them from forking faster than they are
		// signalled.
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := freeze(short, m.dir)
		cancel()
		defer func() {
			if e := g.thawAll(); e != nil && err == nil {
				err = e
			}
		}()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, pathsafe.ErrGone) {
			return len(pids), err
		}
	}
	return cgroups.SignalProcs(g.everywhere, unix.SIGKILL)
}

// Delete removes the group and every group below it from all hierarchies. It
// waits for processes that are still dying, until ctx ends and at most
// deleteTime. A group that is not there is no error.
func (g *Group) Delete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	at := g.path.Rel().String()
	var errs []error
	for _, m := range g.all() {
		parent, name, err := parentOf(m.Dir, at)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = parent.RemoveCgroupTree(ctx, name)
		}
		if parent != nil && parent != m.Dir {
			_ = parent.Close()
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete cgroup %s: %w", g.path, err)
	}
	return nil
}

// deleteTime bounds Delete under a context without a deadline. A killed process
// leaves its cgroup within milliseconds, or is stuck in the kernel for good.
const deleteTime = 10 * time.Second

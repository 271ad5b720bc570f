package cgroup1

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

// Values of freezer.state - Documentation/admin-guide/cgroup-v1/
// freezer-subsystem.rst.
const (
	thawed = "THAWED"
	frozen = "FROZEN"
)

var freezerStateFile = pathsafe.MustName("freezer.state")

func freezerState(dir *pathsafe.Dir) (string, error) {
	var buf [32]byte
	n, err := dir.Read(freezerStateFile, buf[:])
	return string(scan.Trim(buf[:n])), err
}

// Freeze stops every process of the group and below it. It returns when all
// stand still; if ctx ends before, the group is thawed and the error is the
// context's.
func (g *Group) Freeze(ctx context.Context) error {
	m := g.member("freezer")
	if m == nil {
		return g.freezeUnified(ctx)
	}
	if err := freeze(ctx, m.dir); err != nil {
		return fmt.Errorf("freeze cgroup %s: %w", g.path, err)
	}
	return nil
}

func freeze(ctx context.Context, dir *pathsafe.Dir) (err error) {
	defer func() {
		if err != nil {
			if e := dir.Write(freezerStateFile, []byte(thawed)); e != nil && !errors.Is(e, pathsafe.ErrGone) {
				err = errors.Join(err, e)
			}
		}
	}()
	// The state says FREEZING until the last task has stopped. A process that
	// joins or forks at the wrong moment can keep it so: writing FROZEN again
	// looks at all tasks anew (update_if_frozen, kernel/cgroup/legacy_freezer.c).
	// Thawing for a moment helps the tasks that wait for one already frozen.
	wait := 50 * time.Microsecond
	for try := 1; ; try++ {
		if try%32 == 0 {
			if err := dir.Write(freezerStateFile, []byte(thawed)); err != nil {
				return err
			}
		}
		if err := dir.Write(freezerStateFile, []byte(frozen)); err != nil {
			return err
		}
		state, err := freezerState(dir)
		if err != nil || state == frozen {
			return err
		}
		if err := cgroups.Pause(ctx, wait); err != nil {
			return fmt.Errorf("state is %s: %w", state, err)
		}
		wait = min(2*wait, 10*time.Millisecond)
	}
}

// Thaw lets the processes go on. Groups below that were frozen by themselves
// stay so.
func (g *Group) Thaw(ctx context.Context) error {
	m := g.member("freezer")
	if m == nil {
		return g.thawUnified(ctx)
	}
	if err := m.dir.Write(freezerStateFile, []byte(thawed)); err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.path, err)
	}
	state, err := freezerState(m.dir)
	if err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.path, err)
	}
	if state != thawed {
		// A frozen parent holds its children.
		return fmt.Errorf("thaw cgroup %s: state is %s: %w", g.path, state, unix.EBUSY)
	}
	return nil
}

var cgroupFreeze = pathsafe.MustName("cgroup.freeze")

// freezeUnified is for a hybrid host without a freezer hierarchy: cgroup.freeze
// needs no controller (Linux 5.2, commit 76f969e8948d).
func (g *Group) freezeUnified(ctx context.Context) error {
	if g.unified == nil {
		return fmt.Errorf("freeze cgroup %s: freezer: %w", g.path, cgroups.ErrNoController)
	}
	dir := g.unified.dir
	err := dir.Write(cgroupFreeze, []byte("1"))
	if err == nil {
		err = cgroups.WaitEvent(ctx, dir, cgroups.Frozen, true)
	}
	if err != nil {
		return fmt.Errorf("freeze cgroup %s: %w", g.path, errors.Join(err, dir.Write(cgroupFreeze, []byte("0"))))
	}
	return nil
}

func (g *Group) thawUnified(ctx context.Context) error {
	if g.unified == nil {
		return fmt.Errorf("thaw cgroup %s: freezer: %w", g.path, cgroups.ErrNoController)
	}
	err := g.unified.dir.Write(cgroupFreeze, []byte("0"))
	if err == nil {
		err = cgroups.WaitEvent(ctx, g.unified.dir, cgroups.Frozen, false)
	}
	if err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.path, err)
	}
	return nil
}

// Frozen reports whether the processes stand still, or are about to.
func (g *Group) Frozen() (bool, error) {
	m := g.member("freezer")
	if m == nil {
		if g.unified == nil {
			return false, nil
		}
		return cgroups.ReadEvent(g.unified.dir, cgroups.Frozen)
	}
	state, err := freezerState(m.dir)
	if err != nil {
		return false, fmt.Errorf("read the state of cgroup %s: %w", g.path, err)
	}
	return state != thawed, nil
}

// thawAll thaws the whole subtree, groups frozen by themselves included. It goes
// on after an error: one group more that runs is one process more that dies.
func (g *Group) thawAll() error {
	m := g.member("freezer")
	if m == nil {
		return nil
	}
	var errs []error
	err := cgroups.Walk(m.dir, func(dir *pathsafe.Dir) error {
		if err := dir.Write(freezerStateFile, []byte(thawed)); err != nil && !errors.Is(err, pathsafe.ErrGone) {
			errs = append(errs, err)
		}
		return nil
	})
	if errors.Is(err, pathsafe.ErrGone) {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}

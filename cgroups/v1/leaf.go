package cgroup1

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Leaf makes a cgroup below the group: in the unified hierarchy of a hybrid host,
// which has cgroup.kill, and else in the freezer's. In every other hierarchy the
// processes stay in the group itself, and so do its limits and its accounts.
func (g *Group) Leaf(name pathsafe.Name) (*cgroups.Leaf, error) {
	if g.unified != nil {
		return cgroups.NewLeaf(g.unified.dir, name, killLeaf)
	}
	if m := g.member("freezer"); m != nil {
		return cgroups.NewLeaf(m.dir, name, killLeaf)
	}
	return nil, fmt.Errorf("make a cgroup below %s: freezer: %w", g.path, cgroups.ErrNoController)
}

// killLeaf freezes, signals and thaws until nobody is left. In a group that is
// frozen itself the processes die when it is thawed.
func killLeaf(ctx context.Context, dir *pathsafe.Dir) error {
	return cgroups.KillRounds(ctx, func() (n int, err error) {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		// Best effort, as in killRound.
		if err := freeze(short, dir); err == nil {
			defer func() { err = errors.Join(err, dir.Write(freezerStateFile, []byte(thawed))) }()
		} else if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, unix.ENOENT) {
			return 0, err
		}
		return cgroups.SignalProcs(func() ([]int, error) { return cgroups.Procs(dir, nil) }, unix.SIGKILL)
	})
}

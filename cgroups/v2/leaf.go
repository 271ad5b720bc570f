package cgroup2

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Leaf makes a cgroup below the group. A group with processes may have groups
// below it as long as it hands no controllers down - cgroup-v2.rst, "No Internal
// Process Constraint"; the leaf needs none.
func (g *Group) Leaf(name pathsafe.Name) (*cgroups.Leaf, error) {
	return cgroups.NewLeaf(g.dir, name, killLeaf)
}

// killLeaf is for a threaded leaf, which has no cgroup.kill.
func killLeaf(ctx context.Context, dir *pathsafe.Dir) error {
	return cgroups.KillRounds(ctx, func() (int, error) {
		if err := dir.Write(cgroupFreeze, []byte("1")); err != nil {
			return 0, err
		}
		n, err := cgroups.SignalProcs(func() ([]int, error) { return cgroups.Procs(dir, nil) }, unix.SIGKILL)
		return n, errors.Join(err, dir.Write(cgroupFreeze, []byte("0")))
	})
}

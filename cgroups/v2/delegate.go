package cgroup2

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/pathsafe"
)

// initLeaf is the group of a delegated container's processes.
var initLeaf = pathsafe.MustName("init")

// delegated are the files that a group's owner may write: the list that the
// kernel gives in /sys/kernel/cgroup/delegate (cgroup-v2.rst, "Model of
// Delegation"), as of Linux 6.18. One that this kernel does not have is passed
// over.
var delegated = []pathsafe.Name{
	pathsafe.MustName("cgroup.procs"), pathsafe.MustName("cgroup.threads"), pathsafe.MustName("cgroup.subtree_control"),
	pathsafe.MustName("memory.oom.group"), pathsafe.MustName("memory.reclaim"),
}

// Delegate prepares the group for a container that manages groups of its own:
// its processes live in the group "init" below it, so that it is free to enable
// controllers for others ("No Internal Process Constraint"), and both belong to
// uid and gid, which is the container's root. The container cannot change its own
// limits: those files stay root's.
//
// The directory that is returned is for the container's processes; the caller
// closes it.
func (g *Group) Delegate(uid, gid uint32) (*pathsafe.Dir, error) {
	leaf, _, err := g.dir.Mkdir(initLeaf, 0o755)
	if err != nil {
		return nil, fmt.Errorf("delegate cgroup %s: %w", g.path, err)
	}
	for _, d := range []*pathsafe.Dir{g.dir, leaf} {
		if err := give(d, uid, gid); err != nil {
			leaf.Close()
			return nil, fmt.Errorf("delegate cgroup %s: %w", g.path, err)
		}
	}
	return leaf, nil
}

func give(d *pathsafe.Dir, uid, gid uint32) error {
	if uid == 0 && gid == 0 {
		return nil
	}
	if err := d.Chown(pathsafe.Name{}, uid, gid); err != nil {
		return err
	}
	for _, n := range delegated {
		if err := d.Chown(n, uid, gid); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

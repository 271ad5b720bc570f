package cgroups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/pathsafe"
)

// Leaf is a cgroup below another for one process and all that it starts, so that
// they can be killed at once. It has no limits of its own; what is used in it
// counts for the group above. It is in one hierarchy only.
type Leaf struct {
	// Of is the descriptor, the group's, whose place FD takes for who is to be in
	// the leaf: among JoinFDs, or as IntoFD.
	Of int

	parent *pathsafe.Dir // the group's
	name   pathsafe.Name
	dir    *pathsafe.Dir
	kill   func(context.Context, *pathsafe.Dir) error
}

// NewLeaf makes the cgroup of that name below parent, which is borrowed. kill is
// for where there is no cgroup.kill. A cgroup of that name is EEXIST.
func NewLeaf(parent *pathsafe.Dir, name pathsafe.Name, kill func(context.Context, *pathsafe.Dir) error) (*Leaf, error) {
	dir, made, err := parent.Mkdir(name, 0o755)
	if err == nil && !made {
		_ = dir.Close()
		err = unix.EEXIST
	}
	if err != nil {
		return nil, fmt.Errorf("make cgroup %s below the container's: %w", name, err)
	}
	return &Leaf{Of: parent.FD(), parent: parent, name: name, dir: dir, kill: kill}, nil
}

// FD is the leaf's directory. It stays the leaf's.
func (l *Leaf) FD() int { return l.dir.FD() }

// Add moves a process in; see the Add of the groups.
func (l *Leaf) Add(pid int) error {
	return l.dir.Write(procsFile, fmt.Appendf(nil, "%d", pid))
}

// Busy reports whether there are processes in the leaf or below it.
func (l *Leaf) Busy() (bool, error) {
	pids, err := Procs(l.dir, nil)
	return len(pids) > 0, err
}

// Kill kills every process in the leaf and below it. With cgroup.kill it does not
// wait for their end; without, it returns when there are none left, or ctx ends.
func (l *Leaf) Kill(ctx context.Context) error {
	done, err := KillUnified(l.dir)
	if err == nil && !done {
		err = l.kill(ctx, l.dir)
	}
	if err != nil {
		return fmt.Errorf("kill cgroup %s below the container's: %w", l.name, err)
	}
	return nil
}

// Remove removes the leaf with the cgroups that its processes have made. For those
// that are still dying it waits until ctx ends: then the error is EBUSY, too. A
// leaf that is not there is no error.
func (l *Leaf) Remove(ctx context.Context) error {
	err := l.parent.RemoveCgroupTree(ctx, l.name)
	if errors.Is(err, pathsafe.ErrGone) {
		return nil // the group went, and the leaf with it
	}
	return err
}

// Close closes the descriptor. The leaf stays.
func (l *Leaf) Close() { _ = l.dir.Close() }

// KillRounds calls round, which signals all processes that it finds and returns
// their number, until it finds none or ctx ends.
func KillRounds(ctx context.Context, round func() (int, error)) error {
	for wait := 500 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		n, err := round()
		if n == 0 || err != nil {
			return err
		}
		if err := Pause(ctx, wait); err != nil {
			return fmt.Errorf("%d processes left: %w", n, err)
		}
	}
}

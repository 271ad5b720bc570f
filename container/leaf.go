package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// treeKillAnnotation makes a SIGKILL to an exec kill all that it has started, or
// not, whatever the node says.
const treeKillAnnotation = "io.ibex.exec-tree-kill"

const (
	// leafKillTimeout bounds a kill without cgroup.kill.
	leafKillTimeout = 2 * time.Second
	// leafTimeout is for the killed to leave their cgroup.
	leafTimeout = time.Second
)

// chooseTreeKill settles whether execs have cgroups of their own.
func (c *Container) chooseTreeKill() error {
	conf, err := nodeConfig.Get()
	c.warn(err)
	c.treeKill = c.opts.ExecTreeKill || conf.ExecTreeKill
	if v, ok := c.spec.Annotations[treeKillAnnotation]; ok {
		if v != "true" && v != "false" {
			return invalid("annotations["+treeKillAnnotation+"]", "%q: want true or false", v)
		}
		c.treeKill = v == "true"
	}
	return nil
}

// makeLeaf gives an exec its own cgroup. Names are never used again: one that is
// there is a process's of the container that may write to cgroups, or an earlier
// exec's whose children live on.
func (p *Process) makeLeaf() error {
	c := p.c
	if !c.treeKill || len(p.below) > 0 {
		return nil
	}
	const tries = 64
	for range tries {
		name, err := pathsafe.ParseName("ibex-exec-" + strconv.FormatUint(c.leafNumber.Add(1), 10))
		if err != nil {
			return err
		}
		leaf, err := c.group.Leaf(name)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			p.leafMu.Lock()
			p.leaf, p.leafKilled = leaf, false
			p.leafMu.Unlock()
		}
		return err
	}
	return fmt.Errorf("make a cgroup for the process: %d names are taken: %w", tries, unix.EEXIST)
}

// useLeaf changes the place of a start to the exec's own cgroup.
func (p *Process) useLeaf(at *exec.Place) {
	if p.leaf == nil {
		return
	}
	if at.CgroupInto == p.leaf.Of {
		at.CgroupInto = p.leaf.FD()
	}
	at.CgroupTasks = slices.Clone(at.CgroupTasks)
	for i, fd := range at.CgroupTasks {
		if fd == p.leaf.Of {
			at.CgroupTasks[i] = p.leaf.FD()
		}
	}
}

// killLeaf kills what is left of an exec that has a cgroup of its own, also when
// its first process has ended. ok is false if there is nothing to kill there.
func (p *Process) killLeaf() (ok bool, err error) {
	p.leafMu.Lock()
	defer p.leafMu.Unlock()
	if p.leaf == nil {
		return false, nil
	}
	if busy, err := p.leaf.Busy(); err != nil || !busy {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leafKillTimeout)
	defer cancel()
	p.leafKilled = true
	err = p.leaf.Kill(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the signals are sent; frozen processes act on them when thawed
	}
	return true, err
}

// dropLeaf removes the exec's cgroup. What its children still use, nobody having
// killed them, is left to the deletion of a later exec or of the container.
func (p *Process) dropLeaf() {
	p.leafMu.Lock()
	defer p.leafMu.Unlock()
	c := p.c
	c.leafMu.Lock()
	defer c.leafMu.Unlock()
	if p.leaf != nil {
		if p.leafKilled {
			ctx, cancel := context.WithTimeout(context.Background(), leafTimeout)
			p.leaf.Remove(ctx) //nolint:errcheck // tried again below, and with the container
			cancel()
		}
		c.leaves = append(c.leaves, p.leaf)
		p.leaf = nil
	}
	c.leaves = slices.DeleteFunc(c.leaves, removeLeaf)
}

// removeLeaf removes a cgroup that nobody is in.
func removeLeaf(leaf *cgroups.Leaf) (gone bool) {
	if busy, err := leaf.Busy(); busy || err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), leafTimeout)
	defer cancel()
	if leaf.Remove(ctx) != nil {
		return false
	}
	leaf.Close()
	return true
}

// closeLeaves closes what the removal of the container's cgroup took along.
func (c *Container) closeLeaves() {
	c.mu.Lock()
	procs := slices.Collect(maps.Values(c.procs))
	c.mu.Unlock()
	for _, p := range procs {
		p.leafMu.Lock()
		if p.leaf != nil {
			p.leaf.Close()
			p.leaf = nil
		}
		p.leafMu.Unlock()
	}
	c.leafMu.Lock()
	defer c.leafMu.Unlock()
	for _, leaf := range c.leaves {
		leaf.Close()
	}
	c.leaves = nil
}

package pathsafe

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on what RemoveCgroupTree removes. A tenant that may make cgroups must
// not be able to keep the shim busy for ever, nor to take all its descriptors:
// one is held for each level.
const (
	maxCgroupDepth   = 1024
	maxCgroupEntries = 1 << 16
)

// RemoveCgroupTree removes the cgroup n in d with all cgroups below it, the
// deepest first. It never leaves the subtree. A cgroup that is not there is no
// error. One that holds processes, or gets a new child meanwhile, is tried again
// until ctx ends; the error is then both the context's and EBUSY. More than
// 1024 levels or 65536 cgroups are ErrTooMany; what was removed stays removed,
// so the call can be repeated. PolicyKernfs only.
func (d *Dir) RemoveCgroupTree(ctx context.Context, n Name) error {
	if d.policy != PolicyKernfs {
		return d.refuse(n.String(), ErrPolicy, "not a cgroup tree")
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	w := remover{ctx: ctx, left: maxCgroupEntries}
	return w.remove(d, raw, n, 0)
}

type remover struct {
	ctx  context.Context
	left int
}

// remove removes the cgroup n in parent, whose descriptor is raw.
func (w *remover) remove(parent *Dir, raw int, n Name, depth int) error {
	if depth > maxCgroupDepth {
		return parent.refuse(n.String(), ErrTooMany, "cgroups nested too deeply")
	}
	if w.left--; w.left < 0 {
		return parent.refuse(n.String(), ErrTooMany, "")
	}
	wait := time.Millisecond
	for {
		// Most cgroups have no children: try before looking.
		errno := parent.unlinkat(raw, n, unix.AT_REMOVEDIR)
		switch errno {
		case 0, unix.ENOENT:
			return nil
		case unix.EBUSY:
		default:
			return parent.openFailed("unlinkat", raw, n.String(), errno)
		}
		removed, err := w.children(parent, raw, n, depth)
		if err != nil {
			return err
		}
		if removed {
			continue
		}
		// Processes are in it. After a kill they leave as they exit.
		if err := w.pause(wait); err != nil {
			return fmt.Errorf("%w: %w", parent.fail("unlinkat", n.String(), errno), err)
		}
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// children removes the children of the cgroup n and reports whether it had any.
func (w *remover) children(parent *Dir, raw int, n Name, depth int) (bool, error) {
	sub, errno := parent.open(raw, n.c, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errno == unix.ENOENT {
		return true, nil // gone meanwhile: rmdir will say so
	}
	if errno != 0 {
		return false, parent.openFailed("openat2", raw, n.String(), errno)
	}
	dir := newDir(sub, parent.id, PolicyKernfs, parent.tree, parent.join(n.String()))
	defer dir.Close()
	// The files of a cgroup are entries, too.
	entries, err := dir.list(sub, maxCgroupEntries+1024)
	if err != nil {
		return false, err
	}
	found := false
	for _, e := range entries {
		if e.Type != unix.DT_DIR {
			continue
		}
		child, ok := kernelName(e.Name)
		if !ok {
			return found, dir.refuse(e.Name, ErrType, "impossible name")
		}
		found = true
		if err := w.remove(dir, sub, child, depth+1); err != nil {
			return found, err
		}
		if err := w.ctx.Err(); err != nil {
			return found, fmt.Errorf("%w: %w", dir.fail("unlinkat", e.Name, unix.EBUSY), err)
		}
	}
	return found, nil
}

// pause waits for d or returns the error of the context.
func (w *remover) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case <-t.C:
		return nil
	}
}

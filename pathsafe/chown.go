package pathsafe

import "golang.org/x/sys/unix"

// Chown gives the file n in d to uid and gid, or d itself for the zero Name. A
// link is given itself, not what it leads to. Kernfs and PolicyState only.
func (d *Dir) Chown(n Name, uid, gid uint32) error {
	if d.policy != PolicyKernfs && d.policy != PolicyState {
		return d.refuse(n.String(), ErrPolicy, "not a tree of ours")
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	at := raw
	if n.String() != "" {
		f, errno := d.open(raw, n.c, unix.O_PATH, 0)
		if errno != 0 {
			return d.openFailed("openat2", raw, n.String(), errno)
		}
		defer unix.Close(f)
		at = f
	}
	if err := unix.Fchownat(at, "", int(uid), int(gid), unix.AT_EMPTY_PATH); err != nil {
		return d.fail("fchownat", n.String(), errnoOf(err))
	}
	return nil
}

package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// Attach mounts the detached mount mntfd on t, and returns the identity of its
// root for Verify. mntfd stays the caller's, who holds it until after Verify.
//
// A directory that is renamed out of the root under a descriptor takes the mount
// with it, so the target must not be in a mount namespace that matters to
// others: one whose tree was opened in the shim's own is refused with ErrPolicy.
// Call Verify afterwards where the place matters, and Detach if it fails.
func Attach(mntfd int, t *Target) (ID, error) {
	d := t.root
	if d.host {
		return ID{}, d.refuse(t.path.String(), ErrPolicy, "the tree is in the shim's mount namespace")
	}
	raw, ok := t.fd.Acquire()
	if !ok {
		return ID{}, d.refuse(t.path.String(), ErrClosed, "")
	}
	defer t.fd.Release()
	id, errno := ident(mntfd)
	if errno != 0 {
		return ID{}, d.fail("statx", t.path.String(), errno)
	}
	err := unix.MoveMount(mntfd, "", raw, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return ID{}, d.fail("move_mount", t.path.String(), errnoOf(err))
	}
	return id, nil
}

// Verify resolves p once more and compares: ErrRaced means that the mount want
// is not what a process of the container finds there, or that it finds nothing,
// so the mount may be anywhere.
//
// Mount ids can be reused on kernels before 6.8. Nothing to fear while a
// descriptor of the mount is held, which keeps its id.
func (d *Dir) Verify(p InRoot, want ID) error {
	got, err := d.Stat(p)
	if e, ok := err.(*OpError); ok && (e.Errno == unix.ENOENT || e.Errno == unix.ENOTDIR) {
		e.kind = ErrRaced
	}
	if err != nil {
		return err
	}
	if !got.SameMount(want) || !got.SameObject(want) {
		return d.refuse(p.String(), ErrRaced, "another mount is there")
	}
	return nil
}

// Detach unmounts the attached mount mntfd, wherever it is. The calling goroutine
// must be locked to a thread that is in the mount's namespace and is not used
// for anything else later: the thread gets a working directory of its own.
func Detach(mntfd int) error {
	fail := func(op string, err error) error {
		return &OpError{Op: op, Path: ".", Errno: errnoOf(err)}
	}
	// umount2 takes a path, and "." is the only one that names a descriptor
	// without procfs. Threads of a Go program share one working directory.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fail("unshare", err)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}
	back, errno := linux.Openat2(unix.AT_FDCWD, here, &how)
	if errno != 0 {
		return fail("openat2", errno)
	}
	defer unix.Close(back)
	if err := unix.Fchdir(mntfd); err != nil {
		return fail("fchdir", err)
	}
	err := unix.Unmount(".", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err := unix.Fchdir(back); err != nil {
		return fail("fchdir", err)
	}
	if err != nil {
		return fail("umount2", err)
	}
	return nil
}

// SetAttr changes attributes of the mount mntfd (unix.MOUNT_ATTR_*): set is
// added, clr is taken away, everything else stays. recursive includes the mounts
// below. A bit in both is EINVAL, except for the access time, whose modes are
// one field: to set one, clr must hold MOUNT_ATTR__ATIME.
func SetAttr(mntfd int, set, clr uint64, recursive bool) error {
	if mntfd < 0 {
		return &OpError{Op: "mount_setattr", Path: ".", Errno: unix.EBADF}
	}
	if set&clr&^unix.MOUNT_ATTR__ATIME != 0 {
		return &OpError{Op: "mount_setattr", Path: ".", Errno: unix.EINVAL, detail: "attribute both set and cleared"}
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	attr := unix.MountAttr{Attr_set: set, Attr_clr: clr}
	if err := unix.MountSetattr(mntfd, "", flags, &attr); err != nil {
		return &OpError{Op: "mount_setattr", Path: ".", Errno: errnoOf(err)}
	}
	return nil
}

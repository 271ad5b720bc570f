package pathsafe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// RawOpen is an openat2 that a forked child makes by itself. The shim prepares
// it; its memory is the parent's, which does not move and is kept alive by Path.
type RawOpen struct {
	Dirfd int32
	How   unix.OpenHow
	Path  *byte
}

// PrepareRaw makes a RawOpen of r below d under d's policy. flags are those of
// openat2 (unix.O_WRONLY, ...); the flags that every open has are added, and
// nothing can be made by it. d must stay open until the child has used it.
func PrepareRaw(d *Dir, r Rel, flags uint64) (RawOpen, error) {
	raw := d.fd.Int()
	switch {
	case raw < 0:
		return RawOpen{}, d.refuse(r.String(), ErrClosed, "")
	case !r.c.Valid():
		return RawOpen{}, d.fail("openat2", "", unix.EINVAL)
	case flags&(unix.O_CREAT|unix.O_TRUNC) != 0, flags&unix.O_TMPFILE == unix.O_TMPFILE:
		return RawOpen{}, d.refuse(r.String(), ErrPolicy, "a child makes no files")
	case d.policy.rootfs() && flags&unix.O_PATH == 0:
		return RawOpen{}, d.refuse(r.String(), ErrPolicy, "files of a root filesystem are not opened by name")
	}
	return RawOpen{
		Dirfd: int32(raw),
		How:   unix.OpenHow{Flags: openFlags(flags), Resolve: d.policy.resolve()},
		Path:  r.c.Data(),
	}, nil
}

// Do issues the call. It is for a forked child: it does not allocate, grow the
// stack or take a lock. errno is 0 if fd is a descriptor.
//
//go:nosplit
//go:norace
func (r *RawOpen) Do() (fd uintptr, errno uintptr) {
	n, _, e := unix.RawSyscall6(unix.SYS_OPENAT2, uintptr(r.Dirfd), uintptr(unsafe.Pointer(r.Path)),
		uintptr(unsafe.Pointer(&r.How)), unix.SizeofOpenHow, 0, 0)
	return n, uintptr(e)
}

package linux

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Openat2 opens path relative to dirfd. It allocates nothing: unix.Openat2
// copies the path on every call, which is most of the cost of reading a small
// kernel file. EINTR is retried; every other errno is returned as it came.
//
// openat2: Linux 5.6, commit fddb5d430ad9 ("open: introduce openat2(2)
// syscall").
func Openat2(dirfd int, path CString, how *unix.OpenHow) (int, unix.Errno) {
	if !path.Valid() {
		return -1, unix.EINVAL
	}
	for {
		r, _, errno := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dirfd),
			uintptr(unsafe.Pointer(unsafe.StringData(string(path)))),
			uintptr(unsafe.Pointer(how)), unix.SizeofOpenHow, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return -1, errno
		}
		return int(r), 0
	}
}

// Openat is openat(2) without a mode, so it cannot create anything: O_CREAT and
// O_TMPFILE are refused with EINVAL. It allocates nothing and retries EINTR.
func Openat(dirfd int, path CString, flags int) (int, unix.Errno) {
	if !path.Valid() || flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return -1, unix.EINVAL
	}
	for {
		r, _, errno := unix.Syscall6(unix.SYS_OPENAT, uintptr(dirfd),
			uintptr(unsafe.Pointer(unsafe.StringData(string(path)))),
			uintptr(flags), 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return -1, errno
		}
		return int(r), 0
	}
}

// Data returns the address of the bytes of c, NUL included, for a system call
// that a forked child makes by itself. It is nil for the zero CString. The
// bytes must only be read.
func (c CString) Data() *byte {
	if !c.Valid() {
		return nil
	}
	return unsafe.StringData(string(c))
}

// Fstatx is statx(2) on the descriptor itself (AT_EMPTY_PATH). It works on
// O_PATH descriptors, never triggers an automount and allocates nothing.
//
// statx: Linux 4.11; a mount id in the answer: 5.8 (STATX_MNT_ID).
func Fstatx(fd int, mask uint32, st *unix.Statx_t) unix.Errno {
	var empty byte
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(fd),
			uintptr(unsafe.Pointer(&empty)), unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT,
			uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
		if errno != unix.EINTR {
			return errno
		}
	}
}

package plan

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openAgain is how often an openat2 that gives EAGAIN is tried again. The kernel
// gives up a resolution that must stay inside and goes upwards whenever anything
// is renamed or mounted on the host meanwhile (openat2(2), RESOLVE_IN_ROOT). In a
// storm of renames 2,600 failures in a row were seen on a path with a hundred
// "..", which is a few milliseconds.
const openAgain = 1 << 15

// runInChild issues the steps in order until execve succeeds or a step fails.
// A failure is reported on sock, if that is not negative, and ends the process
// with code 127. It does not return.
//
// Preconditions:
//   - the caller is a forked child, whose signal handlers were cleared;
//   - steps and arena belong to a Plan that the parent keeps alive.
//
// It must not allocate, grow the stack, take a lock, call anything but
// RawSyscall6, or read or write outside of steps, arena and its stack: the heap is
// not there, and the rest of the memory is the copy of a process whose other
// threads vanished in the middle of what they did.
//
//go:nosplit
//go:norace
//go:nocheckptr
func runInChild(steps unsafe.Pointer, n uintptr, arena unsafe.Pointer, sock int) {
	var i uintptr
	var errno syscall.Errno
	again := 0
	// The hook before the fork blocked every signal.
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&i)), 0, 8, 0, 0)
loop:
	for i < n {
		s := (*step)(unsafe.Add(steps, i*unsafe.Sizeof(step{})))
		var a [6]uintptr
		for j := range a {
			a[j] = s.args[j]
			if s.slots>>uint(j)&1 != 0 {
				a[j] = *(*uintptr)(unsafe.Add(arena, a[j]))
			}
		}
		if s.patch != 0 {
			*(*uint32)(unsafe.Add(arena, s.patch)) = uint32(a[5])
		}
		var r uintptr
		errno = 0
		switch s.nr {
		case nrExpectByte:
			if *(*byte)(unsafe.Add(arena, a[0])) != byte(a[1]) {
				errno = syscall.Errno(a[2])
			}
		case nrExpectEqual:
			if *(*uint64)(unsafe.Add(arena, a[0])) != *(*uint64)(unsafe.Add(arena, a[1])) {
				errno = syscall.Errno(a[2])
			}
		default:
			r, _, errno = syscall.RawSyscall6(s.nr, a[0], a[1], a[2], a[3], a[4], a[5])
			if errno == syscall.EINTR && s.flags&stepRetry != 0 {
				continue
			}
			if errno == syscall.EAGAIN && s.nr == unix.SYS_OPENAT2 && again < openAgain {
				again++
				continue
			}
			again = 0
		}
		if errno == 0 && s.flags&stepWant != 0 && r != s.want {
			errno = syscall.EPROTO
		}
		if errno == 0 {
			if s.out != 0 {
				*(*uintptr)(unsafe.Add(arena, s.out)) = r
			}
			switch {
			case s.zero != 0 && r == 0:
				i = uintptr(s.zero)
			case s.ok != 0:
				i = uintptr(s.ok)
			default:
				i++
			}
			continue
		}
		for j := range s.rules {
			if uintptr(s.rules[j].errno) == uintptr(errno) {
				i = uintptr(s.rules[j].to)
				continue loop
			}
		}
		break
	}
	if i >= n {
		errno = syscall.ENOEXEC // the last step was tolerated: nothing to run
	}
	f := (*[3]uint32)(unsafe.Add(arena, failureOffset))
	f[0], f[1], f[2] = failureMagic, uint32(i), uint32(errno)
	if sock >= 0 {
		// write, not sendto: of the two, a seccomp profile that is loaded by now
		// is likelier to allow it.
		syscall.RawSyscall6(unix.SYS_WRITE, uintptr(sock), uintptr(unsafe.Pointer(f)), failureSize, 0, 0, 0)
	}
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, failureCode, 0, 0, 0, 0, 0)
	}
}

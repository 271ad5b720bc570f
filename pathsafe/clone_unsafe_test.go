package pathsafe

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is struct clone_args of clone3(2), up to set_tid_size.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize uint64
}

// cloneWithPid makes a process with that number, which waits until the end of
// the test.
func cloneWithPid(t *testing.T, pid int) error {
	tid := int32(pid)
	args := cloneArgs{exitSignal: uint64(unix.SIGCHLD), setTID: uint64(uintptr(unsafe.Pointer(&tid))), setTIDSize: 1}
	syscall.ForkLock.Lock()
	r, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if r == 0 && errno == 0 {
		for { // the child: no Go runtime here
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return errno
	}
	t.Cleanup(func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	})
	return nil
}

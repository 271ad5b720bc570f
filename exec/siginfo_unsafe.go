package exec

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid(2) fills in. The layout is that of struct siginfo for
// SIGCHLD on 64-bit Linux: signo, errno, code, padding, pid, uid, status.
type siginfo struct {
	signo, errno, cldCode, _ int32
	pidField, uid, status    int32
	_                        [128 - 7*4]byte
}

func (s *siginfo) pid() int { return int(s.pidField) }

// code is the exit code, or 128 plus the signal.
func (s *siginfo) code() int {
	const cldExited = 1 // <asm-generic/siginfo.h>
	if s.cldCode == cldExited {
		return int(s.status)
	}
	return 128 + int(s.status)
}

func waitid(idType, id int, info *siginfo, options int) error {
	return unix.Waitid(idType, id, (*unix.Siginfo)(unsafe.Pointer(info)), options, nil)
}

// ignoredSignals are those that this program ignores and its children would
// inherit through execve (signal(7)); the Go runtime's own handlers need no
// care. They are asked for once: a program that starts others must not ignore
// signals later.
var ignoredSignals = sync.OnceValue(func() []int {
	var ignored []int
	for sig := 1; sig <= 64; sig++ {
		// struct kernel_sigaction: handler, flags, restorer, mask.
		var act [4]uintptr
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&act)), 8, 0, 0)
		const sigIgn = 1
		if errno == 0 && act[0] == sigIgn {
			ignored = append(ignored, sig)
		}
	}
	return ignored
})

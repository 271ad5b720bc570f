package pathsafe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// verdict is what becomes of a system call at a gate.
type verdict struct{ errno unix.Errno }

// pass lets the call go on; fail makes it return an errno instead.
var pass = verdict{}

func fail(errno unix.Errno) verdict { return verdict{errno} }

// gate puts a listener in front of system calls of the test's thread, so that a
// test can act at that very moment, or answer in the kernel's place. decide is
// called on another thread, in order, with the number of calls before this one
// and the number of the call, with the lock held that gate returns: the test takes
// it to look at what decide wrote. The test must not start subtests after it.
func gate(t *testing.T, decide func(i int, nr int) verdict, nrs ...int) *sync.Mutex {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the filter ends with the thread
	// The runtime's preemption signals must not restart a call that decide saw.
	listener, err := seccompFilter(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, unix.SECCOMP_RET_USER_NOTIF, nrs...)
	if err != nil {
		t.Skipf("no system call listener: seccomp: %v", err)
	}
	// The clean-up of the test runs on this thread, too, so calls must be answered
	// until it ends. The listener reports that as a hangup.
	over := new(atomic.Bool)
	mu := new(sync.Mutex)
	go serveGate(listener, over, func(i, nr int) verdict {
		mu.Lock()
		defer mu.Unlock()
		return decide(i, nr)
	})
	t.Cleanup(func() { over.Store(true) })
	return mu
}

type seccompData struct {
	nr   int32
	arch uint32
	ip   uint64
	args [6]uint64
}

type seccompNotif struct {
	id    uint64
	pid   uint32
	flags uint32
	data  seccompData
}

type seccompResp struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

func serveGate(listener int, over *atomic.Bool, decide func(int, int) verdict) {
	defer unix.Close(listener)
	for i := 0; ; i++ {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			i--
			continue
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n seccompNotif
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); e != 0 {
			i--
			continue // interrupted meanwhile; the call is restarted
		}
		r := seccompResp{id: n.id}
		v := pass
		if !over.Load() {
			v = decide(i, int(n.data.nr))
		}
		if r.err = -int32(v.errno); v == pass {
			r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	}
}

// seccompFilter installs a filter that gives action for the system calls nrs and
// allows the rest.
func seccompFilter(flags uint, action uint32, nrs ...int) (int, error) {
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for i, nr := range nrs {
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(nrs) - i), K: uint32(nr)})
	}
	prog = append(prog,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action})
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	n, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

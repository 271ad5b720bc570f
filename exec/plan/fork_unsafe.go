package plan

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The hooks around a fork. The runtime promises to keep them for packages
// outside the standard library (runtime/proc.go, go.dev/issue/67401). The third
// of the kind, for the child, is not needed: it takes the runtime's signal
// handlers away, one call each, and CLONE_CLEAR_SIGHAND does that at once.

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

// ForkOptions says how the child of Fork is born.
type ForkOptions struct {
	// Flags are clone flags: any of CLONE_NEW*.
	Flags uint64
	// CgroupFD is a cgroup v2 directory to be born in, or -1.
	CgroupFD int
	// Sock is the child's end of a SOCK_SEQPACKET pair, or -1. The child writes
	// a Failure there if a step fails. It is the descriptor's number in the
	// child, so a plan that moves descriptors must leave it alone.
	Sock int
}

const forkFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// cloneArgs is struct clone_args of clone3(2), version 2 (Linux 5.7).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal uint64
	stack, stackSize, tls, setTID, setTIDSize     uint64
	cgroup                                        uint64
}

// Fork makes a child process that runs the plan, and returns its pid and a
// pidfd, which is close-on-exec and the caller's. The child is reaped by the
// caller, with the pidfd or the pid.
//
// The child is a copy: it shares no memory with the caller, so nothing that
// can read or write the child's memory reaches the caller's.
//
// Fork may be called from several goroutines at once. The error is that of
// clone3 and answers errors.Is; what goes wrong in the child is reported on
// ForkOptions.Sock instead.
func (p *Plan) Fork(o ForkOptions) (pid, pidfd int, err error) {
	if p.withheld != "" {
		return 0, -1, fmt.Errorf("fork: plan was parsed from text without %s", p.withheld)
	}
	if bad := o.Flags &^ forkFlags; bad != 0 {
		return 0, -1, fmt.Errorf("fork: Flags: %#x is not a namespace flag: %w", bad, unix.EINVAL)
	}
	// CLONE_CLEAR_SIGHAND: Linux 5.5, commit b612e5df4587. Ignored signals stay so.
	args := cloneArgs{flags: o.Flags | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD)}
	if o.CgroupFD >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(o.CgroupFD)
	}
	if p.steps == nil {
		return 0, -1, fmt.Errorf("fork: the plan is closed: %w", unix.EINVAL)
	}
	args.stack, args.stackSize = p.mem.stack()
	// Others hold the lock while they have a descriptor that should be
	// close-on-exec and is not yet.
	syscall.ForkLock.Lock()
	keepOut(p)
	pid, pidfd, errno := p.fork(&args, o.Sock)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(p)
	if errno != 0 {
		return 0, -1, fmt.Errorf("clone3: %w", errno)
	}
	return pid, pidfd, nil
}

// cloneChild is clone3(2); the child calls fn(steps, n, arena, sock). In
// assembly, since the child has a stack of its own: the goroutine's is in the
// heap, and stays behind.
//
//go:noescape
func cloneChild(args *cloneArgs, size, fn, steps, n, arena, sock uintptr) (r uintptr)

// fork is the part during which the stack must not grow, between the hooks.
//
//go:noinline
//go:norace
//go:nocheckptr
func (p *Plan) fork(args *cloneArgs, sock int) (pid, pidfd int, errno syscall.Errno) {
	var fd int32
	steps, n := uintptr(unsafe.Pointer(unsafe.SliceData(p.steps))), uintptr(len(p.steps))
	arena := uintptr(unsafe.Pointer(unsafe.SliceData(p.arena)))
	run := runInChild
	// The first word of a function value is where its code begins.
	fn := **(**uintptr)(unsafe.Pointer(&run))

	runtimeBeforeFork()
	// From here on the stack does not move, so its addresses may be stored.
	args.pidfd = uint64(uintptr(unsafe.Pointer(&fd)))
	r := cloneChild(args, unsafe.Sizeof(*args), fn, steps, n, arena, uintptr(sock))
	runtimeAfterFork()
	if r > maxResult {
		return 0, -1, syscall.Errno(-r)
	}
	return int(r), int(fd), 0
}

// maxResult: what the kernel returns above it is an errno, negated (syscall(2)).
const maxResult = ^uintptr(4095)

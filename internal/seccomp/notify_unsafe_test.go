package seccomp_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
)

// struct seccomp_notif and seccomp_notif_resp, include/uapi/linux/seccomp.h.
type notif struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type notifResp struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

// notifyInChild has one thread make a call that notifies, and another answer.
func notifyInChild() {
	p := &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, ListenerPath: "/run/agent.sock",
		Syscalls: []specs.LinuxSyscall{{Names: []string{"personality"}, Action: specs.ActNotify, Args: []specs.LinuxSeccompArg{arg(0, specs.OpEqualTo, 4711)}}},
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fds, answer := make(chan int), make(chan uintptr)
	go func() {
		runtime.LockOSThread()
		f, err := seccomp.Compile(p)
		if err != nil {
			fail(err)
		}
		fd, err := install(f)
		if err != nil {
			fail(err)
		}
		fds <- fd
		r, _, _ := unix.Syscall(unix.SYS_PERSONALITY, 4711, 0, 0)
		answer <- r
	}()
	fd := uintptr(<-fds)
	var n notif
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
		fail(errno)
	}
	r := notifResp{id: n.id, val: int64(n.args[0]) + 1}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r))); errno != 0 {
		fail(errno)
	}
	if got := <-answer; got != 4712 || n.nr != unix.SYS_PERSONALITY {
		fail(fmt.Errorf("call %d with answer %d", n.nr, got))
	}
	fmt.Println("[]")
	os.Exit(0)
}

func TestKernelNotifiesAListener(t *testing.T) {
	if _, err := inChild(t, job{Notify: true}); err != nil {
		t.Fatal(err)
	}
}

package exec

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// InHelper forks a helper that runs the steps of build and waits while use is
// called with its PID and pidfd. The helper is gone when InHelper returns: it is
// how a namespace is made without entering it.
func InHelper(ctx context.Context, keep []int, build func(b *plan.Builder), use func(pid, pidfd int) error) error {
	c, err := NewHelper(ctx, keep, build)
	if err != nil {
		return err
	}
	defer c.Abort()
	pidfd, err := c.Pidfd()
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	return use(c.PID, pidfd)
}

// NewHelper forks a helper that runs the steps of build and waits for Abort. It
// never executes a program, and ends with this one.
func NewHelper(ctx context.Context, keep []int, build func(b *plan.Builder)) (*Child, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	// The child's end blocks; the flag belongs to each end's own description.
	if err := unix.SetNonblock(pair[1], false); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, os.NewSyscallError("fcntl", err)
	}
	b := plan.NewBuilder()
	sock := plan.Num(pair[1], "sock")
	hide(b)
	keepOnly(b, 3, append([]int{pair[1]}, keep...))
	build(b)
	wait := b.NewBuf(1)
	b.Write(sock, []byte(readyMsg))
	b.Read(sock, wait, 1) // ends with us: end of file
	b.Exit(0)
	c := &Child{sock: os.NewFile(uintptr(pair[0]), "handshake"), done: make(chan struct{})}
	c.start = &Start{Hold: true, Process: &Process{}, Place: &Place{JoinOf: -1, CgroupInto: -1}}
	if c.plan, err = b.Plan(); err == nil {
		err = c.fork(pair[1])
	}
	unix.Close(pair[1])
	if err != nil {
		c.closeSock()
		return nil, err
	}
	if err := c.handshake(ctx); err != nil {
		c.Abort()
		return nil, err
	}
	return c, nil
}

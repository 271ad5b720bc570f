package exec

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// listenerMsg comes with the listener of a seccomp filter. The length tells it
// from the others.
const listenerMsg = "lis"

// loadFilter loads the seccomp filter and sends its listener, if it has one. The
// kernel gives it close-on-exec (seccomp(2)), so nothing is left to do about it:
// another system call might be one that the filter stops.
func loadFilter(b *plan.Builder, p *Process, sock plan.FD) {
	b.Seccomp(p.Seccomp.Flags, p.Seccomp.Program)
	if p.Seccomp.listens() {
		l := b.Result()
		b.SendFD(sock, l.FD(), []byte(listenerMsg))
	}
}

// read reads one message, and the listener that may come with it.
func (c *Child) read() (n int, err error) {
	if p := c.start.Process; c.listened || p == nil || p.Seccomp == nil || !p.Seccomp.listens() {
		return c.sock.Read(c.buf[:])
	}
	conn, err := c.sock.SyscallConn()
	if err != nil {
		return 0, err
	}
	var oob [64]byte // one descriptor needs 24
	var oobn int
	var recvErr error
	err = conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), c.buf[:], oob[:], unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(recvErr, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case recvErr != nil:
		return 0, os.NewSyscallError("recvmsg", recvErr)
	case n == 0:
		return 0, unix.ECONNRESET // the end of a SOCK_SEQPACKET is an empty message
	case oobn == 0:
		return n, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, os.NewSyscallError("recvmsg", err)
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return 0, os.NewSyscallError("recvmsg", err)
		}
		for _, fd := range fds {
			if c.listened {
				unix.Close(fd)
				continue
			}
			c.listener, c.listened = fd, true
		}
	}
	return n, nil
}

// giveListener hands a listener to the caller of Run, as soon as it can say of
// which process it is. A helper that loads the filter for the process it is going
// to clone may be stopped by it before it does: then it counts as the process.
func (c *Child) giveListener() error {
	if c.listener <= 0 {
		return nil
	}
	pid := c.PID
	if pid == 0 {
		if c.start.Process.NoNewPrivs {
			return nil // the helper's report is under way
		}
		pid = c.helper.pid
	}
	fd := c.listener
	c.listener = 0
	defer unix.Close(fd)
	if c.start.Listener == nil {
		return errors.New("start process: a seccomp filter with a listener, and nobody to take it")
	}
	return c.start.Listener(fd, pid)
}

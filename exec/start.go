package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// handshakeTimeout bounds each wait for a child. It is generous: a child that
// was stopped by a hostile process of the container must not hang its caller.
const handshakeTimeout = 30 * time.Second

// lateReport bounds the wait for a helper's report behind a failure. It has left
// its last system call but two.
const lateReport = time.Second

// ErrPIDsLimit means that the cgroup's pids limit refused the fork.
var ErrPIDsLimit = errors.New("fork refused: pids limit of the cgroup or of the user reached")

// Run compiles and starts s. It returns when execve has succeeded, or, with
// Hold, when the process waits for Release. After an error nothing is left: the
// child was killed and reaped.
func Run(ctx context.Context, s *Start) (*Child, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := pair[1]
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		unix.Close(theirs)
		return nil, os.NewSyscallError("fcntl", err)
	}
	sock := os.NewFile(uintptr(pair[0]), "handshake")
	// The numbers may change, not in the caller's description.
	started, own := *s, *s.Process
	own.Extra = slices.Clone(own.Extra)
	started.Process, s = &own, &started
	extra, err := aboveStdio(&own, &theirs)
	defer closeAll(extra)
	if err != nil {
		sock.Close()
		unix.Close(theirs)
		return nil, err
	}
	p, err := compile(s, theirs)
	if err != nil {
		sock.Close()
		unix.Close(theirs)
		return nil, err
	}
	c := &Child{sock: sock, plan: p, start: s, notify: s.Notify, done: make(chan struct{})}
	err = c.fork(theirs)
	unix.Close(theirs)
	if err != nil {
		sock.Close()
		return nil, err
	}
	if err := c.handshake(ctx); err != nil {
		c.Abort()
		return nil, err
	}
	return c, nil
}

// aboveStdio makes sure that the process's own descriptors and the socket are
// above the numbers where they go. It returns the duplicates for the caller to
// close.
func aboveStdio(p *Process, sock *int) (extra []int, err error) {
	dup := func(fd *int) {
		if err != nil || *fd >= p.first() {
			return
		}
		var n int
		if n, err = unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, p.first()); err == nil {
			*fd, extra = n, append(extra, n)
		}
	}
	for i := range p.Stdio {
		dup(&p.Stdio[i])
	}
	for i := range p.Extra {
		dup(&p.Extra[i])
	}
	if *sock < p.first() {
		old := *sock
		n, e := unix.FcntlInt(uintptr(old), unix.F_DUPFD_CLOEXEC, p.first())
		if e == nil {
			*sock = n
			unix.Close(old)
		} else if err == nil {
			err = e
		}
	}
	return extra, os.NewSyscallError("fcntl", err)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// fork runs the plan in a child and registers it, under the lock that keeps
// the reaper from taking an unknown child for an orphan.
func (c *Child) fork(sock int) error {
	children.begin()
	at := c.start.Place
	into := at.CgroupInto
	if c.start.Migrate {
		into = -1
	}
	pid, pidfd, err := c.plan.Fork(plan.ForkOptions{
		Flags:    at.atFork(),
		CgroupFD: into,
		Sock:     sock,
	})
	if err != nil {
		children.end(nil)
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("%w: %w", ErrPIDsLimit, err)
		}
		return err
	}
	if at.forks() {
		// The helper only: its exit is of no interest, and it is reaped with
		// the others. The lock is held on until the process itself is known.
		c.helper = newHelper(pid, pidfd)
		return nil
	}
	c.PID, c.pidfd = pid, pidfd
	children.end(c)
	return nil
}

// handshake reads what the child has to say until it runs the program (end of
// file) or waits (ready).
func (c *Child) handshake(ctx context.Context) error {
	if c.helper != nil {
		defer func() {
			if c.PID == 0 {
				c.disown()
				children.end(nil)
			}
			c.helper.finish()
		}()
	}
	// The child is the container's at the end: whoever may trace it there may
	// write here what he likes. Each message counts once, and where it is due.
	ready, paused, mayPause := false, false, c.start.Pause != nil
	// A process may fail before the helper has told who it is: then that is
	// waited for, or nobody would reap it.
	var failed error
	for {
		msg, err := c.receive(ctx)
		switch {
		case err != nil && failed != nil:
			return failed
		case errors.Is(err, io.EOF) && c.PID == 0:
			return errors.New("start process: helper ended before the process was born")
		case errors.Is(err, io.EOF) && c.start.Hold && !ready:
			return errors.New("start process: it ended before it was ready (killed, or out of memory)")
		case errors.Is(err, io.EOF):
			c.closeSock()
			return nil
		case err != nil:
			return err
		}
		switch n := len(msg); {
		case n == len(readyMsg) && c.start.Hold:
			ready = true
		case n == len(listenerMsg) && c.listener > 0:
			// What a notifying filter stops waits for whoever gets the listener.
		case n == len(pauseMsg) && mayPause:
			paused, mayPause = true, false
		case n == pidMsg && c.helper != nil && c.PID == 0:
			if err := c.adopt(nativeUint64(msg)); err != nil {
				return err
			}
		default:
			failed = c.failure(msg)
		}
		if failed != nil {
			if c.helper == nil || c.PID != 0 {
				return failed
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lateReport)
			defer cancel()
		}
		if err := c.giveListener(); err != nil {
			return err
		}
		// The helper's report of the PID may come after the process's own.
		if paused && c.PID != 0 {
			paused = false
			if err := c.start.Pause(c); err != nil {
				return err
			}
			if _, err := c.sock.Write([]byte(goMsg)); err != nil {
				return fmt.Errorf("start process: it ended while it waited: %w", err)
			}
		}
		if ready && c.PID != 0 {
			return nil
		}
	}
}

// adopt takes over the process that the helper cloned for us. We are its
// parent and have not reaped it, so its PID cannot have been used again.
func (c *Child) adopt(reported uint64) error {
	pid, err := children.unknown(reported)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // our own child, not reaped yet
		unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // as above
		return os.NewSyscallError("pidfd_open", err)
	}
	c.PID, c.pidfd = pid, fd
	children.end(c)
	return nil
}

// disown ends a start that was given up before the process was known: the
// helper dies first, then what it may have cloned and reported meanwhile. A
// helper killed between its clone and its report leaves a process that nobody
// waits for; it has the container's rights, lives in the container's cgroup and
// ends with it.
func (c *Child) disown() {
	c.helper.kill()
	conn, err := c.sock.SyscallConn()
	if err != nil {
		return
	}
	conn.Read(func(fd uintptr) bool { //nolint:errcheck // nothing there is the usual case
		if n, _ := unix.Read(int(fd), c.buf[:]); n == pidMsg {
			if pid, err := children.unknown(nativeUint64(c.buf[:pidMsg])); err == nil {
				unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // our own child, not reaped yet
				unix.Wait4(pid, nil, 0, nil) //nolint:errcheck // as above
			}
		}
		return true
	})
}

func (c *Child) receive(ctx context.Context) ([]byte, error) {
	deadline := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.sock.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	sock := c.sock
	stop := context.AfterFunc(ctx, func() { sock.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // at worst the deadline above
	defer stop()
	n, err := c.read()
	switch {
	case err == nil:
		return c.buf[:n], nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if ctx.Err() != nil {
			return nil, fmt.Errorf("start process: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("start process: no answer from the child in %v", handshakeTimeout)
	case errors.Is(err, unix.ECONNRESET):
		return nil, io.EOF
	}
	return nil, err
}

// failure turns a failure word into an error that names the step.
func (c *Child) failure(msg []byte) error {
	w, ok := plan.ParseFailure(msg)
	if !ok {
		return fmt.Errorf("start process: a report of %d bytes from the child makes no sense", len(msg))
	}
	step := c.plan.Error(w)
	if step.Errno == unix.EAGAIN && strings.HasPrefix(step.Step, "clone") {
		return fmt.Errorf("%w: %w", ErrPIDsLimit, step)
	}
	return step
}

// IsExecve reports whether err is a failure of the last step: everything was
// set up, and the kernel refused the program itself.
func IsExecve(err error) bool {
	var step *plan.StepError
	var late *ExecveError
	return errors.As(err, &late) || errors.As(err, &step) && strings.HasPrefix(step.Step, "execve")
}

// Release lets a process that waits (Hold) execute path. It returns when execve
// has succeeded.
func (c *Child) Release(ctx context.Context, path string) error {
	if len(path) >= releaseLen {
		return fmt.Errorf("execute %.64q...: %w", path, unix.ENAMETOOLONG)
	}
	var msg [releaseLen]byte
	copy(msg[:], path)
	if _, err := c.sock.Write(msg[:]); err != nil {
		return fmt.Errorf("start process: it ended while it waited: %w", err)
	}
	m, err := c.receive(ctx)
	if errors.Is(err, io.EOF) {
		c.closeSock()
		return nil
	}
	if err == nil {
		err = c.failure(m)
	}
	c.Abort()
	return err
}

func (c *Child) closeSock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener > 0 {
		unix.Close(c.listener)
		c.listener = 0
	}
	if c.sock != nil {
		c.sock.Close()
		if c.plan != nil {
			c.plan.Close()
		}
		c.sock, c.plan, c.start = nil, nil, nil
	}
}

// Abort kills the process and waits for its end.
func (c *Child) Abort() {
	if c.PID != 0 {
		c.Signal(unix.SIGKILL) //nolint:errcheck // it may have ended by itself
		<-c.Done()
	}
	c.closeSock()
}

// Child is a started process, a child of this one.
type Child struct {
	// PID as this process counts, for reports only; every operation goes
	// through the pidfd.
	PID int

	mu     sync.Mutex
	pidfd  int // guarded by mu; -1 once reaped
	sock   *os.File
	plan   *plan.Plan
	start  *Start
	helper *helper
	notify func()
	buf    [64]byte

	listener int  // received and not given on; 0 is none
	listened bool // one was received: it counts once

	done   chan struct{}
	status Status // valid once done is closed
}

// Status is how a process ended.
type Status struct {
	// Code is the exit code, or 128 plus the number of the signal that ended it.
	Code int
	At   time.Time
}

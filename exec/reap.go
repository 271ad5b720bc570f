package exec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// children knows every child started here and reaps it: one SIGCHLD handler
// for the whole program, no goroutine and no thread for each process.
var children registry

type registry struct {
	once sync.Once

	mu       sync.Mutex
	known    map[int]*Child // guarded by mu, by PID
	helpers  map[int]*helper
	starting int  // guarded by mu: starts whose process is not known yet
	orphans  bool // guarded by mu: reap children that we never started, too
	wake     chan os.Signal
}

// ReapOrphans makes this program reap every child, those also that it did not
// start but inherited as a subreaper. A program that uses os/exec must not.
func ReapOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	children.mu.Lock()
	children.orphans = true
	children.mu.Unlock()
	children.run()
	return nil
}

// run starts the handler, once.
func (r *registry) run() {
	r.once.Do(func() {
		r.wake = make(chan os.Signal, 1)
		signal.Notify(r.wake, unix.SIGCHLD)
		go func() {
			for range r.wake {
				r.reap()
			}
		}()
	})
}

// begin announces a fork; end registers its process, or none.
func (r *registry) begin() {
	r.run()
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()
}

func (r *registry) end(c *Child) {
	r.mu.Lock()
	r.starting--
	if c != nil {
		if r.known == nil {
			r.known = map[int]*Child{}
		}
		r.known[c.PID] = c
	}
	r.mu.Unlock()
	// The process may have ended before it was known, and orphans may wait.
	select {
	case r.wake <- unix.SIGCHLD:
	default:
	}
}

// reap collects what has ended. A child that we know is waited for by its
// pidfd; the others by PID, and only while no start is under way, whose process
// would look like an orphan until it is registered.
func (r *registry) reap() {
	r.mu.Lock()
	var ended []*Child
	for pid, c := range r.known {
		if c.collect() {
			delete(r.known, pid)
			ended = append(ended, c)
		}
	}
	for pid, h := range r.helpers {
		if h.collect() {
			delete(r.helpers, pid)
		}
	}
	if r.orphans && r.starting == 0 {
		r.reapOrphans()
	}
	r.mu.Unlock()
	for _, c := range ended {
		close(c.done)
		if c.notify != nil {
			c.notify()
		}
	}
}

// reapOrphans is called with mu held. WNOWAIT looks first: a known child that
// ended since the loop above is left for the next round.
func (r *registry) reapOrphans() {
	for {
		var info siginfo
		err := waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		pid := info.pid()
		if err != nil || pid == 0 || r.known[pid] != nil || r.helpers[pid] != nil {
			return
		}
		waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG) //nolint:errcheck // it is there: seen above, and nobody else waits
	}
}

// unknown checks a reported PID: a child of ours that is nobody's yet. The
// report comes from a process that a container may have taken over, and what it
// names is signalled as root of the host: -1 would be everybody (kill(2)).
func (r *registry) unknown(reported uint64) (int, error) {
	pid := int(reported)
	if reported == 0 || reported > math.MaxInt32 {
		return 0, fmt.Errorf("start process: PID %d was reported, which is none", pid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var info siginfo
	// ECHILD for others' children (waitid(2)).
	if err := waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT); err != nil {
		return 0, fmt.Errorf("start process: PID %d was reported, which is no child: %w", pid, os.NewSyscallError("waitid", err))
	}
	if r.known[pid] != nil || r.helpers[pid] != nil {
		return 0, fmt.Errorf("start process: PID %d was reported, which is another child", pid)
	}
	return pid, nil
}

// collect reaps c if it has ended.
func (c *Child) collect() bool {
	var info siginfo
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := waitid(unix.P_PIDFD, c.pidfd, &info, unix.WEXITED|unix.WNOHANG); err != nil || info.pid() == 0 {
		return false
	}
	c.status = Status{Code: info.code(), At: time.Now()}
	unix.Close(c.pidfd)
	c.pidfd = -1
	return true
}

// Done is closed when the process has ended and was reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status waits for the end of the process and tells how it ended.
func (c *Child) Status() Status {
	<-c.done
	return c.status
}

// Signal sends sig. The error is ESRCH once the process was reaped: there is no
// moment at which another process could be hit.
//
// pidfd_send_signal(2): Linux 5.1.
func (c *Child) Signal(sig unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd < 0 {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
}

// Pidfd returns a pidfd of the process, which the caller owns. It names this
// process for ever; ESRCH once the process was reaped.
func (c *Child) Pidfd() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pidfd < 0 {
		return -1, unix.ESRCH
	}
	fd, err := unix.FcntlInt(uintptr(c.pidfd), unix.F_DUPFD_CLOEXEC, 3)
	return fd, os.NewSyscallError("fcntl", err)
}

// helper is the first of the two forks into a PID namespace.
type helper struct {
	pid, pidfd int
}

func newHelper(pid, pidfd int) *helper {
	h := &helper{pid, pidfd}
	children.mu.Lock()
	if children.helpers == nil {
		children.helpers = map[int]*helper{}
	}
	children.helpers[pid] = h
	children.mu.Unlock()
	return h
}

// kill ends the helper and waits for that.
func (h *helper) kill() {
	children.mu.Lock()
	if h.pidfd >= 0 {
		unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0) //nolint:errcheck // it may have ended
	}
	children.mu.Unlock()
	h.await()
}

// finish reaps the helper, which has said all it had to and is on its way out.
// Until it is gone it counts in the container's cgroup: as a process of its list,
// and against its limit.
func (h *helper) finish() {
	if !h.reap() {
		h.await()
		h.reap()
	}
}

// reap reports whether the helper is gone.
func (h *helper) reap() bool {
	children.mu.Lock()
	defer children.mu.Unlock()
	if h.pidfd >= 0 && h.collect() {
		delete(children.helpers, h.pid)
	}
	return h.pidfd < 0
}

// await waits for the helper's end, a second at most: a task in an
// uninterruptible system call does not die at once.
func (h *helper) await() {
	children.mu.Lock()
	fd := h.pidfd
	if fd >= 0 {
		// The number is good for as long as the descriptor, which a reaper may
		// close meanwhile.
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			fd = n
		} else {
			fd = -1
		}
	}
	children.mu.Unlock()
	if fd >= 0 {
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000) //nolint:errcheck // bounded either way
		unix.Close(fd)
	}
}

func (h *helper) collect() bool {
	var info siginfo
	if err := waitid(unix.P_PIDFD, h.pidfd, &info, unix.WEXITED|unix.WNOHANG); err != nil || info.pid() == 0 {
		return false
	}
	unix.Close(h.pidfd)
	h.pidfd = -1
	return true
}

func nativeUint64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

package shim

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// chunk is what one stream moves before the next one has its turn.
	chunk = 64 << 10
	// bufSize is for the sources and sinks that splice(2) does not serve.
	bufSize = 32 << 10
)

var buffers = sync.Pool{New: func() any { b := make([]byte, bufSize); return &b }}

// stream copies from one descriptor to another until the source ends. It holds
// no buffer and no goroutine while nothing moves.
//
// Back pressure is the kernel's: when the sink is full the source is left
// alone, fills up, and its writer blocks.
type stream struct {
	poll *poller
	key  int32
	// splice says that both ends are pipes.
	splice bool
	// blocking says that the sink is a file, whose writes may take long: they
	// have a goroutine for as long as they take.
	blocking bool

	// console is the terminal whose master src or dst is, for as long as it is
	// the container's: a second descriptor of it would keep it from hanging up.
	console syscall.RawConn
	output  bool // src is the console, else dst

	mu      sync.Mutex
	src     int    // guarded by mu: -1 when closed
	dst     int    // guarded by mu: -1 when closed; what comes is thrown away then
	keep    []int  // guarded by mu: closed with dst
	full    int    // guarded by mu: a full console's own descriptor in the poller, or -1
	pending []byte // guarded by mu: read, and not written yet
	// finish says that the source's writer has ended: left more bytes are
	// wanted, what others add later is not. Guarded by mu.
	finish bool
	left   int  // guarded by mu
	closed bool // guarded by mu
	// over, if not nil, keeps a full sink from stopping the source. Guarded by mu.
	over *overflow

	done chan struct{} // closed when dst has been closed
}

// newStream takes over src, dst and keep, all non-blocking unless dst is a
// file. dst -1 throws everything away.
func newStream(p *poller, src, dst int, keep ...int) *stream {
	s := &stream{poll: p, src: src, dst: dst, keep: keep, full: -1, done: make(chan struct{})}
	s.splice = isPipe(src) && isPipe(dst)
	s.blocking = dst >= 0 && isRegular(dst)
	s.key = p.add(s.wake)
	return s
}

// newConsoleOutput copies from a terminal, whose master fd is, to dst.
func newConsoleOutput(p *poller, console syscall.RawConn, fd, dst int, keep ...int) *stream {
	s := newStream(p, fd, dst, keep...)
	s.console, s.output = console, true
	return s
}

// newConsoleInput copies from src to a terminal, whose master fd is.
func newConsoleInput(p *poller, console syscall.RawConn, src, fd int) *stream {
	s := newStream(p, src, fd)
	s.console = console
	return s
}

// locked calls f with mu held. A console is the container's, which may close it
// at any time: its descriptor stays what it is while f runs.
func (s *stream) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.console == nil || s.closed {
		f()
		return
	}
	if s.console.Control(func(uintptr) { f() }) == nil {
		return
	}
	if s.output { // closed, and so no longer ours to touch
		s.src = -1
	} else {
		s.dst = -1
	}
	s.closeAll()
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return fd >= 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

func isRegular(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// start begins to copy.
func (s *stream) start() { s.locked(s.armSource) }

func (s *stream) wake() {
	if s.blocking {
		go s.pump()
		return
	}
	s.pump()
}

// pump moves what it can and asks to be called again for the rest.
func (s *stream) pump() { s.locked(s.pumpLocked) }

func (s *stream) pumpLocked() {
	if s.closed {
		return
	}
	if s.over != nil && s.over.on && s.dst >= 0 && !s.spoolLocked() {
		return
	}
	var err error
	switch {
	case s.dst < 0:
		err = s.discard()
	case s.splice:
		err = s.moveSplice()
	default:
		err = s.moveBuffer()
	}
	switch {
	case err == nil:
		s.armSource()
	case errors.Is(err, errSourceEmpty):
		if s.finish && s.dst >= 0 {
			s.closeSink()
		}
		s.armSource()
	case errors.Is(err, errSinkFull) && s.over != nil:
		s.over.begin(s.pending)
		s.pending = nil
		s.readOn()
	case errors.Is(err, errSinkFull):
		if s.armSink() != nil {
			s.closeAll()
		}
	case errors.Is(err, errSinkGone):
		// Nobody will ever read this. Keep draining: the process must neither
		// block on its output nor be killed for it.
		s.closeSink()
		s.armSource()
	default:
		s.closeAll()
	}
}

// How a move can end, apart from having moved something.
var (
	errSourceEmpty = errors.New("nothing to read now")
	errSourceEnd   = errors.New("end of input")
	errSinkFull    = errors.New("no room to write now")
	errSinkGone    = errors.New("sink is broken")
)

// moveSplice moves pages from pipe to pipe without copying them.
func (s *stream) moveSplice() error {
	for {
		size := s.room(chunk)
		if size == 0 {
			return errSourceEmpty
		}
		n, err := unix.Splice(s.src, nil, s.dst, nil, size, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			// splice does not say which end was not ready. TIOCINQ is FIONREAD.
			left, err := unix.IoctlGetInt(s.src, unix.TIOCINQ)
			if err == nil && left > 0 {
				return errSinkFull
			}
			return errSourceEmpty
		case errors.Is(err, unix.EPIPE):
			return errSinkGone
		case err != nil:
			return err
		case n == 0:
			return errSourceEnd
		}
		if !s.finish {
			return nil
		}
		s.left -= int(n)
	}
}

// room is how much may be moved next.
func (s *stream) room(most int) int {
	if s.finish {
		return min(s.left, most)
	}
	return most
}

// moveBuffer copies through a borrowed buffer.
func (s *stream) moveBuffer() error {
	if err := s.writePending(); err != nil {
		return err
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	// A terminal gives 4 KiB at most with each read (N_TTY_BUF_SIZE, n_tty.c).
	for moved := 0; s.finish || moved < chunk; {
		size := s.room(len(*buf))
		if size == 0 {
			return errSourceEmpty
		}
		n, err := readSource(s.src, (*buf)[:size])
		if err != nil {
			return err
		}
		if s.finish {
			s.left -= n
		}
		w, err := writeSome(s.dst, (*buf)[:n])
		if err != nil {
			if errors.Is(err, errSinkFull) {
				s.pending = append([]byte(nil), (*buf)[w:n]...)
			}
			return err
		}
		moved += n
	}
	return nil
}

func (s *stream) writePending() error {
	n, err := writeSome(s.dst, s.pending)
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	return err
}

// discard throws away what is there, a piece at a time. Mostly it only finds
// the end, so the buffer is small and on the stack.
func (s *stream) discard() error {
	var buf [4096]byte
	_, err := readSource(s.src, buf[:])
	return err
}

// readSource reads once. A terminal whose last user is gone answers EIO, which
// is its end of file; it does so only when everything has been read.
func readSource(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, errSourceEmpty
		case err != nil, n == 0:
			return 0, errSourceEnd
		}
		return n, nil
	}
}

// writeSome writes until b is empty or the sink is full.
func writeSome(fd int, b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, err := unix.Write(fd, b[written:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return written, errSinkFull
		case err != nil:
			return written, errSinkGone
		default:
			written += n
		}
	}
	return written, nil
}

func (s *stream) armSource() {
	if s.poll.arm(s.key, s.src, unix.EPOLLIN) != nil {
		s.closeAll()
	}
}

// armSink waits for room. In the poller a console is the source of the output
// already, so its input gets a descriptor of its own, but only if it ever fills up.
func (s *stream) armSink() error {
	if s.console == nil || s.output {
		return s.poll.arm(s.key, s.dst, unix.EPOLLOUT)
	}
	if s.full < 0 {
		fd, err := unix.FcntlInt(uintptr(s.dst), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s.full = fd
	}
	return s.poll.arm(s.key, s.full, unix.EPOLLOUT)
}

// closeSink is called with mu held, and leaves the source open.
func (s *stream) closeSink() {
	if s.dst < 0 {
		return
	}
	named := len(s.keep) > 0 // a FIFO, which somebody may still come to open
	for _, fd := range s.keep {
		unix.Close(fd)
	}
	switch {
	case named:
		closeFIFO(s.dst)
	case s.console == nil || s.output:
		unix.Close(s.dst)
	}
	s.dst = -1
	s.keep, s.pending = nil, nil
	s.closeDone()
}

func (s *stream) closeDone() {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
}

func (s *stream) closeAll() {
	if s.closed {
		return
	}
	s.closed = true
	s.closeSink()
	s.closeDone()
	if s.console != nil && s.output {
		s.poll.disarm(s.src)
	} else {
		unix.Close(s.src)
	}
	s.src = -1
	if s.full >= 0 {
		unix.Close(s.full)
		s.full = -1
	}
	s.poll.remove(s.key)
}

// drain delivers what the process had written when it ended and then closes the
// sink, so that its reader sees the end. It waits for a slow reader, but no
// longer than the timeout. A child of the process that still holds the source
// keeps it: what it writes from now on is read and thrown away.
func (s *stream) drain(timeout time.Duration) {
	s.locked(func() {
		if !s.finish && !s.closed {
			s.finish, s.left = true, s.buffered()
			s.pumpLocked()
		}
	})
	select {
	case <-s.done:
		return
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-s.done:
	case <-t.C:
		s.locked(func() {
			if !s.closed {
				s.closeSink()
				s.armSource()
			}
		})
	}
}

// buffered is called with mu held and bounds what a drain still moves: without
// it a child that writes for ever would be drained for ever.
func (s *stream) buffered() int {
	if isPipe(s.src) {
		if n, err := unix.IoctlGetInt(s.src, unix.TIOCINQ); err == nil {
			return n
		}
	}
	// A terminal: the kernel holds at most 64 KiB on its way (TTYB_DEFAULT_MEM_LIMIT,
	// tty_buffer.c) and 4 KiB in the line discipline, and answers FIONREAD for
	// the latter only.
	return 128 << 10
}

// close ends the stream now. What was not delivered is lost.
func (s *stream) close() { s.locked(s.closeAll) }

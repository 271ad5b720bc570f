package fd

import (
	"errors"
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ErrClosed is returned for an FD that was closed or disowned. It is
// fs.ErrClosed.
var ErrClosed = fs.ErrClosed

const (
	closedBit   = 1 << 0 // no new use
	disownedBit = 1 << 1 // the last user does not close
	oneRef      = 1 << 2
)

// FD owns one descriptor. The zero FD owns nothing and is closed. It must not
// be copied after Init. All methods may be called from several goroutines.
type FD struct {
	// state counts the uses under way above two flag bits. The descriptor is
	// closed by whoever takes the count to zero with closedBit set: a Close
	// during a read must not free the number, or the read would continue on
	// whatever file is opened next.
	state atomic.Uint64
	raw   int
	ready bool
}

// New returns an FD that owns raw. A negative raw gives a closed FD.
func New(raw int) *FD {
	f := new(FD)
	f.Init(raw)
	return f
}

// Init makes f the owner of raw. It must be called once, before f is shared.
func (f *FD) Init(raw int) {
	f.raw = raw
	f.ready = raw >= 0
	if f.ready {
		traceOpen(f)
	}
}

// Acquire keeps the descriptor open until Release. It reports false if f is
// closed.
func (f *FD) Acquire() (int, bool) {
	if !f.ready {
		return -1, false
	}
	for {
		s := f.state.Load()
		if s&closedBit != 0 {
			return -1, false
		}
		if f.state.CompareAndSwap(s, s+oneRef) {
			return f.raw, true
		}
	}
}

// Release ends a use that Acquire began.
func (f *FD) Release() {
	if s := f.state.Add(^uint64(oneRef - 1)); s == closedBit {
		_ = unix.Close(f.raw)
	}
}

// Int returns the number, still owned by f: it is valid until Close. It is -1
// when f is closed.
func (f *FD) Int() int {
	if !f.ready || f.state.Load()&closedBit != 0 {
		return -1
	}
	return f.raw
}

// Disown gives the descriptor to the caller, who closes it. f is closed
// afterwards. It returns -1 if f is closed already.
func (f *FD) Disown() int {
	if !f.mark(closedBit | disownedBit) {
		return -1
	}
	return f.raw
}

// Dup returns a second FD for the same open file, close-on-exec and not 0, 1
// or 2.
func (f *FD) Dup() (*FD, error) {
	raw, ok := f.Acquire()
	if !ok {
		return nil, ErrClosed
	}
	defer f.Release()
	n, err := unix.FcntlInt(uintptr(raw), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return New(n), nil
}

// Close closes the descriptor when the last use under way ends. Calling it
// again does nothing. The error of close(2) is returned if it happened in this
// call; the number is free then, too: Linux frees it before it can fail.
func (f *FD) Close() error {
	if !f.mark(closedBit) {
		return nil
	}
	// mark added a use of its own, so exactly one Release closes.
	if s := f.state.Add(^uint64(oneRef - 1)); s == closedBit {
		if err := unix.Close(f.raw); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// mark sets bits and, for a plain close, takes a reference. It reports false if
// f was closed before.
func (f *FD) mark(bits uint64) bool {
	if !f.ready {
		return false
	}
	for {
		s := f.state.Load()
		if s&closedBit != 0 {
			return false
		}
		n := s | bits
		if bits&disownedBit == 0 {
			n += oneRef
		}
		if f.state.CompareAndSwap(s, n) {
			traceClose(f)
			return true
		}
	}
}

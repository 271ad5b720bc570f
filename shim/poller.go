package shim

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// poller tells streams that a descriptor of theirs is ready. All streams of the
// shim share one goroutine, which waits without holding a thread or a buffer:
// the epoll descriptor itself is watched by Go's own poller (epoll instances
// nest; epoll(7), "Questions and answers").
type poller struct {
	fd   int
	conn syscall.RawConn
	file *os.File // keeps conn's descriptor open

	mu     sync.Mutex
	ready  map[int32]func() // guarded by mu, by key
	nextID int32            // guarded by mu
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// os.NewFile registers only non-blocking descriptors with Go's poller.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), ready: map[int32]func(){}}
	if p.conn, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, fmt.Errorf("watch the epoll descriptor: %w", err)
	}
	go p.run()
	return p, nil
}

// add makes a key for a stream; ready is called from the poller's goroutine
// after each arm, once, when the descriptor armed is ready.
func (p *poller) add(ready func()) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID++
	p.ready[p.nextID] = ready
	return p.nextID
}

func (p *poller) remove(key int32) {
	p.mu.Lock()
	delete(p.ready, key)
	p.mu.Unlock()
}

// arm asks for one call of the key's function when fd is readable or writable.
// A descriptor that is ready already, or hung up, counts. fd leaves the poller
// by being closed.
func (p *poller) arm(key int32, fd int, events uint32) error {
	ev := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: key}
	err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &ev)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev)
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// disarm takes a descriptor away that stays open.
func (p *poller) disarm(fd int) {
	unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil) //nolint:errcheck // it may have left by itself
}

func (p *poller) run() {
	var events [32]unix.EpollEvent
	for {
		n := 0
		// Returning false parks the goroutine until the epoll descriptor is
		// readable. Go's poller is edge-triggered, so wait has found the list
		// empty before each parking.
		err := p.conn.Read(func(uintptr) bool {
			var err error
			n, err = unix.EpollWait(p.fd, events[:], 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
		})
		if err != nil || n < 0 {
			return // closed
		}
		for _, ev := range events[:n] {
			p.mu.Lock()
			ready := p.ready[ev.Fd]
			p.mu.Unlock()
			if ready != nil {
				ready()
			}
		}
	}
}

func (p *poller) close() { p.file.Close() }

package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/shim/rpc"
)

// connections checks who connects and keeps those who are connected.
type connections struct {
	mu      sync.Mutex
	open    map[*conn]struct{} // guarded by mu
	leaving bool               // guarded by mu
	none    chan struct{}      // has an element after the last one was closed
}

func newConnections() *connections {
	return &connections{open: map[*conn]struct{}{}, none: make(chan struct{}, 1)}
}

// acceptPause is how long accept waits when the process or the machine is out of
// descriptors or memory.
const acceptPause = 100 * time.Millisecond

// accept serves whoever connects, until l is closed.
func (c *connections) accept(l *net.UnixListener, srv *rpc.Server) error {
	for {
		uc, err := l.AcceptUnix()
		if err != nil {
			if !passes(err) {
				return err
			}
			log.L.WithError(err).Error("accept")
			<-time.NewTimer(acceptPause).C
			continue
		}
		n, err := c.admit(uc)
		if err != nil {
			// A process that ended is no error to log: with every container of a
			// pod containerd starts a shim that connects, finds this one listening
			// and ends.
			if !errors.Is(err, errPeerEnded) {
				log.L.WithError(err).Error("refusing connection")
			}
			uc.Close() //nolint:errcheck // nobody is there, or nobody to be heard
			continue
		}
		go func() {
			if err := srv.Serve(context.Background(), n); err != nil {
				log.L.WithError(err).Error("connection")
			}
		}()
	}
}

// passes tells an error of accept(2) that another try may not meet.
func passes(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// admit checks who has connected. Of one that is not admitted nothing is read.
func (c *connections) admit(uc *net.UnixConn) (*conn, error) {
	rc, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := rc.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if credErr != nil {
		return nil, fmt.Errorf("getsockopt(SO_PEERCRED): %w", credErr)
	}
	if err := checkPeer(cred); err != nil {
		return nil, err
	}
	n := &conn{UnixConn: uc, c: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[n] = struct{}{}
	return n, nil
}

// hangUp ends all connections, each as soon as it has its answer: who asks for
// something after the answer to a Shutdown must not be served.
func (c *connections) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	for n := range c.open {
		if !n.asked {
			n.end()
		}
	}
}

// wait returns when all connections have ended.
func (c *connections) wait(timeout time.Duration) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		c.mu.Lock()
		n := len(c.open)
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.none:
		case <-t.C:
			return
		}
	}
}

// conn is one connection. The server reads from it in one goroutine and writes
// to it in another.
type conn struct {
	*net.UnixConn
	c     *connections
	asked bool // guarded by c.mu: something came after the last answer
}

func (n *conn) Read(b []byte) (int, error) {
	got, err := n.UnixConn.Read(b)
	if got > 0 {
		n.c.mu.Lock()
		n.asked = true
		n.c.mu.Unlock()
	}
	return got, err
}

func (n *conn) Write(b []byte) (int, error) {
	written, err := n.UnixConn.Write(b)
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.asked = false
	if n.c.leaving {
		n.end()
	}
	return written, err
}

// end lets the server read the end of the requests, at which it closes the
// connection. A connection closed under it would be an error in its log.
func (n *conn) end() {
	n.CloseRead() //nolint:errcheck // it may have ended by itself
}

func (n *conn) Close() error {
	n.c.mu.Lock()
	if _, ok := n.c.open[n]; ok {
		delete(n.c.open, n)
		if len(n.c.open) == 0 {
			select {
			case n.c.none <- struct{}{}:
			default:
			}
		}
	}
	n.c.mu.Unlock()
	return n.UnixConn.Close()
}

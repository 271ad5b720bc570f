package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/containerd/ttrpc"
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

// Handshake implements ttrpc.Handshaker.
func (c *connections) Handshake(ctx context.Context, nc net.Conn) (net.Conn, any, error) {
	_, cred, err := ttrpc.UnixCredentialsFunc(checkPeer).Handshake(ctx, nc)
	switch {
	case errors.Is(err, errPeerEnded):
		return ended{nc}, nil, nil
	case err != nil:
		return nil, nil, err
	}
	uc, ok := nc.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("connection of type %T", nc)
	}
	n := &conn{UnixConn: uc, c: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[n] = struct{}{}
	return n, cred, nil
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

// ended is the connection of a process that is no more. Nothing of what it may
// have sent is read: nobody can tell any more who it was. It is no error to log:
// with every container of a pod containerd starts a shim that connects, finds
// this one listening and ends.
type ended struct{ net.Conn }

func (ended) Read([]byte) (int, error) { return 0, io.EOF }

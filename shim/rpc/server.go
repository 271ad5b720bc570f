package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ibex-run/ibex/shim/wire"
)

// Handler answers the requests of one method. Its error should be an *Error.
type Handler func(ctx context.Context, payload []byte) (wire.Message, error)

// Releaser is an answer that holds something until it was encoded.
type Releaser interface{ Release() }

// Server answers requests.
type Server struct {
	// Services are the names under which all methods are offered.
	Services []string
	Methods  map[string]Handler

	once sync.Once
	jobs chan job
	idle atomic.Int32
}

// Method makes a handler of a function.
func Method[Req any, P interface {
	*Req
	wire.Message
}, Res wire.Message](call func(context.Context, P) (Res, error),
) Handler {
	return func(ctx context.Context, payload []byte) (wire.Message, error) {
		req := P(new(Req))
		if err := wire.Unmarshal(payload, req); err != nil {
			return nil, &Error{Internal, fmt.Sprintf("decode request: %v", err)}
		}
		return call(ctx, req)
	}
}

// Serve answers on a connection until its end, or an error, and closes it. Each
// request has a goroutine to itself; those that still run then see the end of
// their context.
func (s *Server) Serve(ctx context.Context, conn io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	c := &serverConn{conn: conn}
	r := bufio.NewReaderSize(conn, readSize)
	var last uint32
	for {
		h, err := readHeader(r)
		if err != nil {
			return ending(err)
		}
		if h.length > maxLength {
			if _, err := io.CopyN(io.Discard, r, int64(h.length)); err != nil {
				return ending(err)
			}
			c.fail(h.stream, ResourceExhausted, fmt.Sprintf("message of %d bytes, of which %d are allowed", h.length, maxLength))
			continue
		}
		data, err := readData(r, h)
		if err != nil {
			return ending(err)
		}
		switch {
		case h.stream%2 != 1:
			c.fail(h.stream, InvalidArgument, "stream ID is not odd")
		case h.kind == typeData:
			c.fail(h.stream, InvalidArgument, "stream ID is not active")
		case h.kind != typeRequest:
			// Whoever sends this is from the future.
		case h.stream <= last:
			c.fail(h.stream, InvalidArgument, "stream ID is not above those before")
		default:
			last = h.stream
			s.dispatch(ctx, c, h.stream, data)
		}
	}
}

// ending is nil for the ways in which connections end.
func ending(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isGone(err) {
		return nil
	}
	return err
}

// dispatch starts what answers a request.
func (s *Server) dispatch(ctx context.Context, c *serverConn, stream uint32, data []byte) {
	var req request
	if err := wire.Unmarshal(data, &req); err != nil {
		c.fail(stream, InvalidArgument, fmt.Sprintf("decode request: %v", err))
		return
	}
	if !slices.Contains(s.Services, req.service) {
		c.fail(stream, Unimplemented, "service "+req.service)
		return
	}
	handle := s.Methods[req.method]
	if handle == nil {
		c.fail(stream, Unimplemented, "method "+req.method)
		return
	}
	s.hand(job{ctx, c, stream, handle, req})
}

// job is a request and what answers it.
type job struct {
	ctx    context.Context
	conn   *serverConn
	stream uint32
	handle Handler
	req    request
}

// hand gives a job to a worker that waits, or to a new one.
func (s *Server) hand(j job) {
	s.once.Do(func() { s.jobs = make(chan job) })
	select {
	case s.jobs <- j:
	default:
		go s.work(j)
	}
}

// maxIdle is how many workers wait for the next job. The stack of one that has
// worked is large enough: a new goroutine's grows, and is copied, several times
// for each request.
const maxIdle = 2

func (s *Server) work(j job) {
	for {
		j.answer()
		j = job{}
		if s.idle.Add(1) > maxIdle {
			s.idle.Add(-1)
			return
		}
		j = <-s.jobs
		s.idle.Add(-1)
	}
}

func (j *job) answer() {
	ctx, cancel := requestContext(j.ctx, j.req.timeout)
	defer cancel()
	res, err := j.handle(ctx, j.req.payload)
	var known *Error
	switch {
	case err == nil:
		j.conn.send(j.stream, &response{body: res})
		if r, ok := res.(Releaser); ok {
			r.Release()
		}
	case errors.As(err, &known):
		j.conn.fail(j.stream, known.Code, known.Text)
	default:
		j.conn.fail(j.stream, Unknown, err.Error())
	}
}

func requestContext(ctx context.Context, timeout int64) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(timeout))
}

// serverConn is a connection's way out.
type serverConn struct {
	conn io.WriteCloser
	mu   sync.Mutex
	buf  []byte // guarded by mu
}

func (c *serverConn) fail(stream uint32, code Code, text string) {
	c.send(stream, &response{status: &wire.Status{Code: int32(code), Text: text}})
}

// send writes an answer in one piece. If that does not work, the connection ends.
func (c *serverConn) send(stream uint32, res *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, err := appendFrame(c.buf[:0], stream, typeResponse, res)
	if err != nil {
		b, err = appendFrame(b, stream, typeResponse, &response{status: &wire.Status{Code: int32(ResourceExhausted), Text: err.Error()}})
	}
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if c.buf = b; cap(b) > keepSize {
		c.buf = nil
	}
	if err != nil {
		c.conn.Close() // whoever reads from it sees the end
	}
}

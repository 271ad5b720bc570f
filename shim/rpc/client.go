package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/ibex-run/ibex/shim/wire"
)

// Client makes calls, one at a time. After an error that is no *Error the
// connection is of no use any more.
type Client struct {
	conn   net.Conn
	r      *bufio.Reader
	stream uint32
}

// NewClient makes a client of a connection, which is then its own.
func NewClient(conn net.Conn) *Client {
	return &Client{conn: conn, r: bufio.NewReaderSize(conn, 64)}
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }

// Call makes a call whose answer says nothing but that it worked. The key and
// value are metadata. An error of the other side is an *Error.
func (c *Client) Call(service, method string, key, value string, m wire.Message, timeout time.Duration) error {
	if err := c.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	stream := c.stream + 1
	c.stream += 2
	b, err := appendFrame(nil, stream, typeRequest, &request{
		service: service, method: method, body: m, timeout: int64(timeout), metadata: &pair{key, value},
	})
	if err != nil {
		return &Error{ResourceExhausted, err.Error()} // it is no better the next time
	}
	if _, err := c.conn.Write(b); err != nil {
		return err
	}
	h, err := readHeader(c.r)
	if err != nil {
		return err
	}
	if h.stream != stream || h.kind != typeResponse || h.length > maxLength {
		return fmt.Errorf("unexpected frame: type %d, stream %d, %d bytes", h.kind, h.stream, h.length)
	}
	data, err := readData(c.r, h)
	if err != nil {
		return err
	}
	var res response
	if err := wire.Unmarshal(data, &res); err != nil {
		return fmt.Errorf("decode response: %w", err)
	}
	if res.status != nil && res.status.Code != int32(OK) {
		return &Error{Code(res.status.Code), res.status.Text}
	}
	return nil
}

// isGone tells the error of a connection whose other end does not live any more,
// or that was closed here.
func isGone(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

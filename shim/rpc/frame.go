package rpc

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ibex-run/ibex/shim/wire"
)

const (
	headerSize = 10
	// maxLength bounds the data of a frame.
	maxLength = 4 << 20
	// readSize holds most requests whole. Longer ones are read past the buffer.
	readSize = 512
	// keepSize is how much of a buffer for answers stays.
	keepSize = 4 << 10
)

// Types of frames.
const (
	typeRequest  = 1
	typeResponse = 2
	typeData     = 3
)

// header stands before the data of a frame.
type header struct {
	length, stream uint32
	kind, flags    byte
}

func readHeader(r *bufio.Reader) (h header, err error) {
	b, err := r.Peek(headerSize)
	if err != nil {
		return h, err
	}
	h = header{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:]), b[8], b[9]}
	_, err = r.Discard(headerSize)
	return h, err
}

// readData reads the data of a frame that is not too long into memory of its own.
func readData(r *bufio.Reader, h header) ([]byte, error) {
	b := make([]byte, h.length)
	_, err := io.ReadFull(r, b)
	return b, err
}

// appendFrame encodes a message with its header behind b, which is empty.
func appendFrame(b []byte, stream uint32, kind byte, m wire.Message) ([]byte, error) {
	b = wire.Append(append(b, make([]byte, headerSize)...), m)
	if n := len(b) - headerSize; n > maxLength {
		return b[:0], fmt.Errorf("message of %d bytes, of which %d are allowed", n, maxLength)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-headerSize))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8] = kind
	return b, nil
}

// request is ttrpc.Request, without metadata when it is decoded.
type request struct {
	service, method string
	payload         []byte       // decoded
	body            wire.Message // encoded
	timeout         int64        // ns, 0 for none
	metadata        *pair
}

func (m *request) Fields(c *wire.Coder) {
	c.String(1, &m.service)
	c.String(2, &m.method)
	putBody(c, 3, &m.payload, m.body)
	c.Int64(4, &m.timeout)
	if m.metadata != nil {
		wire.Sub(c, 5, &m.metadata)
	}
}

// pair is ttrpc.KeyValue.
type pair struct{ key, value string }

func (m *pair) Fields(c *wire.Coder) {
	c.String(1, &m.key)
	c.String(2, &m.value)
}

// response is ttrpc.Response.
type response struct {
	status  *wire.Status
	payload []byte       // decoded
	body    wire.Message // encoded
}

func (m *response) Fields(c *wire.Coder) {
	wire.Sub(c, 1, &m.status)
	putBody(c, 2, &m.payload, m.body)
}

// putBody is a field of bytes that holds an encoded message.
func putBody(c *wire.Coder, n int, payload *[]byte, body wire.Message) {
	if body == nil {
		c.Bytes(n, payload)
		return
	}
	at := c.Open(n)
	body.Fields(c)
	c.Close(at)
}

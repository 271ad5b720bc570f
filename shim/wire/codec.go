package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"unicode/utf8"
)

// Message is what can be encoded and decoded.
type Message interface {
	// Fields passes each field with its number to a method of c, in order.
	Fields(c *Coder)
}

// Wire types.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeFixed32 = 5
)

// maxNumber is the largest field number: 29 bits.
const maxNumber = 1<<29 - 1

// Coder is one encoding or decoding.
//
// When it encodes, a method appends a field, unless it has its zero value. When
// it decodes, Fields is called for each field that comes in, and the method whose
// number and type fit takes the value. Others are skipped, as unknown fields are.
type Coder struct {
	buf []byte // what was encoded so far

	decoding bool
	number   int    // of the field that comes in
	kind     int    // its wire type
	value    uint64 // if it is a number
	data     []byte // if it has a length
	err      error
}

// coders spares an allocation for each message.
var coders = sync.Pool{New: func() any { return new(Coder) }}

// done gives a coder back.
func (c *Coder) done() {
	*c = Coder{}
	coders.Put(c)
}

// Append encodes m behind b.
func Append(b []byte, m Message) []byte {
	c := coders.Get().(*Coder)
	defer c.done()
	c.buf = b
	m.Fields(c)
	return c.buf
}

// Marshal encodes m.
func Marshal(m Message) []byte { return Append(nil, m) }

// Unmarshal decodes b into m, which holds its zero value. Byte slices in m are
// parts of b.
func Unmarshal(b []byte, m Message) error {
	c := coders.Get().(*Coder)
	defer c.done()
	c.decoding = true
	c.decode(b, m)
	return c.err
}

var (
	errShort  = errors.New("message ends within a field")
	errVarint = errors.New("number longer than 64 bits")
)

// decode reads all fields of a message.
func (c *Coder) decode(b []byte, m Message) {
	for len(b) > 0 && c.err == nil {
		tag, n := uvarint(b)
		if n <= 0 {
			c.err = shortOrLong(n)
			return
		}
		b = b[n:]
		if tag>>3 == 0 || tag>>3 > maxNumber {
			c.err = fmt.Errorf("field number %d", tag>>3)
			return
		}
		c.number, c.kind, c.value, c.data = int(tag>>3), int(tag&7), 0, nil
		if n = c.read(b); c.err != nil {
			return
		}
		b = b[n:]
		m.Fields(c)
	}
}

// read takes the value of a field and returns its length.
func (c *Coder) read(b []byte) (n int) {
	switch c.kind {
	case typeVarint:
		if c.value, n = uvarint(b); n <= 0 {
			c.err = shortOrLong(n)
		}
		return n
	case typeFixed64:
		if len(b) < 8 {
			c.err = errShort
			return 0
		}
		c.value = binary.LittleEndian.Uint64(b)
		return 8
	case typeFixed32:
		if len(b) < 4 {
			c.err = errShort
			return 0
		}
		return 4
	case typeBytes:
		length, n := uvarint(b)
		switch {
		case n <= 0:
			c.err = shortOrLong(n)
			return 0
		case length > uint64(len(b)-n):
			c.err = errShort
			return 0
		}
		end := n + int(length)
		c.data = b[n:end:end]
		return end
	}
	// Groups were gone before any of these messages was thought of.
	c.err = fmt.Errorf("field %d has wire type %d", c.number, c.kind)
	return 0
}

// uvarint is binary.Uvarint: n is 0 if b is too short, and below 0 if the number
// does not fit.
func uvarint(b []byte) (v uint64, n int) { return binary.Uvarint(b) }

func shortOrLong(n int) error {
	if n == 0 {
		return errShort
	}
	return errVarint
}

// takes tells whether the field that comes in is number n of the wire type.
func (c *Coder) takes(n, kind int) bool {
	return c.number == n && c.kind == kind && c.err == nil
}

func (c *Coder) tag(n, kind int) {
	c.buf = binary.AppendUvarint(c.buf, uint64(n)<<3|uint64(kind))
}

// Uint64 is a field of type uint64.
func (c *Coder) Uint64(n int, v *uint64) {
	switch {
	case !c.decoding:
		c.PutUint(n, *v)
	case c.takes(n, typeVarint):
		*v = c.value
	}
}

// Uint32 is a field of type uint32, int32 above zero, or an enumeration.
func (c *Coder) Uint32(n int, v *uint32) {
	switch {
	case !c.decoding:
		c.PutUint(n, uint64(*v))
	case c.takes(n, typeVarint):
		*v = uint32(c.value)
	}
}

// Int64 is a field of type int64.
func (c *Coder) Int64(n int, v *int64) {
	u := uint64(*v)
	c.Uint64(n, &u)
	*v = int64(u)
}

// Int32 is a field of type int32, or an enumeration.
func (c *Coder) Int32(n int, v *int32) {
	u := uint64(int64(*v))
	c.Uint64(n, &u)
	*v = int32(u)
}

// Bool is a field of type bool.
func (c *Coder) Bool(n int, v *bool) {
	var u uint64
	if *v {
		u = 1
	}
	c.Uint64(n, &u)
	*v = u != 0
}

// String is a field of type string.
func (c *Coder) String(n int, v *string) {
	switch {
	case !c.decoding:
		c.PutString(n, *v)
	case c.takes(n, typeBytes):
		*v = c.text()
	}
}

// Strings is a repeated field of type string.
func (c *Coder) Strings(n int, v *[]string) {
	switch {
	case !c.decoding:
		for _, s := range *v {
			c.tag(n, typeBytes)
			c.buf = binary.AppendUvarint(c.buf, uint64(len(s)))
			c.buf = append(c.buf, s...)
		}
	case c.takes(n, typeBytes):
		*v = append(*v, c.text())
	}
}

// text is a string that comes in. Others than UTF-8 are refused.
func (c *Coder) text() string {
	if !utf8.Valid(c.data) {
		c.err = fmt.Errorf("field %d: string is not UTF-8", c.number)
		return ""
	}
	return string(c.data)
}

// Bytes is a field of type bytes.
func (c *Coder) Bytes(n int, v *[]byte) {
	switch {
	case !c.decoding:
		if len(*v) > 0 {
			c.tag(n, typeBytes)
			c.buf = binary.AppendUvarint(c.buf, uint64(len(*v)))
			c.buf = append(c.buf, *v...)
		}
	case c.takes(n, typeBytes):
		*v = c.data
	}
}

// Sub is a field that is a message. It is nil if it is not there.
func Sub[T any, P interface {
	*T
	Message
}](c *Coder, n int, v *P,
) {
	switch {
	case !c.decoding:
		if *v != nil {
			c.putMessage(n, *v)
		}
	case c.takes(n, typeBytes):
		if *v == nil {
			*v = new(T)
		}
		c.decode(c.data, *v)
		c.number = 0 // taken: no other field of the outer message is to see it
	}
}

// Subs is a repeated field of messages.
func Subs[T any, P interface {
	*T
	Message
}](c *Coder, n int, v *[]P,
) {
	switch {
	case !c.decoding:
		for _, m := range *v {
			c.putMessage(n, m)
		}
	case c.takes(n, typeBytes):
		m := P(new(T))
		c.decode(c.data, m)
		c.number = 0
		*v = append(*v, m)
	}
}

func (c *Coder) putMessage(n int, m Message) {
	at := c.Open(n)
	m.Fields(c)
	c.Close(at)
}

// The methods below encode only.

// PutUint appends a number.
func (c *Coder) PutUint(n int, v uint64) {
	if v != 0 {
		c.tag(n, typeVarint)
		c.buf = binary.AppendUvarint(c.buf, v)
	}
}

// PutUints appends a repeated field of numbers.
func (c *Coder) PutUints(n int, v []uint64) {
	if len(v) == 0 {
		return
	}
	at := c.Open(n)
	for _, u := range v {
		c.buf = binary.AppendUvarint(c.buf, u)
	}
	c.Close(at)
}

// PutFloat appends a field of type double.
func (c *Coder) PutFloat(n int, v float64) {
	if bits := math.Float64bits(v); bits != 0 {
		c.tag(n, typeFixed64)
		c.buf = binary.LittleEndian.AppendUint64(c.buf, bits)
	}
}

// PutString appends a string.
func (c *Coder) PutString(n int, v string) {
	if v != "" {
		c.tag(n, typeBytes)
		c.buf = binary.AppendUvarint(c.buf, uint64(len(v)))
		c.buf = append(c.buf, v...)
	}
}

// Open begins a field whose length is known only at its end: a message. What is
// appended until Close is called with the same value belongs to it. A message is
// there even if it is empty.
func (c *Coder) Open(n int) (at int) {
	c.tag(n, typeBytes)
	c.buf = append(c.buf, 0)
	return len(c.buf)
}

// Close ends what Open has begun.
func (c *Coder) Close(at int) {
	length := uint64(len(c.buf) - at)
	var prefix [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(prefix[:], length)
	// One byte was kept free, which is enough below 128.
	for range n - 1 {
		c.buf = append(c.buf, 0)
	}
	copy(c.buf[at+n-1:], c.buf[at:len(c.buf)-(n-1)])
	copy(c.buf[at-1:], prefix[:n])
}

package wire

import (
	"strings"
	"time"
)

// Empty is google.protobuf.Empty, and a request whose fields do not matter.
type Empty struct{}

// Fields implements Message.
func (*Empty) Fields(*Coder) {}

// Any is google.protobuf.Any: a message or something else, with its type.
type Any struct {
	TypeURL string
	Value   []byte
	// Body is encoded as the value, if it is not nil. Decoding leaves it alone.
	Body Message
}

// Fields implements Message.
func (m *Any) Fields(c *Coder) {
	c.String(1, &m.TypeURL)
	if m.Body != nil && !c.decoding {
		c.putMessage(2, m.Body)
		return
	}
	c.Bytes(2, &m.Value)
}

// Name is the name of the type, without the host that some senders put before it.
func (m *Any) Name() string {
	return m.TypeURL[strings.LastIndexByte(m.TypeURL, '/')+1:]
}

// Timestamp is google.protobuf.Timestamp: the time since 1970 in UTC.
type Timestamp struct {
	Seconds int64
	Nanos   int32
}

// NewTimestamp converts a time.
func NewTimestamp(t time.Time) *Timestamp {
	return &Timestamp{Seconds: t.Unix(), Nanos: int32(t.Nanosecond())}
}

// Fields implements Message.
func (m *Timestamp) Fields(c *Coder) {
	c.Int64(1, &m.Seconds)
	c.Int32(2, &m.Nanos)
}

// Status is google.rpc.Status, without details.
type Status struct {
	Code int32
	Text string
}

// Fields implements Message.
func (m *Status) Fields(c *Coder) {
	c.Int32(1, &m.Code)
	c.String(2, &m.Text)
}

// Mount is containerd.types.Mount.
type Mount struct {
	Type, Source, Target string
	Options              []string
}

// Fields implements Message.
func (m *Mount) Fields(c *Coder) {
	c.String(1, &m.Type)
	c.String(2, &m.Source)
	c.String(3, &m.Target)
	c.Strings(4, &m.Options)
}
